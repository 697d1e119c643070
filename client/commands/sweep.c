/* weir sweep: a search over the keys of a run spec. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cluster/download.h"
#include "client/cluster/stop.h"
#include "client/commands/sweep.h"
#include "client/sweeps/sweep_follow.h"
#include "client/sweeps/sweep_objectives.h"
#include "client/sweeps/sweep_private.h"
#include "client/sweeps/sweep_table.h"
#include "client/terminal/output.h"
#include "common/base/message.h"
#include "common/base/text.h"
#include "common/sweep/sweep.h"

/* What it would begin with. */
static int dry_run(const struct sweep_submission *submission, struct err *err) {
  const Weir__RunSpec *base = submission->submission.spec;
  const Weir__SweepSpec *spec = submission->spec;
  Weir__SweepRecord *record;
  struct sweep *sweep;
  if (sweep_new(spec, base, &sweep, err))
    return err->code;
  sweep_set_models(sweep, submission->models);
  if (spec->repeats == 1)
    printf("%u trials at a time, of %u microbatches each: at most %u executors help\n", spec->concurrency,
           base->train->microbatches, spec->concurrency * base->train->microbatches);
  else
    printf("%u trials at a time, each of %u runs, of %u microbatches each: at most %u executors help\n",
           spec->concurrency, spec->repeats, base->train->microbatches,
           spec->concurrency * spec->repeats * base->train->microbatches);
  if (sweep->is_by_arrival)
    printf("order: arrival: the trials depend on which results come first, so another time they will be "
           "others\n");
  if (spec->n_from > 0)
    printf("from: only the cluster knows what the searcher learns of other sweeps, so the trials may be "
           "others\n");
  printf("the first trials:\n");
  while (!err->code && sweep_next(sweep, &record) == SWEEP_DECIDED) {
    const Weir__SweepSuggestion *suggestion = record->suggestion;
    for (size_t i = 0; suggestion && i < suggestion->n_values; i++)
      printf("%s%s=%s", i ? " " : "  ", suggestion->values[i]->path, suggestion->values[i]->value);
    printf("%s", suggestion ? "\n" : "");
    sweep_apply(sweep, record, err);
    message_free(record);
  }
  sweep_free(sweep);
  return err->code;
}

static int follow(struct connection *connection, const char *id, FILE *file, struct err *err) {
  Weir__SweepInfo *info;
  if (sweep_follow(connection, id, file, &info, err) == 0) {
    fprintf(file, "\n");
    sweep_print(file, info);
    if (!info->has_best)
      err_set(err, ERR_INTERNAL, "sweep '%s' has ended, and no trial has a result", info->sweep);
  }
  message_free(info);
  return err->code;
}

static int submit(const struct args *args, const struct sweep_submission *sweep, struct err *err) {
  struct connection connection = {0};
  char *id = NULL;
  if (connection_open(&connection, args->coordinator, &args->security, err) == 0 &&
      sweep_submission_send(sweep, &connection, &id, err) == 0) {
    printf("%s\n", id);
    fflush(stdout);
    if (args_flag(args, "follow"))
      follow(&connection, id, stderr, err);
  }
  free(id);
  connection_close(&connection);
  return err->code;
}

static int sweep_run(const struct args *args) {
  const struct spec_source source = submission_source(args);
  struct sweep_submission sweep = {0};
  struct err err = ERR_NONE;
  stop_on_signals();
  signal(SIGPIPE, SIG_IGN);
  if (sweep_submission_load(&sweep, &source, &err) == 0) {
    if (args_flag(args, "dry-run"))
      dry_run(&sweep, &err);
    else if (args->has_coordinator)
      submit(args, &sweep, &err);
    else
      sweep_private_run(args, &sweep, &err);
  }
  sweep_submission_fini(&sweep);
  return err.code ? command_fail(&err) : EXIT_DONE;
}

int sweep_show(const struct args *args, bool has_records, sweep_shown *shown) {
  struct connection connection = {0};
  Weir__SweepInfo *info = NULL;
  struct err err = ERR_NONE;
  stop_on_signals();
  if (connection_open(&connection, args->coordinator, &args->security, &err) == 0 &&
      sweep_ask(&connection, args->arguments[0], has_records, &info, &err) == 0)
    shown(args, &connection, info, &err);
  message_free(info);
  connection_close(&connection);
  return err.code ? command_fail(&err) : EXIT_DONE;
}

static int show_status(const struct args *args, struct connection *connection, Weir__SweepInfo *info,
                       struct err *err) {
  (void)connection;
  (void)err;
  if (args_flag(args, "json"))
    output_json(stdout, &info->base);
  else if (args_flag(args, "csv"))
    sweep_print_csv(stdout, info);
  else
    sweep_print(stdout, info);
  return 0;
}

