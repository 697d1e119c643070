/* Following a run to its end. */
#include "client/follow.h"

#include <inttypes.h>
#include <math.h>

#include "client/command.h"
#include "client/output.h"
#include "client/progress.h"
#include "client/stop.h"
#include "common/clock.h"

enum { RECONNECT_MS = 10000 };

/* What is known while following. */
struct following {
  const struct follow_options *options;
  struct progress *progress;
  uint64_t next; /* number of the next event */
  bool is_over;  /* the run has ended */
  double samples_per_second;
  struct err metrics_err;
};

static int follow_streams(struct following *following, struct err *err);
static int follow_stream(struct following *following, struct err *err);
static void follow_event(struct following *following, const Weir__RunEvent *event);
static bool state_is_final(Weir__RunState state);
static int follow_finish(const struct following *following, struct follow_result *result, struct err *err);
static int get_run(const struct follow_options *options, Weir__RunInfo **info, struct err *err);

int follow(const struct follow_options *options, struct follow_result *result, struct err *err) {
  struct following following = {.options = options, .samples_per_second = NAN};
  *result = (struct follow_result){0};
  if (get_run(options, &result->info, err))
    return err->code;
  following.progress = progress_start(options->file, result->info->run);
  follow_streams(&following, err);
  progress_stop(following.progress);
  if (err->code)
    return err->code;
  return follow_finish(&following, result, err);
}

/* Streams of events, each from where the one before broke, until the run is over. */
static int follow_streams(struct following *following, struct err *err) {
  uint64_t broken_ns = 0;
  int attempt = 0;
  while (!following->is_over) {
    uint64_t next = following->next;
    *err = ERR_NONE;
    follow_stream(following, err);
    if (following->is_over)
      break;
    if (stop_cause() != STOP_NONE)
      return err_set(err, ERR_CANCELLED, "interrupted");
    if (!err_is_retryable(err->code))
      return err->code;
    if (following->next != next || attempt == 0) {
      broken_ns = clock_now_ns();
      attempt = 0;
    }
    if (clock_now_ns() - broken_ns > RECONNECT_MS * UINT64_C(1000000)) {
      connection_explain(following->options->connection->channel, err);
      return err->code;
    }
    stop_wait(rpc_backoff_ms(attempt++));
  }
  *err = ERR_NONE;
  return ERR_OK;
}

/* One stream of events, until it ends. */
static int follow_stream(struct following *following, struct err *err) {
  Weir__WatchRequest request = WEIR__WATCH_REQUEST__INIT;
  struct rpc_reader *reader = rpc_reader_open(following->options->connection->channel, RPC_WATCH, -1);
  Weir__RunEvent *event = NULL;
  stop_cancels(reader);
  request.run = (char *)following->options->run;
  request.from = following->next;
  if (rpc_reader_send(reader, &request, err) == 0)
    rpc_reader_half_close(reader);
  *err = ERR_NONE; /* a failed send shows in the stream's end */
  while (rpc_reader_next(reader, (void **)&event, err) == 0 && event) {
    follow_event(following, event);
    weir__run_event__free_unpacked(event, NULL);
    event = NULL;
  }
  stop_cancels(NULL);
  rpc_reader_close(reader);
  return err->code;
}

static void follow_event(struct following *following, const Weir__RunEvent *event) {
  following->next = event->number + 1;
  if (event->event_case == WEIR__RUN_EVENT__EVENT_DONE) {
    following->is_over = true;
    following->samples_per_second = event->done->samples_per_second;
  }
  if (event->event_case == WEIR__RUN_EVENT__EVENT_INFO && state_is_final(event->info->state))
    following->is_over = true;
  progress_event(following->progress, event);
  for (int i = 0; i < FOLLOW_METRICS_MAX; i++)
    if (following->options->metrics[i])
      metrics_write(following->options->metrics[i], event, &following->metrics_err);
}

static bool state_is_final(Weir__RunState state) {
  return state == WEIR__RUN_STATE__DONE || state == WEIR__RUN_STATE__FAILED ||
         state == WEIR__RUN_STATE__CANCELLED;
}

static int follow_finish(const struct following *following, struct follow_result *result, struct err *err) {
  follow_result_fini(result);
  if (get_run(following->options, &result->info, err))
    return err->code;
  result->samples_per_second = following->samples_per_second;
  if (!state_is_final(result->info->state))
    return err_set(err, ERR_INTERNAL, "the coordinator ended the events of run '%s', which has not ended",
                   result->info->run);
  if (following->metrics_err.code)
    *err = following->metrics_err;
  return err->code;
}

static int get_run(const struct follow_options *options, Weir__RunInfo **info, struct err *err) {
  Weir__RunRequest request = WEIR__RUN_REQUEST__INIT;
  request.run = (char *)options->run;
  return connection_call(options->connection, RPC_GET_RUN, &request, (void **)info, err);
}

void follow_result_fini(struct follow_result *result) {
  if (result->info)
    weir__run_info__free_unpacked(result->info, NULL);
  *result = (struct follow_result){0};
}

int follow_exit(const struct follow_result *result) {
  const Weir__RunInfo *info = result->info;
  struct err err;
  if (info->state == WEIR__RUN_STATE__DONE)
    return EXIT_DONE;
  if (info->state == WEIR__RUN_STATE__CANCELLED)
    err_set(&err, ERR_INTERNAL, "run '%s' was cancelled at step %" PRIu64, info->run, info->step);
  else
    err_set(&err, info->bad_input ? ERR_INVALID : ERR_INTERNAL, "run '%s' failed: %s", info->run,
            info->message);
  return command_fail(&err);
}

void follow_summary(FILE *file, const struct follow_result *result) {
  const Weir__RunInfo *info = result->info;
  char text[OUTPUT_TEXT_MAX];
  fprintf(file, "run        %s\n", info->run);
  if (!isnan(info->accuracy))
    fprintf(file, "accuracy   %s\n", output_percent(info->accuracy, text));
  fprintf(file, "loss       %s\n", output_loss(isnan(info->eval_loss) ? info->loss : info->eval_loss, text));
  fprintf(file, "steps      %s\n", output_count((double)info->steps, text));
  fprintf(file, "speed      %s samples/s\n", output_count(result->samples_per_second, text));
  if (info->train_seconds < 60)
    fprintf(file, "time       %.1f s\n", info->train_seconds);
  else
    fprintf(file, "time       %s\n", output_duration(info->train_seconds, text));
  fprintf(file, "sha256     %s\n", info->weights_sha256);
}
