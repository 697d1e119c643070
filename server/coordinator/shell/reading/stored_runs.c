/* What the store knows of runs. */
#include "server/coordinator/shell/reading/stored_runs.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/agree/plan.h"
#include "common/agree/spec.h"
#include "common/base/log.h"
#include "common/base/message.h"
#include "common/base/text.h"
#include "common/modes/mode.h"

enum { RECORDS_HELD_MAX = 2 * (RUNS_KEPT + TRIALS_KEPT), NUMBER_DIGITS = 20 };

/* Of which some are left out, where they are too many. */
enum kind { RUN_NOT_OVER, RUN_OVER, TRIAL_OVER, KINDS };

/* Names by run: all names in the store, ascending, so that those of a run are neighbours. */
struct reading {
  struct store *store;
  const struct store_record *guard;
  struct store_names names;
  struct stored_runs *runs;
  int capacity;
  int n_kept;      /* when some were left out last */
  size_t n_events; /* of all runs */
};

static int read_records(struct reading *reading, struct err *err);
static void keep_newest(struct stored_runs *runs);
static const char *what_is_wrong(const Weir__RunRecord *record, const char *name, struct err *err);
static int read_run(struct reading *reading, struct stored_run *run, struct err *err);
static int read_checkpoints(struct reading *reading, Weir__RunRecord *record, struct err *err);
static int read_events(struct reading *reading, struct stored_run *run, struct err *err);
static int read_chunk(struct reading *reading, struct stored_run *run, uint64_t number, struct err *err);
static int settle_incarnation(struct reading *reading, const Weir__RunRecord *record, struct err *err);

static bool is_over(const Weir__RunRecord *record) {
  return record->state == WEIR__RUN_STATE__DONE || record->state == WEIR__RUN_STATE__FAILED ||
         record->state == WEIR__RUN_STATE__CANCELLED || record->state == WEIR__RUN_STATE__STOPPED;
}

int stored_runs_read(struct store *store, const struct store_record *guard, struct stored_runs *runs,
                     struct err *err) {
  struct reading reading = {.store = store, .guard = guard, .runs = runs};
  int rc;
  *runs = (struct stored_runs){0};
  rc = store_list_records(store, "runs/", &reading.names, err);
  if (!rc)
    rc = read_records(&reading, err);
  keep_newest(runs);
  for (int i = runs->count - 1; i >= 0 && !rc; i--) /* the newest first: they get their events */
    rc = read_run(&reading, &runs->items[i], err);
  store_names_fini(&reading.names);
  if (rc)
    stored_runs_fini(runs);
  return rc;
}

void stored_runs_fini(struct stored_runs *runs) {
  for (int i = 0; i < runs->count; i++)
    stored_runs_release(&runs->items[i]);
  free(runs->items);
  *runs = (struct stored_runs){0};
}

int stored_members_read(struct store *store, Weir__Members **members, struct err *err) {
  int rc = checkpoint_read_record(store, MEMBERS_RECORD, &weir__members__descriptor, (void **)members, err);
  if (rc == ERR_CORRUPT)
    log_event(LOG_ERROR, "coordinator", "members_unreadable", "reason=\"%s\"", err->text);
  if (rc != ERR_CORRUPT && rc != ERR_NOT_FOUND)
    return rc;
  *members = NULL;
  *err = ERR_NONE;
  return 0;
}

int stored_runs_find(struct store *store, const struct store_record *guard, const char *id,
                     struct stored_run *run, struct err *err) {
  struct reading reading = {.store = store, .guard = guard};
  char *name = checkpoint_run_name(id, "run"), *prefix = mem_printf("runs/%s/", id);
  struct err why = ERR_NONE;
  const char *wrong;
  *run = (struct stored_run){0};
  if (checkpoint_read_record(store, name, &weir__run_record__descriptor, (void **)&run->record, err) == 0) {
    if ((wrong = what_is_wrong(run->record, name, &why)))
      err_set(err, ERR_CORRUPT, "store: record %s: %s", name, wrong);
    else if (store_list_records(store, prefix, &reading.names, err) == 0)
      read_run(&reading, run, err);
  }
  if (err->code)
    stored_runs_release(run);
  store_names_fini(&reading.names);
  free(name);
  free(prefix);
  return err->code;
}

void stored_runs_release(struct stored_run *run) {
  message_free(run->record);
  for (size_t i = 0; i < run->n_events; i++)
    message_free(run->events[i]);
  free(run->events);
  free(run->chunks);
  *run = (struct stored_run){0};
}

