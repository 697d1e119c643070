/* weir logs: the events of a run, as lines or for TensorBoard. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "client/cluster/follow.h"
#include "client/cluster/stop.h"
#include "client/cluster/stored.h"
#include "client/command.h"
#include "client/files/metrics.h"
#include "client/files/metrics_event.h"
#include "client/files/run_file.h"
#include "client/files/tensorboard.h"
#include "client/sweeps/sweep_logs.h"
#include "client/terminal/output.h"
#include "client/terminal/series_table.h"
#include "common/base/memory.h"
#include "common/base/message.h"
#include "storage/checkpoint/checkpoint_parts.h"

/* Metrics lines on stdout. */
struct lines {
  struct event_sink sink;
  struct event_filter filter;
};

/* What the command's argument names: one of them. */
struct named {
  Weir__RunInfo *run;
  Weir__SweepInfo *sweep; /* without its trials */
};

static int folder_logs(const struct args *args, struct err *err);
static int cluster_logs(const struct args *args, struct err *err);
static int check_options(const struct args *args, struct err *err);
static int points_print(const struct args *args, struct connection *connection, const char *run,
                        struct err *err);
static int lines_take(struct event_sink *sink, const Weir__RunEvent *event, struct err *err);
static int find_named(struct connection *connection, const char *name, struct named *named, struct err *err);
static int run_logs(const struct args *args, struct connection *connection, const Weir__RunInfo *run,
                    struct err *err);
static int events_write(const struct args *args, struct connection *connection, const char *run,
                        struct event_sink *sink, struct err *err);

static int logs_run(const struct args *args) {
  const char *what = args->arguments[0];
  struct err err = ERR_NONE;
  struct stat status;
  int exit_status = EXIT_DONE;
  stop_on_signals();
  if (check_options(args, &err))
    return command_fail(&err);
  if (stat(what, &status) == 0 && S_ISDIR(status.st_mode))
    folder_logs(args, &err);
  else if (checkpoint_is_run_id(what))
    exit_status = cluster_logs(args, &err);
  else
    err_set(&err, ERR_INVALID,
            "'%s' is neither a folder that `weir train` left nor the id of a run or a sweep", what);
  if (stop_cause() == STOP_SIGNAL)
    err_set(&err, ERR_CANCELLED, "interrupted; the same command goes on where this one ended");
  return err.code ? command_fail(&err) : exit_status;
}

/* The store knows when the run was submitted. */
static int folder_tensorboard(const char *folder, const char *logs, struct tensorboard **out,
                              struct err *err) {
  char *absolute = realpath(folder, NULL), *own = mem_printf("file://%s/store", absolute ? absolute : folder);
  Weir__RunInfo info = WEIR__RUN_INFO__INIT;
  struct run_file file = {0};
  struct stored_run run = {0};
  struct store *store = NULL;
  if (run_file_read(folder, &file, err) == 0 && store_open(file.store ? file.store : own, &store, err) == 0 &&
      stored_run_open(store, file.run, &run, err) == 0) {
    stored_run_info(&run, &info);
    tensorboard_open(logs, &info, NULL, out, err);
  }
  stored_run_fini(&run);
  store_close(store);
  run_file_fini(&file);
  free(own);
  free(absolute);
  return err->code;
}

static int folder_logs(const struct args *args, struct err *err) {
  const char *folder = args->arguments[0], *logs = args_text(args, "tensorboard");
  char *path = mem_printf("%s/metrics.jsonl", folder);
  struct lines lines = {.sink.take = lines_take};
  struct tensorboard *tensorboard = NULL;
  if (args_text(args, "points"))
    err_set(
        err, ERR_INVALID,
        "--points is for a run of a cluster, and '%s' is a folder: name the run, and with --coordinator the "
        "address that `weir train` printed",
        folder);
  else if (args_flag(args, "follow"))
    err_set(
        err, ERR_INVALID,
        "--follow is for a run of a cluster, and '%s' is a folder: name the run, and with --coordinator the "
        "address that `weir train` printed",
        folder);
  else if (!logs || folder_tensorboard(folder, logs, &tensorboard, err) == 0)
    metrics_events_read(path, logs ? tensorboard_sink(tensorboard) : &lines.sink, err);
  tensorboard_close(tensorboard);
  free(path);
  return err->code;
}

