/* Following a run to its end. */
#include "client/cluster/follow.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "client/cluster/stop.h"
#include "client/command.h"
#include "client/terminal/output.h"
#include "client/terminal/progress.h"
#include "common/base/clock.h"
#include "common/base/message.h"

enum { RECONNECT_MS = 60000, SILENT_MS = 1000 };

/* What is known while following. */
struct following {
  const struct follow_options *options;
  struct follow_result *result;
  struct progress *progress;
  struct follow_mark own_mark, *mark;
  uint64_t until_ns;  /* 0: no deadline */
  bool is_ended;      /* an event says so */
  bool is_paused;     /* that of a pause, as of then: the run may have been resumed since */
  struct err refusal; /* of the last of all workers, or of the sink */
  struct err metrics_err;
};

/* Since when nothing has come. */
struct silence {
  uint64_t begun_ns;
  int attempt; /* 0: there is none */
  bool is_told;
};

static int follow_streams(struct following *following, struct err *err);
static int follow_stream(struct following *following, struct err *err);
static void follow_event(struct following *following, const Weir__RunEvent *event);
static void look_for_workers(struct following *following);
static bool follow_is_over(struct following *following, struct err *err);
static bool silence_goes_on(struct following *following, struct silence *silence, struct err *err);
static bool state_is_end(const struct follow_options *options, Weir__RunState state);
static int get_run(const struct follow_options *options, Weir__RunInfo **info, struct err *err);

int follow(const struct follow_options *options, struct follow_result *result, struct err *err) {
  struct following following = {.options = options, .result = result};
  *result = (struct follow_result){.samples_per_second = NAN};
  following.mark = options->mark ? options->mark : &following.own_mark;
  if (options->deadline_ms > 0)
    following.until_ns = clock_now_ns() + (uint64_t)options->deadline_ms * UINT64_C(1000000);
  if (get_run(options, &result->info, err))
    return err->code;
  if (options->file)
    following.progress = progress_start(options->file, result->info);
  follow_streams(&following, err);
  progress_stop(following.progress);
  if (err->code == ERR_OK)
    *err = following.metrics_err;
  return err->code;
}

/* Streams of events, each from where the one before ended, until the run is over. */
static int follow_streams(struct following *following, struct err *err) {
  struct silence silence = {0};
  for (;;) {
    uint64_t next = following->mark->next;
    *err = ERR_NONE;
    follow_stream(following, err);
    if (stop_cause() != STOP_NONE)
      return err_set(err, ERR_CANCELLED, "interrupted");
    if (following->refusal.code)
      return (*err = following->refusal).code;
    if (err->code == ERR_OK && follow_is_over(following, err))
      return ERR_OK;
    if (following->until_ns > 0 && clock_now_ns() >= following->until_ns)
      return err_set(err, ERR_TIMEOUT, "run '%s' goes on", following->options->run);
    if (err->code && !err_is_retryable(err->code))
      return err->code;
    if (following->mark->next != next)
      silence = (struct silence){0};
    else if (!silence_goes_on(following, &silence, err))
      return err->code;
  }
}

/* One stream of events, until it ends or an event says that the run has ended. The coordinator ends it where
   a run has: what says that it failed or was cancelled may be long ago. */
static int follow_stream(struct following *following, struct err *err) {
  Weir__WatchRequest request = WEIR__WATCH_REQUEST__INIT;
  struct connection *connection = following->options->connection;
  int deadline_ms = -1;
  struct rpc_reader *reader;
  Weir__RunEvent *event = NULL;
  if (following->until_ns > 0) {
    uint64_t now_ns = clock_now_ns();
    deadline_ms = following->until_ns > now_ns ? (int)((following->until_ns - now_ns) / 1000000) + 1 : 1;
  }
  connection_find_leader(connection);
  reader = rpc_reader_open(connection->channel, RPC_WATCH, deadline_ms);
  stop_cancels(reader);
  request.run = following->result->info ? following->result->info->run : (char *)following->options->run;
  request.from = following->mark->next;
  if (rpc_reader_send(reader, &request, err) == 0)
    rpc_reader_half_close(reader);
  *err = ERR_NONE; /* a failed send shows in the stream's end */
  following->is_ended = following->is_paused = false;
  while (!following->is_ended && rpc_reader_next(reader, (void **)&event, err) == 0 && event) {
    follow_event(following, event);
    weir__run_event__free_unpacked(event, NULL);
    event = NULL;
  }
  stop_cancels(NULL);
  rpc_reader_close(reader);
  return err->code;
}

