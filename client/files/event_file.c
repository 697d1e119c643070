/* An event file of TensorBoard. */
#include "client/files/event_file.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/files/result_dir.h"
#include "common/base/memory.h"

/* Of files in which a START, but for the first one, takes back what they have of its step and later ones. */
static const char version[] = "brain.Event:2";
static const char incarnation_word[] = "incarnation ";

static int record_take(void *user, const void *data, size_t size, struct err *err);
static void summary_take(struct event_file *file, const Weir__Tensorboard__Event *event);
static int start(struct event_file *file, const struct event_mark *at, struct err *err);

int event_file_open(struct event_file *file, const char *folder, double begun_seconds, struct err *err) {
  char *path = mem_printf("%s/events.out.tfevents.%010.0f.weir", folder, floor(begun_seconds));
  *file = (struct event_file){0};
  if (result_dir_make_folder(folder, err) == 0)
    tfrecord_open(&file->file, path, &(struct tfrecord_reader){record_take, file}, err);
  free(path);
  if (!err->code && file->seconds == 0) {
    Weir__Tensorboard__Event event = WEIR__TENSORBOARD__EVENT__INIT;
    event.what_case = WEIR__TENSORBOARD__EVENT__WHAT_FILE_VERSION;
    event.file_version = (char *)version;
    file->seconds = begun_seconds;
    event_file_append(file, &event, err);
  }
  if (!err->code && !file->is_started)
    start(file, &(struct event_mark){0}, err);
  return err->code;
}

static int record_take(void *user, const void *data, size_t size, struct err *err) {
  struct event_file *file = user;
  Weir__Tensorboard__Event *event = weir__tensorboard__event__unpack(NULL, size, data);
  if (!event)
    return err_set(err, ERR_INVALID, "a record is no event of TensorBoard");
  file->seconds = event->wall_time;
  if (event->what_case == WEIR__TENSORBOARD__EVENT__WHAT_SUMMARY)
    summary_take(file, event);
  if (event->what_case == WEIR__TENSORBOARD__EVENT__WHAT_SESSION_LOG) {
    const Weir__Tensorboard__SessionLog *log = event->session_log;
    size_t length = strlen(incarnation_word);
    if (log->status == WEIR__TENSORBOARD__SESSION_LOG__STATUS__STOP)
      file->is_over = true;
    else
      file->is_started = true;
    if (strncmp(log->msg, incarnation_word, length) == 0)
      file->incarnation = strtoull(log->msg + length, NULL, 10);
  }
  weir__tensorboard__event__free_unpacked(event, NULL);
  return 0;
}

static void summary_take(struct event_file *file, const Weir__Tensorboard__Event *event) {
  const char *tag = event->summary->n_value > 0 ? event->summary->value[0]->tag : "";
  if (strcmp(tag, EVENT_FILE_SESSION_START) == 0)
    file->is_begun = true;
  else if (strcmp(tag, EVENT_FILE_SESSION_END) == 0)
    file->is_over = true;
  else
    file->mark = (struct event_mark){true, file->incarnation, (uint64_t)event->step};
}

int event_file_append(struct event_file *file, Weir__Tensorboard__Event *event, struct err *err) {
  size_t size;
  void *record;
  event->wall_time = file->seconds;
  size = weir__tensorboard__event__get_packed_size(event);
  record = mem_new(size);
  weir__tensorboard__event__pack(event, record);
  tfrecord_append(&file->file, record, size, err);
  free(record);
  return err->code;
}

int event_file_scalars(struct event_file *file, const struct event_mark *at,
                       Weir__Tensorboard__Summary *scalars, struct err *err) {
  Weir__Tensorboard__Event event = WEIR__TENSORBOARD__EVENT__INIT;
  if (at->incarnation > file->incarnation && start(file, at, err))
    return err->code;
  event.step = (int64_t)at->step;
  event.what_case = WEIR__TENSORBOARD__EVENT__WHAT_SUMMARY;
  event.summary = scalars;
  return event_file_append(file, &event, err);
}

static int session_append(struct event_file *file, uint64_t step, Weir__Tensorboard__SessionLog *log,
                          struct err *err) {
  Weir__Tensorboard__Event event = WEIR__TENSORBOARD__EVENT__INIT;
  event.step = (int64_t)step;
  event.what_case = WEIR__TENSORBOARD__EVENT__WHAT_SESSION_LOG;
  event.session_log = log;
  return event_file_append(file, &event, err);
}

/* An incarnation begins: what an earlier one had of this step and later ones does not count. */
static int start(struct event_file *file, const struct event_mark *at, struct err *err) {
  Weir__Tensorboard__SessionLog log = WEIR__TENSORBOARD__SESSION_LOG__INIT;
  char text[64];
  snprintf(text, sizeof text, "%s%" PRIu64, incarnation_word, at->incarnation);
  log.status = WEIR__TENSORBOARD__SESSION_LOG__STATUS__START;
  log.msg = text;
  file->incarnation = at->incarnation;
  file->is_started = true;
  return session_append(file, at->step, &log, err);
}

int event_file_stop(struct event_file *file, uint64_t step, struct err *err) {
  Weir__Tensorboard__SessionLog log = WEIR__TENSORBOARD__SESSION_LOG__INIT;
  log.status = WEIR__TENSORBOARD__SESSION_LOG__STATUS__STOP;
  file->is_over = true;
  return session_append(file, step, &log, err);
}

void event_file_close(struct event_file *file) {
  tfrecord_close(&file->file);
}
