/* A sweep on its way, and what is left of it. */
#include "client/sweeps/sweep_follow.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "client/cluster/download.h"
#include "client/cluster/stop.h"
#include "client/files/export.h"
#include "client/files/output_file.h"
#include "client/sweeps/sweep_objectives.h"
#include "client/sweeps/sweep_table.h"
#include "client/sweeps/sweep_view.h"
#include "client/terminal/live.h"
#include "common/base/clock.h"
#include "common/base/memory.h"
#include "common/base/message.h"
#include "common/base/text.h"
#include "common/sweep/sweep_unit.h"

enum { ASK_MS = 300, AWAY_MS = 60000 };

/* How far a sweep was followed. */
struct following {
  struct live live;
  struct sweep_view view; /* on a terminal */
  uint64_t known;         /* records of its log; UINT64_MAX: none */
  Weir__SweepInfo *info;  /* the newest; NULL: none */
  size_t *told;           /* [n] results of each trial */
  int n, capacity;
};

static int ask_page(struct connection *connection, const Weir__GetSweepRequest *request,
                    Weir__SweepInfo **page, struct err *err) {
  *page = NULL;
  return connection_call(connection, RPC_GET_SWEEP, request, (void **)page, err);
}

/* What is in the page goes behind what is there. */
static void move_page(Weir__SweepInfo *info, Weir__SweepInfo *page) {
  info->trials = mem_resize(info->trials, (info->n_trials + page->n_trials) * sizeof *info->trials + 1);
  for (size_t i = 0; i < page->n_trials; i++)
    info->trials[info->n_trials++] = page->trials[i];
  info->records = mem_resize(info->records, (info->n_records + page->n_records) * sizeof *info->records + 1);
  for (size_t i = 0; i < page->n_records; i++)
    info->records[info->n_records++] = page->records[i];
  page->n_trials = page->n_records = 0;
}

static bool is_whole(const Weir__SweepInfo *info, bool has_records) {
  return info->n_trials >= info->begun && (!has_records || info->n_records >= info->log_records);
}

int sweep_ask(struct connection *connection, const char *sweep, bool has_records, Weir__SweepInfo **info,
              struct err *err) {
  Weir__GetSweepRequest request = WEIR__GET_SWEEP_REQUEST__INIT;
  Weir__SweepInfo *page;
  bool is_new = true;
  request.sweep = (char *)sweep;
  request.has_records = has_records;
  if (ask_page(connection, &request, info, err))
    return err->code;
  while (is_new && !is_whole(*info, has_records)) {
    request.first_trial = (uint32_t)(*info)->n_trials;
    request.first_record = (*info)->n_records;
    if (ask_page(connection, &request, &page, err)) {
      message_free(*info);
      *info = NULL;
      return err->code;
    }
    is_new = page->n_trials > 0 || page->n_records > 0;
    move_page(*info, page);
    message_free(page);
  }
  return 0;
}

/* Without trials and specs; freed by the caller. */
static int ask_news(struct connection *connection, const char *sweep, Weir__SweepInfo **news,
                    struct err *err) {
  Weir__GetSweepRequest request = WEIR__GET_SWEEP_REQUEST__INIT;
  request.sweep = (char *)sweep;
  request.first_trial = UINT32_MAX;
  return ask_page(connection, &request, news, err);
}

/* What changes while the log does not. */
static void move_progress(Weir__SweepInfo *info, Weir__SweepInfo *news) {
  Weir__SweepProgress **progress = info->progress;
  size_t n = info->n_progress;
  char *message = info->message;
  info->message = news->message;
  news->message = message;
  info->seconds = news->seconds;
  info->progress = news->progress;
  info->n_progress = news->n_progress;
  news->progress = progress;
  news->n_progress = n;
}

/* A line for each result that is not among the first n_told[trial] of its trial. */
static void tell_results(FILE *file, const Weir__SweepInfo *info, size_t *n_told) {
  for (size_t i = 0; i < info->n_trials; i++) {
    const Weir__SweepTrial *trial = info->trials[i];
    char numbers[SWEEP_OBJECTIVES_TEXT_MAX], values[SWEEP_VALUES_MAX];
    bool is_best =
        info->n_front ? sweep_is_on_front(info, trial) : info->has_best && info->best == trial->number;
    size_t n = trial->n_results + (*trial->failure != '\0');
    for (; n_told[i] < n; n_told[i]++) {
      bool is_failure = n_told[i] == trial->n_results;
      fprintf(file, "trial %u  ", trial->number);
      if (is_failure)
        fprintf(file, "failed: %s", trial->failure);
      else if (info->spec && info->spec->schedule && n_told[i] < info->spec->schedule->n_rungs)
        fprintf(file, "%s %" PRIu64 "  %s", sweep_unit(info), info->spec->schedule->rungs[n_told[i]],
                sweep_objectives_text(info, trial, n_told[i], numbers));
      else
        fputs(sweep_objectives_text(info, trial, n_told[i], numbers), file);
      fprintf(file, "%s  %s\n",
              !is_best || is_failure ? ""
              : info->n_front        ? "  front"
                                     : "  best",
              sweep_values_text(trial, values));
    }
  }
  fflush(file);
}