static void follow_event(struct following *following, const Weir__RunEvent *event) {
  following->mark->next = event->number + 1;
  if (event->event_case == WEIR__RUN_EVENT__EVENT_DONE) {
    following->is_ended = true;
    following->result->samples_per_second = event->done->samples_per_second;
  }
  if (event->event_case == WEIR__RUN_EVENT__EVENT_INFO && following->options->ends_when_paused &&
      event->info->state == WEIR__RUN_STATE__PAUSED)
    following->is_ended = following->is_paused = true;
  if (event->event_case == WEIR__RUN_EVENT__EVENT_INFO && following->options->all_workers > 0 &&
      event->info->state == WEIR__RUN_STATE__LOADING)
    look_for_workers(following);
  for (int i = 0; i < FOLLOW_METRICS_MAX; i++)
    if (following->options->metrics[i])
      metrics_write(following->options->metrics[i], event, &following->metrics_err);
  if (following->options->sink &&
      following->options->sink->take(following->options->sink, event, &following->refusal))
    following->is_ended = true;
  if (event_filter_take(&following->mark->filter, event) && following->progress)
    progress_event(following->progress, event);
}

/* A run that every worker has refused would wait for ever where no other can come. */
static void look_for_workers(struct following *following) {
  Weir__ListWorkersRequest request = WEIR__LIST_WORKERS_REQUEST__INIT;
  Weir__ListWorkersReply *reply = NULL;
  Weir__RunInfo *info = NULL;
  struct err err = ERR_NONE;
  size_t refused = 0;
  if (connection_call(following->options->connection, RPC_LIST_WORKERS, &request, (void **)&reply, &err))
    return; /* what troubles the coordinator shows elsewhere */
  while (refused < reply->n_workers && (strcmp(reply->workers[refused]->state, "refused") == 0 ||
                                        strcmp(reply->workers[refused]->state, "quarantined") == 0))
    refused++;
  /* A run that the last refusal ended has ended by now, and its own events say so once the store has that. */
  if (refused == reply->n_workers && refused >= (size_t)following->options->all_workers &&
      get_run(following->options, &info, &err) == ERR_OK && info->state == WEIR__RUN_STATE__LOADING &&
      !info->stop_pending) {
    err_set(&following->refusal, ERR_INVALID, "run '%s': %s refused: %s", following->result->info->run,
            reply->workers[0]->id, reply->workers[0]->message);
    following->is_ended = true;
  }
  message_free(info);
  weir__list_workers_reply__free_unpacked(reply, NULL);
}

/* Asks for the run's present state. */
static bool follow_is_over(struct following *following, struct err *err) {
  Weir__RunInfo *info = NULL;
  if (get_run(following->options, &info, err))
    return false;
  weir__run_info__free_unpacked(following->result->info, NULL);
  following->result->info = info;
  if (state_is_end(following->options,
                   info->state)) /* the events of one that was resumed are still to come */
    return info->state == WEIR__RUN_STATE__PAUSED || !following->is_paused;
  if (info->state != WEIR__RUN_STATE__PAUSED && !following->is_ended)
    err_set(err, ERR_UNAVAILABLE, "the coordinator ended the events of run '%s', which has not ended",
            info->run);
  return false;
}

/* A pause; false when there were too many. A run that is paused may be so for ever. */
static bool silence_goes_on(struct following *following, struct silence *silence, struct err *err) {
  uint64_t now_ns = clock_now_ns();
  if (silence->attempt == 0 || err->code == ERR_OK)
    silence->begun_ns = now_ns;
  if (now_ns - silence->begun_ns > RECONNECT_MS * UINT64_C(1000000)) {
    connection_explain(following->options->connection, err);
    return false;
  }
  if (now_ns - silence->begun_ns > SILENT_MS * UINT64_C(1000000) && !silence->is_told) {
    if (following->progress)
      progress_note(following->progress, "the coordinator does not answer; trying again for a minute");
    silence->is_told = true;
  }
  stop_wait(rpc_backoff_ms(silence->attempt++));
  return true;
}

static bool state_is_end(const struct follow_options *options, Weir__RunState state) {
  return follow_has_result(state) || state == WEIR__RUN_STATE__FAILED ||
         state == WEIR__RUN_STATE__CANCELLED ||
         (options->ends_when_paused && state == WEIR__RUN_STATE__PAUSED);
}

bool follow_has_result(Weir__RunState state) {
  return state == WEIR__RUN_STATE__DONE || state == WEIR__RUN_STATE__STOPPED;
}

