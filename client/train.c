/* weir train: a private cluster on this machine, one run, its results. */
#include <sched.h>
#include <signal.h>
#include <stdlib.h>

#include "client/command.h"
#include "client/download.h"
#include "client/export.h"
#include "client/follow.h"
#include "client/launcher.h"
#include "client/result_dir.h"
#include "client/stop.h"
#include "client/submission.h"
#include "common/memory.h"

enum { CANCEL_DEADLINE_MS = 3000, LOST_CHILD_MS = 2000 };

/* Everything that a training holds; released by training_fini whatever happened. */
struct training {
  const struct args *args;
  struct submission submission;
  char *out;      /* as the user wrote it */
  char *absolute; /* the same folder; NULL before it was made */
  struct launcher *launcher;
  struct connection connection;
  struct metrics *metrics[FOLLOW_METRICS_MAX];
  char *run; /* its id; NULL before it was submitted */
  struct follow_result result;
};

static int training_prepare(struct training *training, struct err *err);
static int training_launch(struct training *training, struct err *err);
static int training_run(struct training *training, struct err *err);
static int training_save(struct training *training, struct err *err);
static void training_explain(struct training *training, struct err *err);
static void training_fini(struct training *training);
static int worker_count(const struct training *training, struct err *err);
static int thread_count(const struct training *training, int workers);
static void summary_print(const struct training *training);

static int train_run(const struct args *args) {
  struct training training = {.args = args};
  struct err err = ERR_NONE;
  int status;
  stop_on_signals();
  signal(SIGPIPE, SIG_IGN); /* a reader of our output that leaves does not end the training */
  if (training_prepare(&training, &err) || training_launch(&training, &err) || training_run(&training, &err))
    training_explain(&training, &err);
  launcher_stop(training.launcher);
  training.launcher = NULL;
  if (err.code)
    status = command_fail(&err);
  else if ((status = follow_exit(&training.result)) == EXIT_DONE)
    summary_print(&training);
  training_fini(&training);
  return status;
}

/* Everything that can be refused without starting a process. */
static int training_prepare(struct training *training, struct err *err) {
  const struct args *args = training->args;
  char *path;
  if (submission_load(&training->submission, args->arguments[0], err) || worker_count(training, err) == 0)
    return err->code;
  training->out = args_text(args, "out") ? mem_strdup(args_text(args, "out"))
                                         : mem_printf("weir-out/%s", training->submission.spec->name);
  if (args_text(args, "metrics") &&
      metrics_open(args_text(args, "metrics"), false, &training->metrics[1], err))
    return err->code;
  if (result_dir_make(training->out, args_flag(args, "force"), &training->absolute, err))
    return err->code;
  path = mem_printf("%s/spec.yaml", training->absolute);
  result_dir_copy(args->arguments[0], path, err);
  free(path);
  if (err->code)
    return err->code;
  path = mem_printf("%s/metrics.jsonl", training->absolute);
  metrics_open(path, false, &training->metrics[0], err);
  free(path);
  return err->code;
}

static int training_launch(struct training *training, struct err *err) {
  const struct args *args = training->args;
  char *logs = mem_printf("%s/logs", training->absolute);
  char *store = args_text(args, "store") ? mem_strdup(args_text(args, "store"))
                                         : mem_printf("file://%s/store", training->absolute);
  int workers = worker_count(training, err);
  struct launcher_options options = {
      .logs = logs,
      .store = store,
      .servers = (int)args_count(args, "servers"),
      .workers = workers,
      .threads = thread_count(training, workers),
      .restart = !args_flag(args, "no-restart"),
  };
  launcher_start(&options, &training->launcher, err);
  free(logs);
  free(store);
  if (err->code)
    return err->code;
  printf("coordinator %s\n", launcher_address(training->launcher));
  printf("cluster     %d server%s, %d worker%s of %d thread%s; logs in %s/logs\n", options.servers,
         options.servers == 1 ? "" : "s", workers, workers == 1 ? "" : "s", options.threads,
         options.threads == 1 ? "" : "s", training->out);
  fflush(stdout);
  if (connection_open(&training->connection, launcher_address(training->launcher), err))
    return err->code;
  return launcher_wait_members(training->launcher, &training->connection, err);
}

static int training_run(struct training *training, struct err *err) {
  struct follow_options options = {
      .connection = &training->connection,
      .file = stdout,
      .metrics = {training->metrics[0], training->metrics[1]},
  };
  struct err save_err = ERR_NONE;
  if (submission_send(&training->submission, &training->connection, &training->run, err))
    return err->code;
  options.run = training->run;
  follow(&options, &training->result, err);
  /* Also when the metrics could not be written: what was trained is not lost. */
  if (training->result.info && training->result.info->state == WEIR__RUN_STATE__DONE &&
      training_save(training, &save_err))
    *err = save_err;
  return err->code;
}

/* The trained model, in both forms. */
static int training_save(struct training *training, struct err *err) {
  const struct submission *submission = &training->submission;
  const Weir__RunInfo *info = training->result.info;
  struct weights weights = {0};
  char *onnx = mem_printf("%s/model.onnx", training->absolute);
  char *safetensors = mem_printf("%s/model.safetensors", training->absolute);
  if (download_weights(&training->connection, info->run, info->parameters, &weights, err))
    goto out;
  if (export_onnx(submission->onnx, submission->onnx_size, submission->spec, weights.params, weights.n_params,
                  weights.state, weights.n_state, onnx, err))
    goto out;
  export_safetensors(submission->onnx, submission->onnx_size, submission->spec, weights.params,
                     weights.n_params, weights.state, weights.n_state, safetensors, err);
out:
  weights_fini(&weights);
  free(onnx);
  free(safetensors);
  return err->code;
}