static int read_records(struct reading *reading, struct err *err) {
  struct stored_runs *runs = reading->runs;
  for (int i = 0; i < reading->names.count; i++) {
    const char *name = reading->names.items[i], *wrong = NULL;
    size_t length = strlen(name);
    Weir__RunRecord *record;
    int rc;
    if (length < 4 || strcmp(name + length - 4, "/run"))
      continue;
    rc = checkpoint_read_record(reading->store, name, &weir__run_record__descriptor, (void **)&record, err);
    if (rc == ERR_CORRUPT)
      wrong = err->text;
    else if (rc && rc != ERR_NOT_FOUND)
      return rc;
    if (!rc)
      wrong = what_is_wrong(record, name, err);
    if (wrong)
      log_event(LOG_ERROR, "coordinator", "run_unreadable", "name=%s reason=\"%s\"", name, wrong);
    if (rc || wrong) {
      message_free(record);
      *err = ERR_NONE;
      continue;
    }
    array_reserve((void **)&runs->items, &reading->capacity, runs->count, sizeof *runs->items);
    runs->items[runs->count++] = (struct stored_run){.record = record};
    if (runs->count - reading->n_kept == RECORDS_HELD_MAX) {
      keep_newest(runs);
      reading->n_kept = runs->count;
    }
  }
  return 0;
}

static enum kind kind_of(const Weir__RunRecord *record) {
  if (!is_over(record))
    return RUN_NOT_OVER;
  return *record->sweep ? TRIAL_OVER : RUN_OVER;
}

static bool has_result(const Weir__RunRecord *record) {
  return record->state == WEIR__RUN_STATE__DONE || record->state == WEIR__RUN_STATE__STOPPED;
}

/* By kind, trials with a result first, then by submission, the newest first. */
static int compare_worth(const void *a, const void *b) {
  const Weir__RunRecord *left = ((const struct stored_run *)a)->record;
  const Weir__RunRecord *right = ((const struct stored_run *)b)->record;
  if (kind_of(left) != kind_of(right))
    return (int)kind_of(left) - (int)kind_of(right);
  if (kind_of(left) == TRIAL_OVER && has_result(left) != has_result(right))
    return has_result(left) ? -1 : 1;
  return (left->submitted_unix_ms < right->submitted_unix_ms) -
         (left->submitted_unix_ms > right->submitted_unix_ms);
}

static int compare_submission(const void *a, const void *b) {
  const Weir__RunRecord *left = ((const struct stored_run *)a)->record;
  const Weir__RunRecord *right = ((const struct stored_run *)b)->record;
  int order = (left->submitted_unix_ms > right->submitted_unix_ms) -
              (left->submitted_unix_ms < right->submitted_unix_ms);
  return order ? order : strcmp(left->run, right->run);
}

static void keep_newest(struct stored_runs *runs) {
  static const int most[KINDS] = {INT_MAX, RUNS_KEPT, TRIALS_KEPT};
  int n[KINDS] = {0}, kept = 0;
  if (runs->count == 0)
    return;
  qsort(runs->items, (size_t)runs->count, sizeof *runs->items, compare_worth);
  for (int i = 0; i < runs->count; i++) {
    enum kind kind = kind_of(runs->items[i].record);
    if (n[kind]++ < most[kind])
      runs->items[kept++] = runs->items[i];
    else
      stored_runs_release(&runs->items[i]);
  }
  runs->left_out += runs->count - kept;
  runs->count = kept;
  qsort(runs->items, (size_t)runs->count, sizeof *runs->items, compare_submission);
}

static bool texts_are_clean(const Weir__RunRecord *record) {
  const Weir__RunReference *reference = record->reference;
  if (!text_is_clean(record->message) || !text_is_clean(record->model_sha256) ||
      !text_is_clean(record->outline_sha256) || !text_is_clean(record->weights_sha256))
    return false;
  if (reference && (!text_is_clean(reference->worker) || !text_is_clean(reference->fingerprint) ||
                    !text_is_clean(reference->dataset_sha256) || !text_is_clean(reference->probe_sha256) ||
                    !text_is_clean(reference->server) || !text_is_clean(reference->server_fingerprint)))
    return false;
  for (size_t i = 0; i < record->n_servers; i++)
    if (!text_is_clean(record->servers[i]->id) || !text_is_clean(record->servers[i]->address))
      return false;
  return true;
}