/* Returns the exit status, unless there is an error. */
static int cluster_logs(const struct args *args, struct err *err) {
  const char *folder = args_text(args, "tensorboard");
  struct connection connection = {0};
  struct named named = {0};
  int status = EXIT_DONE;
  if (connection_open(&connection, args->coordinator, &args->security, err) == 0 &&
      find_named(&connection, args->arguments[0], &named, err) == 0) {
    if (named.run)
      status = run_logs(args, &connection, named.run, err);
    else if (folder)
      sweep_logs(&connection, named.sweep->sweep, folder, args_flag(args, "follow"), err);
    else
      err_set(err, ERR_INVALID,
              "'%s' is a sweep, and the lines of its runs would be mixed: name one of its runs, or give "
              "--tensorboard DIR",
              named.sweep->sweep);
  }
  message_free(named.run);
  message_free(named.sweep);
  connection_close(&connection);
  return status;
}

/* A run by its id is that run. A prefix may be one of a sweep, and then of all its runs. */
static int find_named(struct connection *connection, const char *name, struct named *named, struct err *err) {
  Weir__RunRequest of_run = WEIR__RUN_REQUEST__INIT;
  Weir__GetSweepRequest of_sweep = WEIR__GET_SWEEP_REQUEST__INIT;
  struct err sweep_err = ERR_NONE;
  bool is_its_trial;
  of_run.run = of_sweep.sweep = (char *)name;
  of_sweep.first_trial = UINT32_MAX;
  connection_call(connection, RPC_GET_RUN, &of_run, (void **)&named->run, err);
  if (err->code == ERR_OK ? strcmp(named->run->run, name) == 0 : err_is_retryable(err->code))
    return err->code;
  if (connection_call(connection, RPC_GET_SWEEP, &of_sweep, (void **)&named->sweep, &sweep_err)) {
    if (err->code == ERR_NOT_FOUND && sweep_err.code != ERR_NOT_FOUND)
      *err = sweep_err;
    return err->code;
  }
  is_its_trial = named->run && strcmp(named->run->sweep, named->sweep->sweep) == 0;
  if (named->run && !is_its_trial)
    return err_set(err, ERR_INVALID, "'%s' is ambiguous: it may be the run %s or the sweep %s", name,
                   named->run->run, named->sweep->sweep);
  message_free(named->run);
  named->run = NULL;
  *err = ERR_NONE;
  return 0;
}

static int lines_take(struct event_sink *sink, const Weir__RunEvent *event, struct err *err) {
  struct lines *lines = (struct lines *)sink;
  char line[METRICS_LINE_MAX];
  if (!event_filter_take(&lines->filter, event) || metrics_line(event, line) == 0)
    return 0;
  if (fputs(line, stdout) == EOF || fflush(stdout))
    return err_errno(err, errno, "cannot write to standard output");
  return 0;
}

/* *page: with the trial that the run is of as its first; none where the run is of none. */
static int ask_trial(struct connection *connection, const Weir__RunInfo *run, Weir__SweepInfo **page,
                     struct err *err) {
  Weir__GetSweepRequest request = WEIR__GET_SWEEP_REQUEST__INIT;
  if (!*run->sweep)
    return 0;
  request.sweep = run->sweep;
  request.first_trial = run->trial;
  return connection_call(connection, RPC_GET_SWEEP, &request, (void **)page, err);
}

/* Curves are made by a coordinator, from the events so far. */
static int check_options(const struct args *args, struct err *err) {
  const char *other = args_flag(args, "follow")        ? "follow"
                      : args_text(args, "tensorboard") ? "tensorboard"
                                                       : NULL;
  bool has_points = args_text(args, "points") != NULL;
  if (has_points && other)
    return err_set(err, ERR_INVALID, "--points prints what there is: --%s is not for it", other);
  if (!has_points && (args_flag(args, "json") || args_text(args, "since")))
    return err_set(err, ERR_INVALID, "--%s is for --points", args_flag(args, "json") ? "json" : "since");
  return 0;
}

static int points_print(const struct args *args, struct connection *connection, const char *run,
                        struct err *err) {
  Weir__SeriesRequest request = WEIR__SERIES_REQUEST__INIT;
  Weir__Series *series = NULL;
  request.run = (char *)run;
  request.points = (uint32_t)args_count(args, "points");
  request.since = args_text(args, "since") ? (uint64_t)args_count(args, "since") : 0;
  if (connection_call(connection, RPC_GET_SERIES, &request, (void **)&series, err))
    return err->code;
  if (args_flag(args, "json"))
    output_json(stdout, &series->base);
  else
    series_print(stdout, series);
  message_free(series);
  return 0;
}