/* Puts the page's trials in place of those of the same numbers, or behind them. Whether they belong there. */
static bool merge_trials(Weir__SweepInfo *info, Weir__SweepInfo *page) {
  bool fits = true;
  info->trials = mem_resize(info->trials, (info->n_trials + page->n_trials) * sizeof *info->trials + 1);
  for (size_t i = 0; i < page->n_trials && fits; i++) {
    uint32_t number = page->trials[i]->number;
    fits = number <= info->n_trials;
    if (!fits)
      break;
    if (number < info->n_trials)
      message_free(info->trials[number]);
    info->trials[number] = page->trials[i];
    info->n_trials += number == info->n_trials;
    page->trials[i] = NULL;
  }
  for (size_t i = 0; i < page->n_trials; i++)
    message_free(page->trials[i]);
  page->n_trials = 0;
  return fits;
}

/* Brings what is known of the sweep up to date by what its log's newer records have changed. `*is_known`:
   whether that is what came; a coordinator that does not know of it tells more, and the caller asks for the
   whole. */
static int ask_changes(struct connection *connection, const char *sweep, struct following *following,
                       bool *is_known, struct err *err) {
  Weir__GetSweepRequest request = WEIR__GET_SWEEP_REQUEST__INIT;
  Weir__SweepInfo *newest = NULL, *page, *old = following->info;
  *is_known = true;
  request.sweep = (char *)sweep;
  request.only_changes = true;
  request.changed_from = following->known;
  do {
    if (ask_page(connection, &request, &page, err))
      break;
    *is_known = page->only_changes && merge_trials(old, page);
    request.first_trial = page->next_trial;
    if (!newest)
      newest = page; /* which has the specs */
    else
      message_free(page);
  } while (*is_known && request.first_trial > 0);
  if (!err->code && *is_known) {
    free(newest->trials);
    newest->trials = old->trials;
    newest->n_trials = old->n_trials;
    old->trials = NULL;
    old->n_trials = 0;
    following->info = newest;
    newest = old;
  }
  message_free(newest);
  return err->code;
}

/* Asks for what has changed where the log has grown. */
static int ask_newest(struct connection *connection, const char *sweep, struct following *following,
                      struct err *err) {
  Weir__SweepInfo *news, *newer;
  bool is_known = false;
  if (ask_news(connection, sweep, &news, err))
    return err->code;
  if (following->info && news->log_records == following->known) {
    move_progress(following->info, news);
    message_free(news);
    return 0;
  }
  message_free(news);
  if (following->info && ask_changes(connection, sweep, following, &is_known, err))
    return err->code;
  if (!is_known && sweep_ask(connection, sweep, false, &newer, err) == 0) {
    message_free(following->info);
    following->info = newer;
  }
  if (!err->code)
    following->known = following->info->log_records;
  return err->code;
}

static double now_seconds(void) {
  return clock_seconds(clock_now_ns());
}

static void draw(struct following *following) {
  char *text = NULL;
  size_t bytes;
  FILE *file = open_memstream(&text, &bytes);
  CHECK(file);
  live_measure(&following->live);
  sweep_view_print(file, &following->view, following->info, now_seconds(), &following->live);
  fclose(file);
  live_draw(&following->live, text);
  free(text);
}

static int follow_once(struct connection *connection, const char *sweep, struct following *following,
                       struct err *err) {
  ask_newest(connection, sweep, following, err);
  if (following->live.is_terminal && following->info) {
    following->view.trouble = err->code ? err->text : NULL;
    sweep_view_update(&following->view, following->info, now_seconds());
    draw(following);
  } else if (!err->code) {
    for (; following->n < (int)following->info->n_trials; following->n++) {
      const Weir__SweepTrial *trial = following->info->trials[following->n];
      array_reserve((void **)&following->told, &following->capacity, following->n, sizeof *following->told);
      following->told[following->n] =
          trial->has_parent ? trial->parent_rung + 1 : 0; /* its parent's were told */
    }
    tell_results(following->live.file, following->info, following->told);
  }
  return err->code;
}