/* NULL: nothing. The text may be err's. */
static const char *what_is_wrong(const Weir__RunRecord *record, const char *name, struct err *err) {
  char *own = checkpoint_run_name(record->run, "run");
  bool is_own = strcmp(own, name) == 0;
  struct plan plan;
  free(own);
  if (!is_own)
    return "it is another run's";
  if (!record->spec)
    return "it has no spec";
  if (spec_check(record->spec, err) || mode_check(record->spec, err))
    return err->text;
  if (record->state < WEIR__RUN_STATE__QUEUED || record->state > WEIR__RUN_STATE__STOPPED)
    return "its state is unknown";
  if (record->n_block_elems == 0 || strlen(record->model_sha256) != STORE_KEY_SIZE - 1 ||
      (*record->outline_sha256 && strlen(record->outline_sha256) != STORE_KEY_SIZE - 1))
    return "it has no model";
  if (!texts_are_clean(record))
    return "its texts are damaged";
  if (record->plan &&
      plan_init(&plan, record->spec, record->plan->train_samples, record->plan->eval_samples, err))
    return err->text;
  return NULL;
}

static int read_run(struct reading *reading, struct stored_run *run, struct err *err) {
  int rc = read_checkpoints(reading, run->record, err);
  if (!rc && !is_over(run->record))
    rc = settle_incarnation(reading, run->record, err);
  return rc ? rc : read_events(reading, run, err);
}

static Weir__CheckpointInfo *find_info(const Weir__RunRecord *record, uint64_t step) {
  for (size_t i = 0; i < record->n_checkpoints; i++)
    if (record->checkpoints[i]->step == step)
      return record->checkpoints[i];
  return NULL;
}

/* What the record lists is trusted for a run that is over; for others every manifest is looked at. */
static int read_info(struct reading *reading, const Weir__RunRecord *record, uint64_t step,
                     Weir__CheckpointInfo **info, struct err *err) {
  const Weir__CheckpointInfo *known = find_info(record, step);
  Weir__CheckpointInfo fresh;
  Weir__Manifest *manifest;
  char *name;
  int rc;
  *info = NULL;
  if (known && is_over(record)) {
    *info = message_copy(known);
    return 0;
  }
  name = checkpoint_name(record->run, step);
  rc = checkpoint_read(reading->store, name, &manifest, err);
  if (rc == 0) {
    checkpoint_info(manifest, &fresh);
    if (known && known->incarnation == fresh.incarnation) { /* what was found after the commit */
      fresh.accuracy = known->accuracy;
      fresh.eval_loss = known->eval_loss;
      fresh.metrics = known->metrics;
      fresh.n_metrics = known->n_metrics;
      fresh.unreadable = known->unreadable;
    }
    *info = message_copy(&fresh);
  } else if (rc == ERR_CORRUPT || rc == ERR_NOT_FOUND) {
    log_event(LOG_ERROR, "coordinator", "checkpoint_unreadable", "name=%s reason=\"%s\"", name, err->text);
    *err = ERR_NONE;
    rc = 0;
  }
  message_free(manifest);
  free(name);
  return rc;
}

/* The numbers of the records RUN/WHICH/NUMBER, ascending; freed by the caller. */
static uint64_t *find_numbers(const struct reading *reading, const char *run, const char *which, int *n) {
  char *prefix = mem_printf("runs/%s/%s/", run, which);
  size_t length = strlen(prefix);
  int capacity = 0, low = 0, high = reading->names.count;
  uint64_t *numbers = NULL;
  while (low < high) { /* the names are sorted */
    int middle = low + (high - low) / 2;
    if (strcmp(reading->names.items[middle], prefix) < 0)
      low = middle + 1;
    else
      high = middle;
  }
  for (*n = 0; low < reading->names.count; low++) {
    const char *digits = reading->names.items[low] + length;
    if (strncmp(reading->names.items[low], prefix, length))
      break;
    if (strlen(digits) != NUMBER_DIGITS || strspn(digits, "0123456789") != NUMBER_DIGITS)
      continue;
    array_reserve((void **)&numbers, &capacity, *n, sizeof *numbers);
    numbers[(*n)++] = strtoull(digits, NULL, 10);
  }
  free(prefix);
  return numbers;
}