static int run_logs(const struct args *args, struct connection *connection, const Weir__RunInfo *run,
                    struct err *err) {
  const char *folder = args_text(args, "tensorboard");
  struct lines lines = {.sink.take = lines_take};
  struct tensorboard *tensorboard = NULL;
  Weir__SweepInfo *page = NULL;
  Weir__RunInfo *after = NULL;
  Weir__RunRequest request = WEIR__RUN_REQUEST__INIT;
  int status = EXIT_DONE;
  request.run = run->run;
  if (args_text(args, "points"))
    return points_print(args, connection, run->run, err);
  if (!folder)
    return events_write(args, connection, run->run, &lines.sink, err);
  if (ask_trial(connection, run, &page, err) == 0 &&
      tensorboard_open(folder, run, page && page->n_trials > 0 ? page->trials[0] : NULL, &tensorboard, err) ==
          0) {
    status = events_write(args, connection, run->run, tensorboard_sink(tensorboard), err);
    if (!err->code && connection_call(connection, RPC_GET_RUN, &request, (void **)&after, err) == 0)
      tensorboard_end(tensorboard, after->state, err);
  }
  tensorboard_close(tensorboard);
  message_free(after);
  message_free(page);
  return status;
}

/* Those that there are, or with --follow all. Returns the exit status, unless there is an error. */
static int events_write(const struct args *args, struct connection *connection, const char *run,
                        struct event_sink *sink, struct err *err) {
  struct follow_options options = {.connection = connection, .run = run, .sink = sink};
  struct follow_result result = {0};
  uint64_t next = 0;
  int status = EXIT_DONE;
  if (!args_flag(args, "follow")) {
    follow_past(connection, run, &next, sink, err);
    return status;
  }
  if (args_text(args, "tensorboard"))
    options.file = stdout;
  if (follow(&options, &result, err) == 0)
    status = follow_exit(&result);
  follow_result_fini(&result);
  return status;
}

static const struct option_def logs_options[] = {
    {.name = "tensorboard",
     .kind = OPTION_TEXT,
     .value = "DIR",
     .help = "write event files for TensorBoard into DIR instead: of each run a folder with `train` and "
             "`eval`, of a sweep's "
             "runs with the values of the trial, too. What DIR has already is not written again."},
    {.name = "points",
     .kind = OPTION_COUNT,
     .value = "N",
     .least = 1,
     .most = 2000,
     .help = "print the run's curves instead, each of at most N points: means, and the range of the losses "
             "where a point "
             "stands for several steps; and what happened to the run beside them."},
    {.name = "since",
     .kind = OPTION_COUNT,
     .value = "STEP",
     .most = OPTION_COUNT_MAX,
     .help = "with --points: from this step on, as fine as N points allow."},
    {.name = "json", .kind = OPTION_FLAG, .help = "with --points: print a JSON object, for programs."},
    {.name = "follow",
     .kind = OPTION_FLAG,
     .help =
         "go on with each new event until the run or the sweep has ended. Ctrl-C detaches; the run goes on."},
    {0}};

const struct command_def command_logs = {
    .name = "logs",
    .summary = "print a run's steps and evaluations, or write them for TensorBoard",
    .arguments = "RUN|SWEEP|DIR",
    .min_arguments = 1,
    .max_arguments = 1,
    .takes_coordinator = true,
    .description = "Prints the events of RUN (an id, a unique prefix of one, or a name: its newest run) so "
                   "far: a JSON object a line "
                   "for each step and evaluation, "
                   "and for the end, as in a metrics file. DIR is a folder that `weir train` left.\n"
                   "\n"
                   "With --tensorboard the losses, learning rate, samples a second and metrics become "
                   "scalars in DIR/RUN/train and "
                   "DIR/RUN/eval, by step. Show them with `tensorboard --logdir DIR`. Of SWEEP the runs of "
                   "all trials are written, and "
                   "TensorBoard's HParams page compares the trials. After an interruption, or for newer "
                   "events, give the same command again: "
                   "it goes on where the files end. Where a run was rolled back, they take back what they "
                   "had from that step on. Their "
                   "clock is the time of submission and the seconds that the steps have taken.",
    .options = logs_options,
    .if_failed = "with --follow: the run failed or was cancelled",
    .if_interrupted = "interrupted: detached",
    .examples = "weir logs fashion-mnist | jq -r 'select(.event == \"eval\") | .loss'\n"
                "weir logs fashion-mnist-k3f9a2 --tensorboard tb --follow\n"
                "weir logs fashion-mnist --points 20\n"
                "weir logs fashion-sweep --tensorboard tb && tensorboard --logdir tb\n",
    .run = logs_run,
};