static int list(const struct args *args) {
  Weir__ListSweepsRequest request = WEIR__LIST_SWEEPS_REQUEST__INIT;
  Weir__ListSweepsReply *reply = NULL;
  struct connection connection = {0};
  struct err err = ERR_NONE;
  if (connection_open(&connection, args->coordinator, &args->security, &err) == 0 &&
      connection_call(&connection, RPC_LIST_SWEEPS, &request, (void **)&reply, &err) == 0) {
    if (args_flag(args, "json"))
      output_json_list(stdout, (ProtobufCMessage **)reply->sweeps, reply->n_sweeps);
    else
      sweeps_print(stdout, reply);
  }
  message_free(reply);
  connection_close(&connection);
  return err.code ? command_fail(&err) : EXIT_DONE;
}

static int status_run(const struct args *args) {
  struct err err = ERR_NONE;
  if (args_flag(args, "csv") && args_flag(args, "json"))
    err_set(&err, ERR_INVALID, "sweep status: --json or --csv: choose one");
  else if (args_flag(args, "csv") && args->n_arguments == 0)
    err_set(&err, ERR_INVALID, "sweep status: --csv has the trials of a sweep: name one");
  if (err.code)
    return command_fail(&err);
  return args->n_arguments == 0 ? list(args) : sweep_show(args, args_flag(args, "json"), show_status);
}

static int watch_run(const struct args *args) {
  struct connection connection = {0};
  struct err err = ERR_NONE;
  stop_on_signals();
  if (connection_open(&connection, args->coordinator, &args->security, &err) == 0)
    follow(&connection, args->arguments[0], stdout, &err);
  connection_close(&connection);
  return err.code ? command_fail(&err) : EXIT_DONE;
}

/* NULL with an error where there is none yet. */
static const Weir__SweepTrial *find_best(const Weir__SweepInfo *info, struct err *err) {
  const Weir__SweepTrial *best = info->has_best ? sweep_find_trial(info, info->best) : NULL;
  if (!best)
    err_set(err, ERR_NOT_FOUND, "no trial of sweep '%s' has a result yet", info->sweep);
  return best;
}

/* Of several objectives, where none of them is named. */
static int show_front(const struct args *args, const Weir__SweepInfo *info) {
  ProtobufCMessage **trials = mem_new(info->n_front * sizeof *trials);
  size_t n = 0;
  for (size_t i = 0; i < info->n_trials; i++)
    if (n < info->n_front && sweep_is_on_front(info, info->trials[i]))
      trials[n++] = &info->trials[i]->base;
  if (args_flag(args, "json"))
    output_json_list(stdout, trials, n);
  else
    sweep_print_front(stdout, info);
  free(trials);
  return 0;
}

static int show_best(const struct args *args, struct connection *connection, Weir__SweepInfo *info,
                     struct err *err) {
  const char *by = args_text(args, "objective");
  const Weir__SweepTrial *best = sweep_by_objective(info, by, err) ? NULL : find_best(info, err);
  char number[TEXT_NUMBER_SIZE];
  (void)connection;
  if (!best)
    return err->code;
  if (info->n_front && !by)
    return show_front(args, info);
  if (args_flag(args, "json")) {
    output_json(stdout, &best->base);
    return 0;
  }
  printf("trial  %u\nrun    %s\n", best->number, best->run);
  if (sweep_steps_at(info, best->n_results))
    printf("step   %" PRIu64 "\n", sweep_run_step_at(info, best, best->n_results));
  printf("%s  %s\n", info->spec && info->spec->objective ? info->spec->objective->metric : "value",
         text_number(info->best_value, number));
  for (size_t i = 0; i < best->n_values; i++) {
    output_clean(best->values[i]->value);
    printf("%s=%s\n", best->values[i]->path, best->values[i]->value);
  }
  return 0;
}

static int best_run(const struct args *args) {
  return sweep_show(args, false, show_best);
}