/* The view goes, unless somebody has seen enough of it. */
static void following_fini(struct following *following, bool is_kept) {
  if (is_kept && following->live.n_drawn > 0)
    fprintf(following->live.file, "\n");
  else
    live_erase(&following->live);
  sweep_view_fini(&following->view);
  free(following->told);
}

int sweep_follow(struct connection *connection, const char *sweep, FILE *file, Weir__SweepInfo **info,
                 struct err *err) {
  struct following following = {.known = UINT64_MAX};
  int away_ms = 0;
  bool has_ended = false;
  live_init(&following.live, file);
  sweep_view_init(&following.view);
  do {
    *err = ERR_NONE;
    away_ms = follow_once(connection, sweep, &following, err) ? away_ms + ASK_MS : 0;
    has_ended = !err->code && *following.info->end;
  } while (!has_ended && (!err->code || (err_is_retryable(err->code) && away_ms <= AWAY_MS)) &&
           !stop_wait(ASK_MS));
  *info = following.info;
  following_fini(&following, !has_ended);
  if (!err->code && !has_ended)
    err_set(err, ERR_CANCELLED, "interrupted");
  return err->code;
}

/* As it is where the text is a number, else as a string. */
static void print_value(FILE *line, const char *text) {
  json_t *value = json_loads(text, JSON_DECODE_ANY, NULL);
  if (json_is_number(value)) {
    fputs(text, line);
  } else {
    json_t *string = json_string(text);
    char *quoted = string ? json_dumps(string, JSON_ENCODE_ANY) : NULL;
    fputs(quoted ? quoted : "null", line);
    free(quoted);
    json_decref(string);
  }
  json_decref(value);
}

/* By hand, for a JSON library writes more digits of a number than it takes to tell it. Freed by the caller.
 */
/* The values of all objectives, where there are several. */
static void print_others(FILE *line, const Weir__SweepInfo *info, const Weir__SweepTrial *trial,
                         size_t rung) {
  char number[TEXT_NUMBER_SIZE];
  for (size_t o = 0; o < sweep_objectives(info) && sweep_objectives(info) > 1; o++) {
    const double *results = sweep_results(trial, o);
    fputs(o ? "," : ",\"objectives\":{", line);
    print_value(line, sweep_metric(info, o));
    fprintf(line, ":%s", results ? text_number(results[rung], number) : "null");
  }
  if (sweep_objectives(info) > 1)
    fputc('}', line);
}

static char *trial_line(const Weir__SweepInfo *info, const Weir__SweepTrial *trial) {
  const Weir__SweepSchedule *schedule = info->spec ? info->spec->schedule : NULL;
  char *text = NULL, number[TEXT_NUMBER_SIZE];
  size_t size;
  FILE *line = open_memstream(&text, &size);
  CHECK(line);
  fprintf(line, "{\"trial\":%u,\"state\":\"%s\",", trial->number, trial->state);
  if (trial->has_parent && schedule && trial->parent_rung < schedule->n_rungs)
    fprintf(line, "\"parent\":%u,\"parent_step\":%" PRIu64 ",", trial->parent,
            sweep_run_step_at(info, trial, trial->parent_rung + 1));
  fputs("\"values\":{", line);
  for (size_t i = 0; i < trial->n_values; i++) {
    fputs(i ? "," : "", line);
    print_value(line, trial->values[i]->path);
    fputc(':', line);
    print_value(line, trial->values[i]->value);
  }
  fputs("},\"results\":[", line);
  for (size_t i = 0; i < trial->n_results; i++) {
    fprintf(line, "%s{\"rung\":%zu", i ? "," : "", i);
    if (schedule && i < schedule->n_rungs)
      fprintf(line, ",\"steps\":%" PRIu64, sweep_run_step_at(info, trial, i + 1));
    if (schedule && i < schedule->n_rungs && sweep_unit_of(schedule) != SWEEP_STEPS)
      fprintf(line, ",\"%s\":%" PRIu64, schedule->unit, schedule->rungs[i]);
    fprintf(line, ",\"value\":%s", text_number(trial->results[i], number));
    print_others(line, info, trial, i);
    fputc('}', line);
  }
  fputc(']', line);
  if (sweep_objectives(info) > 1)
    fprintf(line, ",\"front\":%s", sweep_is_on_front(info, trial) ? "true" : "false");
  if (*trial->failure) {
    fputs(",\"failure\":", line);
    print_value(line, trial->failure);
  }
  fputs("}\n", line);
  fclose(line);
  return text;
}