static int get_run(const struct follow_options *options, Weir__RunInfo **info, struct err *err) {
  Weir__RunRequest request = WEIR__RUN_REQUEST__INIT;
  request.run = (char *)options->run;
  return connection_call(options->connection, RPC_GET_RUN, &request, (void **)info, err);
}

int follow_past(struct connection *connection, const char *run, uint64_t *next, struct event_sink *sink,
                struct err *err) {
  Weir__WatchRequest request = WEIR__WATCH_REQUEST__INIT;
  struct err sink_err = ERR_NONE;
  struct rpc_reader *reader;
  Weir__RunEvent *event = NULL;
  connection_find_leader(connection);
  reader = rpc_reader_open(connection->channel, RPC_WATCH, -1);
  stop_cancels(reader);
  request.run = (char *)run;
  request.from = *next;
  request.only_past = true;
  if (rpc_reader_send(reader, &request, err) == 0)
    rpc_reader_half_close(reader);
  *err = ERR_NONE; /* a failed send shows in the stream's end */
  while (!sink_err.code && rpc_reader_next(reader, (void **)&event, err) == 0 && event) {
    *next = event->number + 1;
    sink->take(sink, event, &sink_err);
    weir__run_event__free_unpacked(event, NULL);
    event = NULL;
  }
  stop_cancels(NULL);
  rpc_reader_close(reader);
  if (sink_err.code)
    *err = sink_err;
  else if (stop_cause() != STOP_NONE)
    err_set(err, ERR_CANCELLED, "interrupted");
  else
    connection_explain(connection, err);
  return err->code;
}

void follow_result_fini(struct follow_result *result) {
  if (result->info)
    weir__run_info__free_unpacked(result->info, NULL);
  *result = (struct follow_result){0};
}

int follow_exit(const struct follow_result *result) {
  const Weir__RunInfo *info = result->info;
  struct err err;
  if (follow_has_result(info->state))
    return EXIT_DONE;
  if (info->state == WEIR__RUN_STATE__PAUSED)
    err_set(&err, ERR_INTERNAL, "run '%s' was paused at step %" PRIu64, info->run, info->step);
  else if (info->state == WEIR__RUN_STATE__CANCELLED)
    err_set(&err, ERR_INTERNAL, "run '%s' was cancelled at step %" PRIu64, info->run, info->step);
  else
    err_set(&err, info->bad_input ? ERR_INVALID : ERR_INTERNAL, "run '%s' failed: %s", info->run,
            info->message);
  return command_fail(&err);
}

int follow_command(struct connection *connection, const char *run, FILE *file, const char *metrics) {
  struct follow_options options = {.connection = connection, .run = run, .file = file};
  struct follow_result result = {0};
  struct err err = ERR_NONE;
  int status;
  if ((metrics && metrics_open(metrics, false, &options.metrics[0], &err)) ||
      follow(&options, &result, &err)) {
    if (stop_cause() == STOP_SIGNAL)
      err_set(&err, ERR_CANCELLED, "no longer following; the run goes on: weir watch %s", run);
    status = command_fail(&err);
  } else if ((status = follow_exit(&result)) == EXIT_DONE) {
    follow_summary(file, &result);
  }
  metrics_close(options.metrics[0]);
  follow_result_fini(&result);
  return status;
}

void follow_summary(FILE *file, const struct follow_result *result) {
  const Weir__RunInfo *info = result->info;
  char text[OUTPUT_TEXT_MAX];
  output_clean(info->message);
  fprintf(file, "run        %s\n", info->run);
  if (!isnan(info->accuracy))
    fprintf(file, "accuracy   %s\n", output_percent(info->accuracy, text));
  for (size_t m = 0; m < info->n_metrics; m++)
    if (output_metric(info->metrics[m], text))
      fprintf(file, "%-10s %s\n", info->metrics[m]->name, text);
  fprintf(file, "loss       %s\n", output_loss(isnan(info->eval_loss) ? info->loss : info->eval_loss, text));
  fprintf(file, "steps      %s", output_count((double)info->step, text));
  if (info->state == WEIR__RUN_STATE__STOPPED)
    fprintf(file, " of %s, stopped", output_count((double)info->steps, text));
  else if (info->step < info->steps)
    fprintf(file, " of %s%s%s", output_count((double)info->steps, text), info->message[0] ? ", " : "",
            info->message);
  fputc('\n', file);
  fprintf(file, "speed      %s samples/s\n", output_count(result->samples_per_second, text));
  if (info->train_seconds < 60)
    fprintf(file, "time       %.1f s\n", info->train_seconds);
  else
    fprintf(file, "time       %s\n", output_duration(info->train_seconds, text));
  fprintf(file, "sha256     %s\n", info->weights_sha256);
}