static int export_best(const struct args *args, struct connection *connection, Weir__SweepInfo *info,
                       struct err *err) {
  const Weir__SweepTrial *best =
      sweep_by_objective(info, args_text(args, "objective"), err) ? NULL : find_best(info, err);
  Weir__WeightsRequest wanted = WEIR__WEIGHTS_REQUEST__INIT;
  struct download_export export = {.path = args_text(args, "output")};
  const char *dot = export.path ? strrchr(export.path, '.') : NULL;
  if (!best)
    return err->code;
  if (dot && strcmp(dot, ".onnx") == 0)
    export.write = export_onnx;
  else if (dot && strcmp(dot, ".safetensors") == 0)
    export.write = export_safetensors;
  else
    return err_set(err, ERR_INVALID,
                   "sweep export: name the file to write with -o FILE.onnx or -o FILE.safetensors");
  wanted.run = best->run;
  if (download_export(connection, &wanted, &export, err) == 0)
    printf("%s: trial %u, run %s\n", export.path, best->number, best->run);
  return err->code;
}

static int export_run(const struct args *args) {
  return sweep_show(args, false, export_best);
}

static int stop_run(const struct args *args) {
  Weir__SweepRequest request = WEIR__SWEEP_REQUEST__INIT;
  struct connection connection = {0};
  Weir__SweepInfo *info = NULL;
  struct err err = ERR_NONE;
  request.sweep = (char *)args->arguments[0];
  if (connection_open(&connection, args->coordinator, &args->security, &err) == 0 &&
      connection_call(&connection, RPC_STOP_SWEEP, &request, (void **)&info, &err) == 0)
    sweep_print(stdout, info);
  message_free(info);
  connection_close(&connection);
  return err.code ? command_fail(&err) : EXIT_DONE;
}

static const struct option_def status_options[] = {
    {.name = "json",
     .kind = OPTION_FLAG,
     .help = "JSON, for programs: an object, with the sweep's log; without SWEEP a list of all sweeps."},
    {.name = "csv", .kind = OPTION_FLAG, .help = "a line of CSV for each trial, with all its values."},
    {0}};

static const struct option_def best_options[] = {
    {.name = "objective",
     .kind = OPTION_TEXT,
     .value = "METRIC",
     .help = "of several objectives: the best trial by this one, in place of the front."},
    {.name = "json",
     .kind = OPTION_FLAG,
     .help = "one JSON object, for programs; of a front a list of them."},
    {0}};

static const struct option_def export_options[] = {{.name = "output",
                                                    .letter = 'o',
                                                    .kind = OPTION_TEXT,
                                                    .value = "FILE.onnx|FILE.safetensors",
                                                    .help = "the file to write."},
                                                   {.name = "objective",
                                                    .kind = OPTION_TEXT,
                                                    .value = "METRIC",
                                                    .help =
                                                        "of several objectives: the best trial by this one. "
                                                        "Default: the first."},
                                                   {0}};

static const struct command_def command_sweep_status = {
    .name = "status",
    .group = "sweep",
    .summary = "the trials of a sweep, or all sweeps",
    .arguments = "[SWEEP]",
    .max_arguments = 1,
    .takes_coordinator = true,
    .description = "Shows how far SWEEP (an id or a unique prefix of one) is, its best trial, and a row for "
                   "each trial, the best first: its result at each rung, and its values of the keys in which "
                   "trials differ. Without SWEEP: a row for each sweep of the cluster.",
    .options = status_options,
    .examples = "weir sweep status\nweir sweep status lenet-search --json\nweir sweep status lenet-search "
                "--csv > trials.csv\n",
    .run = status_run,
};

static const struct command_def command_sweep_watch = {
    .name = "watch",
    .group = "sweep",
    .summary = "follow a sweep to its end",
    .arguments = "SWEEP",
    .min_arguments = 1,
    .max_arguments = 1,
    .takes_coordinator = true,
    .description =
        "On a terminal it shows live how far SWEEP is: the budget, the best trial, the trials that "
        "run, and how many have reached each rung. Elsewhere it prints a line for each result, first for "
        "those that are there. At the end it prints the table of `weir sweep status`. "
        "Ctrl-C detaches; the sweep goes on.",
    .if_failed = "the sweep has ended without a result",
    .if_interrupted = "detached",
    .examples = "weir sweep watch lenet-search\n",
    .run = watch_run,
};

static const struct command_def command_sweep_best = {
    .name = "best",
    .group = "sweep",
    .summary = "the best trial of a sweep so far",
    .arguments = "SWEEP",
    .min_arguments = 1,
    .max_arguments = 1,
    .takes_coordinator = true,
    .description =
        "Prints the best trial's number, its run, its result, and its values of the keys. The best "
        "trial is the one with the best result among those that have reached the highest rung. Of several "
        "objectives it prints the front: the trials for which no other one there is better in one objective "
        "and worse in none.",
    .options = best_options,
    .examples = "weir sweep best lenet-search\n",
    .run = best_run,
};