/* Why it really stopped: a Ctrl-C (then the run is cancelled too), or a process that died, which often shows
   as a broken connection first. */
static void training_explain(struct training *training, struct err *err) {
  Weir__RunRequest request = WEIR__RUN_REQUEST__INIT;
  Weir__RunInfo *info = NULL;
  struct err cancel_err = ERR_NONE;
  if (training->launcher && err_is_retryable(err->code))
    stop_wait(LOST_CHILD_MS);
  if (training->launcher && stop_cause() == STOP_CHILD)
    launcher_explain(training->launcher, err);
  if (stop_cause() != STOP_SIGNAL)
    return;
  err_set(err, ERR_CANCELLED, "interrupted");
  if (!training->run)
    return;
  request.run = training->run;
  if (rpc_unary(training->connection.channel, RPC_CANCEL, &request, CANCEL_DEADLINE_MS, false, (void **)&info,
                &cancel_err) == 0)
    weir__run_info__free_unpacked(info, NULL);
  err_set(err, ERR_CANCELLED, "interrupted; run '%s' was cancelled", training->run);
}

static void training_fini(struct training *training) {
  for (int i = 0; i < FOLLOW_METRICS_MAX; i++)
    metrics_close(training->metrics[i]);
  follow_result_fini(&training->result);
  connection_close(&training->connection);
  submission_fini(&training->submission);
  free(training->run);
  free(training->out);
  free(training->absolute);
}

/* By default as few as the spec asks for. 0 on an error: fewer would wait for ever. */
static int worker_count(const struct training *training, struct err *err) {
  int least = (int)training->submission.spec->workers->min;
  int given = (int)args_count(training->args, "workers");
  if (given > 0 && given < least) {
    err_set(err, ERR_INVALID, "--workers %d is fewer than the spec's workers.min, %d", given, least);
    return 0;
  }
  return given > 0 ? given : least > 0 ? least : 1;
}

/* By default this machine's cores (those that we may use), shared out among the workers. */
static int thread_count(const struct training *training, int workers) {
  int given = (int)args_count(training->args, "threads"), cores = 1;
  cpu_set_t set;
  if (given > 0)
    return given;
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    cores = CPU_COUNT(&set);
  return cores > workers ? cores / workers : 1;
}

static void summary_print(const struct training *training) {
  const char *out = training->out;
  printf("\n");
  follow_summary(stdout, &training->result);
  printf("files      %s/model.onnx\n           %s/model.safetensors\n           %s/metrics.jsonl\n"
         "           %s/spec.yaml\n",
         out, out, out, out);
  fflush(stdout);
}

static const struct option_def train_options[] = {
    {.name = "workers",
     .kind = OPTION_COUNT,
     .value = "N",
     .least = 1,
     .most = 256,
     .help = "worker processes to start, which compute gradients. Default: the spec's workers.min."},
    {.name = "servers",
     .kind = OPTION_COUNT,
     .value = "N",
     .fallback = "1",
     .least = 1,
     .most = 256,
     .help = "parameter server processes to start, which hold the weights."},
    {.name = "threads",
     .kind = OPTION_COUNT,
     .value = "N",
     .least = 1,
     .most = 1024,
     .help = "executors of each worker; a microbatch is computed by one of them. Default: this machine's "
             "cores, shared out among the workers."},
    {.name = "store",
     .kind = OPTION_TEXT,
     .value = "URL",
     .help = "where checkpoints are kept: file:///absolute/folder. Default: the folder store in --out."},
    {.name = "out",
     .kind = OPTION_TEXT,
     .value = "DIR",
     .help = "where the results go. Default: weir-out/NAME, after the spec's name."},
    {.name = "metrics",
     .kind = OPTION_TEXT,
     .value = "FILE",
     .help = "append one JSON object a line to FILE for each step and evaluation and for the end, beside "
             "DIR/metrics.jsonl."},
    {.name = "force",
     .kind = OPTION_FLAG,
     .help = "replace the run that --out already holds: its files, logs and store are removed."},
    {.name = "no-restart", .kind = OPTION_FLAG, .help = "leave a worker that died dead."},
    {0}};

const struct command_def command_train = {
    .name = "train",
    .summary = "train a model on this machine, with a cluster of its own",
    .arguments = "SPEC",
    .min_arguments = 1,
    .max_arguments = 1,
    .description =
        "Starts a private cluster on this machine (a coordinator, parameter servers and workers, each a "
        "process), trains the model that SPEC describes, shows the progress, and leaves the results.\n"
        "\n"
        "The spec and its model are checked before anything is started. A worker that dies is started again "
        "and the run goes on; the result does not change. The cluster listens on a free port of 127.0.0.1, "
        "which is printed: `weir status`, `weir workers` and the others reach it with --coordinator.\n"
        "\n"
        "In --out DIR:\n"
        "  model.onnx         the trained model in inference form\n"
        "  model.safetensors  the trained weights by name\n"
        "  metrics.jsonl      one JSON object a line: steps, evaluations, the end\n"
        "  spec.yaml          a copy of SPEC\n"
        "  logs/              what each process wrote\n"
        "  store/             checkpoints, unless --store is given\n"
        "\n"
        "Ctrl-C cancels the run and stops the cluster.",
    .options = train_options,
    .if_failed = "the run failed",
    .if_interrupted = "interrupted",
    .examples = "weir train examples/fashion-mnist.yaml --workers 2 --servers 2\n"
                "weir train spec.yaml --out /tmp/run --force --metrics all.jsonl\n",
    .run = train_run,
};