int sweep_write_trials(const Weir__SweepInfo *info, const char *folder, struct err *err) {
  char *path = mem_printf("%s/trials.jsonl", folder);
  struct output_file file = {0};
  uint64_t offset = 0;
  if (output_file_open(&file, path, err) == 0) {
    for (size_t i = 0; i < info->n_trials && !err->code; i++) {
      char *line = trial_line(info, info->trials[i]);
      output_file_write(&file, offset, line, strlen(line), err);
      offset += strlen(line);
      free(line);
    }
    if (!err->code)
      output_file_commit(&file, err);
    output_file_close(&file);
  }
  free(path);
  return err->code;
}

/* A line for the trial, behind those for the ones that it goes on from. */
static void write_lineage(FILE *file, const Weir__SweepInfo *info, const Weir__SweepTrial *trial) {
  const Weir__SweepTrial *parent = trial->has_parent ? sweep_find_trial(info, trial->parent) : NULL;
  char values[SWEEP_VALUES_MAX];
  uint64_t step = 0;
  if (parent && parent->number < trial->number && trial->parent_rung < info->spec->schedule->n_rungs) {
    write_lineage(file, info, parent);
    step = sweep_run_step_at(info, trial, trial->parent_rung + 1);
  }
  fprintf(file, "# from step %" PRIu64 ", trial %u: %s\n", step, trial->number,
          sweep_values_text(trial, values));
}

/* The spec has the last values alone. */
static int append_lineage(const Weir__SweepInfo *info, const Weir__SweepTrial *best, const char *path,
                          struct err *err) {
  FILE *file = fopen(path, "ab");
  if (!file)
    return err_errno(err, errno, "cannot write '%s'", path);
  fprintf(file,
          "# The best trial's values changed on its way. A run goes that way that begins with the first\n"
          "# line's, and is forked at each other line's step: `weir fork RUN@STEP PATH=VALUE...`.\n");
  write_lineage(file, info, best);
  return fclose(file) ? err_errno(err, errno, "cannot write '%s'", path) : 0;
}

/* As long as the trial; in place of what the run spec says. Returns how many. */
static int length_settings(const Weir__SweepInfo *info, const Weir__SweepTrial *best,
                           const Weir__TrainSpec *train, char **out) {
  const Weir__SweepSchedule *schedule = info->spec->schedule;
  const bool is_by_epochs = sweep_unit_of(schedule) == SWEEP_EPOCHS;
  int n = 0;
  if (is_by_epochs ? train->has_steps : train->has_epochs)
    out[n++] = mem_strdup(is_by_epochs ? "train.steps=null" : "train.epochs=null");
  if (is_by_epochs)
    out[n++] = mem_printf("train.epochs=%" PRIu64, schedule->rungs[schedule->n_rungs - 1]);
  else
    out[n++] = mem_printf("train.steps=%" PRIu64, sweep_run_step_at(info, best, schedule->n_rungs));
  return n;
}

static int write_best_spec(const Weir__SweepInfo *info, const Weir__SweepTrial *best,
                           const struct sweep_submission *sweep, const char *path, struct err *err) {
  const Weir__SweepSchedule *schedule = info->spec->schedule;
  const struct submission *submission = &sweep->submission;
  char **settings = mem_new((best->n_values + 3) * sizeof *settings);
  char *model = sweep_submission_model(sweep, best);
  struct spec_source source = {.file = submission->path, .settings = (const char *const *)settings};
  int n = schedule->n_rungs ? length_settings(info, best, submission->spec->train, settings) : 0;
  for (size_t i = 0; i < best->n_values; i++)
    settings[n++] = mem_printf("%s=%s", best->values[i]->path, best->values[i]->value);
  settings[n++] = mem_printf("model.onnx=%s", model);
  source.n_settings = n;
  if (spec_source_write(&source, path, err) == 0 && best->has_parent)
    append_lineage(info, best, path, err);
  for (int i = 0; i < n; i++)
    free(settings[i]);
  free(settings);
  free(model);
  return err->code;
}

int sweep_write_best(struct connection *connection, const Weir__SweepInfo *info,
                     const struct sweep_submission *submission, const char *folder, struct err *err) {
  const Weir__SweepTrial *best = info->has_best ? sweep_find_trial(info, info->best) : NULL;
  Weir__WeightsRequest wanted = WEIR__WEIGHTS_REQUEST__INIT;
  struct download_export export = {.write = export_onnx};
  char *onnx = mem_printf("%s/best.onnx", folder), *yaml = mem_printf("%s/best.yaml", folder);
  if (best) {
    wanted.run = best->run;
    export.path = onnx;
    if (download_export(connection, &wanted, &export, err) == 0)
      write_best_spec(info, best, submission, yaml, err);
  }
  free(onnx);
  free(yaml);
  return err->code;
}