static const struct command_def command_sweep_export = {
    .name = "export",
    .group = "sweep",
    .summary = "the best trial's weights as a file",
    .arguments = "SWEEP",
    .min_arguments = 1,
    .max_arguments = 1,
    .takes_coordinator = true,
    .description = "Writes the model with the weights of the best trial's newest checkpoint, as `weir "
                   "export` does.",
    .options = export_options,
    .examples = "weir sweep export lenet-search -o best.onnx\n",
    .run = export_run,
};

static const struct command_def command_sweep_stop = {
    .name = "stop",
    .group = "sweep",
    .summary = "end a sweep",
    .arguments = "SWEEP",
    .min_arguments = 1,
    .max_arguments = 1,
    .takes_coordinator = true,
    .description =
        "Ends SWEEP: its trials that are under way are cancelled, and no other begins. Results and "
        "checkpoints stay.",
    .examples = "weir sweep stop lenet-search\n",
    .run = stop_run,
};

static const struct command_def *const subcommands[] = {
    &command_sweep_status, &command_sweep_watch,      &command_sweep_best,
    &command_sweep_export, &command_sweep_importance, &command_sweep_stop,
    &command_sweep_extend, &command_sweep_delete,     NULL};

static const struct option_def sweep_options[] = {
    {.name = "dry-run",
     .kind = OPTION_FLAG,
     .help = "check everything and print the first trials; nothing is started."},
    {.name = "follow", .kind = OPTION_FLAG, .help = "on a cluster: stay, and show the sweep on stderr."},
    {.name = "workers",
     .kind = OPTION_COUNT,
     .value = "N",
     .least = 1,
     .most = 256,
     .help = "worker processes of a private cluster. Default: 1."},
    {.name = "servers",
     .kind = OPTION_COUNT,
     .value = "N",
     .fallback = "1",
     .least = 1,
     .most = 256,
     .help = "parameter server processes of a private cluster."},
    {.name = "threads",
     .kind = OPTION_COUNT,
     .value = "N",
     .least = 1,
     .most = 1024,
     .help = "executors of each worker. Default: this machine's cores, shared out among the workers."},
    {.name = "device",
     .kind = OPTION_TEXT,
     .value = "DEVICE",
     .help = "what the workers compute on, as of `weir train`."},
    {.name = "data-root",
     .kind = OPTION_TEXT,
     .value = "DIR",
     .help = "the run spec's data.root lies below this folder, or is joined to it if it is relative. "
             "Default: its data.root itself, or / where that is relative."},
    {.name = "out",
     .kind = OPTION_TEXT,
     .value = "DIR",
     .help = "where the results go. Default: weir-out/NAME, after the sweep's name."},
    {.name = "sockets",
     .kind = OPTION_FLAG,
     .help = "the processes of a private cluster listen at sockets, as of `weir train`."},
    {.name = "resume",
     .kind = OPTION_FLAG,
     .help = "go on with the sweep that --out holds, also if it has ended and SPEC has a larger budget now."},
    {.name = "force", .kind = OPTION_FLAG, .help = "replace the run or sweep that --out holds."},
    {0}};

const struct command_def command_sweep = {
    .name = "sweep",
    .summary = "search over the keys of a spec, by many runs",
    .arguments = "SPEC [PATH=VALUE]...",
    .min_arguments = 1,
    .max_arguments = ARGUMENTS_MAX,
    .takes_coordinator = true,
    .without_coordinator = "none: a private cluster is started",
    .description =
        "SPEC is a sweep spec: it names a run spec, the keys to vary, how to choose their values, and what "
        "trials are compared by. docs/SWEEPS.md lists its keys. Everything is checked before anything "
        "starts. PATH=VALUE gives a key of the sweep spec another value.\n\n"
        "With --coordinator or WEIR_COORDINATOR the sweep is handed to that cluster, and its id is printed. "
        "Without them a private cluster is started on this machine, as by `weir train`, and --out DIR gets "
        "trials.jsonl (a line a trial), best.onnx and best.yaml.\n\n"
        "A sweep tries the same trials on any cluster (unless its spec has `order: arrival`), and goes on "
        "where it was after the death of any process.\n",
    .options = sweep_options,
    .subcommands = subcommands,
    .if_failed = "no trial has a result",
    .if_interrupted = "interrupted",
    .examples = "weir sweep examples/fashion-mnist-sweep.yaml --workers 2\n"
                "weir sweep examples/fashion-mnist-sweep.yaml budget.trials=5 --dry-run\n"
                "weir sweep examples/fashion-mnist-sweep.yaml --coordinator 10.0.0.1:7070 --follow\n"
                "weir sweep best lenet-search\n",
    .run = sweep_run,
};