static int read_checkpoints(struct reading *reading, Weir__RunRecord *record, struct err *err) {
  Weir__CheckpointInfo **infos;
  size_t n_infos = 0;
  int n, rc = 0;
  uint64_t *steps = find_numbers(reading, record->run, "checkpoints", &n);
  infos = mem_new((size_t)n * sizeof *infos);
  for (int i = 0; i < n && !rc; i++) {
    rc = read_info(reading, record, steps[i], &infos[n_infos], err);
    n_infos += infos[n_infos] != NULL;
  }
  free(steps);
  for (size_t i = 0; i < record->n_checkpoints; i++)
    message_free(record->checkpoints[i]);
  free(record->checkpoints);
  record->checkpoints = infos;
  record->n_checkpoints = n_infos;
  return rc;
}

/* By number: what two chunks have is the same. */
static int compare_events(const void *a, const void *b) {
  uint64_t left = (*(Weir__RunEvent *const *)a)->number, right = (*(Weir__RunEvent *const *)b)->number;
  return (left > right) - (left < right);
}

static int read_events(struct reading *reading, struct stored_run *run, struct err *err) {
  size_t kept = 0;
  int rc = 0;
  run->chunks = find_numbers(reading, run->record->run, "events", &run->n_chunks);
  for (int i = run->n_chunks - 1; i >= 0 && !rc; i--) {
    bool is_newest = i == run->n_chunks - 1;
    if (!is_newest && (run->n_events >= STORED_EVENTS_MAX || reading->n_events >= STORED_EVENTS_ALL_MAX))
      break;
    rc = read_chunk(reading, run, run->chunks[i], err);
  }
  if (rc || run->n_events == 0)
    return rc;
  qsort(run->events, run->n_events, sizeof *run->events, compare_events);
  for (size_t i = 0; i < run->n_events; i++) {
    if (kept && run->events[kept - 1]->number == run->events[i]->number)
      message_free(run->events[i]);
    else
      run->events[kept++] = run->events[i];
  }
  run->n_events = kept;
  return 0;
}

static bool event_is_sound(const Weir__RunEvent *event) {
  switch (event->event_case) {
  case WEIR__RUN_EVENT__EVENT_STEP:
  case WEIR__RUN_EVENT__EVENT_EVAL:
    return true;
  case WEIR__RUN_EVENT__EVENT_DONE:
    return text_is_clean(event->done->weights_sha256);
  case WEIR__RUN_EVENT__EVENT_INFO:
    return text_is_clean(event->info->run) && text_is_clean(event->info->name) &&
           text_is_clean(event->info->message) && text_is_clean(event->info->store_message) &&
           text_is_clean(event->info->weights_sha256);
  default:
    return false;
  }
}

/* Takes the sound events out of the chunk, which is left without them. */
static int read_chunk(struct reading *reading, struct stored_run *run, uint64_t number, struct err *err) {
  char *name = mem_printf("runs/%s/events/%020" PRIu64, run->record->run, number);
  Weir__EventChunk *chunk;
  int rc = checkpoint_read_record(reading->store, name, &weir__event_chunk__descriptor, (void **)&chunk, err);
  if (rc == ERR_CORRUPT || rc == ERR_NOT_FOUND) {
    log_event(LOG_ERROR, "coordinator", "events_unreadable", "name=%s reason=\"%s\"", name, err->text);
    *err = ERR_NONE;
    rc = 0;
  } else if (!rc && chunk->n_events) {
    run->events = mem_resize(run->events, (run->n_events + chunk->n_events) * sizeof *run->events);
    for (size_t i = 0; i < chunk->n_events; i++) {
      if (event_is_sound(chunk->events[i]))
        run->events[run->n_events++] = chunk->events[i];
      else
        message_free(chunk->events[i]);
    }
    reading->n_events += chunk->n_events;
    free(chunk->events);
    chunk->events = NULL;
    chunk->n_events = 0;
  }
  message_free(chunk);
  free(name);
  return rc;
}

static int settle_incarnation(struct reading *reading, const Weir__RunRecord *record, struct err *err) {
  char *name = checkpoint_run_name(record->run, "incarnation"), own[24];
  size_t size = 0, length = (size_t)snprintf(own, sizeof own, "%" PRIu64, record->incarnation);
  void *data = NULL;
  int rc = store_get_record(reading->store, name, &data, &size, err);
  if (rc == ERR_NOT_FOUND || (!rc && (size != length || memcmp(data, own, length)))) {
    *err = ERR_NONE;
    rc = store_put_record(reading->store, &(struct store_record){name, own, length, reading->guard}, err);
  }
  free(data);
  free(name);
  return rc;
}
