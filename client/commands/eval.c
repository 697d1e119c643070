/* weir eval: a run's weights, evaluated once more. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "client/cluster/evaluation.h"
#include "client/cluster/evaluation_spec.h"
#include "client/cluster/follow.h"
#include "client/cluster/private_cluster.h"
#include "client/cluster/stop.h"
#include "client/cluster/stored.h"
#include "client/command.h"
#include "client/files/metrics.h"
#include "client/terminal/output.h"
#include "common/base/memory.h"
#include "common/base/message.h"
#include "model/metrics/metric.h"
#include "storage/checkpoint/checkpoint_parts.h"

enum { CANCEL_DEADLINE_MS = 3000 };

/* What the command is made of. */
struct asked {
  const struct args *args;
  struct evaluation evaluation;
  struct private_cluster cluster;
  struct connection connection;
  struct follow_result result;
};

static bool is_folder(const char *name) {
  struct stat status;
  return stat(name, &status) == 0 && S_ISDIR(status.st_mode);
}

static int start_cluster(struct asked *asked, struct err *err) {
  const struct args *args = asked->args;
  struct launcher_options workers = {.workers = (int)args_count(args, "workers"),
                                     .threads = (int)args_count(args, "threads"),
                                     .device = args_text(args, "device"),
                                     .tls = args->given_tls,
                                     .sockets = true};
  char *data_root =
      private_cluster_data_root(args_text(args, "data-root"), asked->evaluation.submission.spec, err);
  if (!data_root)
    return err->code;
  workers.data_root = data_root;
  private_cluster_start(&asked->cluster, &workers, &asked->connection, err);
  free(data_root);
  return err->code;
}

/* Of workers that are started for it. */
static void require_nothing(Weir__WorkersSpec *spec) {
  struct labels required = {spec->require, spec->n_require};
  labels_free(&required);
  spec->require = NULL;
  spec->n_require = 0;
}

/* Everything that can be refused is, before anything is started or submitted. */
static int asked_prepare(struct asked *asked, struct err *err) {
  const struct args *args = asked->args;
  struct evaluation_wishes wishes = {.data = args_text(args, "data"), .measure = args_text(args, "measure")};
  const char *what = args->arguments[0];
  Weir__WeightsRequest wanted;
  bool is_local = is_folder(what);
  stored_wanted(args, &wanted);
  wanted.run = (char *)what;
  if (!is_local && !checkpoint_is_run_id(what))
    return err_set(err, ERR_INVALID, "'%s' is neither a folder that `weir train` left nor a run's id", what);
  if (is_local)
    evaluation_of_folder(&asked->evaluation, what, &wanted, err);
  else if (connection_open(&asked->connection, args->coordinator, &args->security, err) == 0)
    evaluation_of_run(&asked->evaluation, &asked->connection, &wanted, err);
  if (err->code || evaluation_spec(asked->evaluation.submission.spec, &wishes, err))
    return err->code;
  if (is_local)
    require_nothing(asked->evaluation.submission.spec->workers);
  return is_local ? start_cluster(asked, err) : ERR_OK;
}

/* Nobody else wants what it finds. */
static void run_cancel(struct asked *asked, const char *run) {
  Weir__RunRequest request = WEIR__RUN_REQUEST__INIT;
  struct err err = ERR_NONE;
  void *info = NULL;
  request.run = (char *)run;
  stop_forget_signal();
  connection_ask(&asked->connection, &(struct rpc_question){RPC_CANCEL, &request, CANCEL_DEADLINE_MS}, &info,
                 &err);
  message_free(info);
}

static int asked_evaluate(struct asked *asked, struct err *err) {
  struct follow_options options = {
      .connection = &asked->connection,
      .file = stderr,
      .all_workers = asked->cluster.launcher ? (int)args_count(asked->args, "workers") : 0,
  };
  char *run = NULL;
  if (submission_send(&asked->evaluation.submission, &asked->connection, &run, err))
    return err->code;
  options.run = run;
  if (follow(&options, &asked->result, err) && stop_cause() == STOP_SIGNAL) {
    run_cancel(asked, run);
    err_set(err, ERR_CANCELLED, "interrupted");
  }
  free(run);
  return err->code;
}

static void print_table(const struct asked *asked) {
  const Weir__RunInfo *info = asked->result.info;
  char text[OUTPUT_TEXT_MAX];
  printf("run        %s\n", asked->evaluation.run);
  printf("step       %s\n", output_count((double)asked->evaluation.step, text));
  if (!isnan(info->accuracy))
    printf("accuracy   %s\n", output_percent(info->accuracy, text));
  for (size_t m = 0; m < info->n_metrics; m++)
    if (output_metric(info->metrics[m], text))
      printf("%-10s %s\n", info->metrics[m]->name, text);
  printf("loss       %s\n", output_loss(info->eval_loss, text));
  printf("sha256     %s\n", info->weights_sha256);
}

/* The keys are those of the metrics file. */
static void print_json(const struct asked *asked) {
  const Weir__RunInfo *info = asked->result.info;
  char number[32];
  printf("{\"run\":\"%s\",\"step\":%" PRIu64 ",\"loss\":%s", asked->evaluation.run, asked->evaluation.step,
         metrics_number(info->eval_loss, number));
  if (!isnan(info->accuracy))
    printf(",\"accuracy\":%s", metrics_number(info->accuracy, number));
  for (size_t m = 0; m < info->n_metrics; m++)
    if (metric_find(info->metrics[m]->name))
      printf(",\"%s\":%s", info->metrics[m]->name, metrics_number(info->metrics[m]->value, number));
  printf(",\"weights_sha256\":\"%s\"}\n", info->weights_sha256);
}

static int eval_run(const struct args *args) {
  struct asked asked = {.args = args};
  struct err err = ERR_NONE;
  int status;
  stop_on_signals();
  if (asked_prepare(&asked, &err) == 0)
    asked_evaluate(&asked, &err);
  connection_close(&asked.connection);
  private_cluster_stop(&asked.cluster, &err);
  if (err.code)
    status = command_fail(&err);
  else if ((status = follow_exit(&asked.result)) == EXIT_DONE)
    (args_flag(args, "json") ? print_json : print_table)(&asked);
  follow_result_fini(&asked.result);
  evaluation_fini(&asked.evaluation);
  return status;
}

static const struct option_def eval_options[] = {
    WEIGHTS_STEP_OPTION,
    {.name = "average",
     .kind = OPTION_FLAG,
     .help = "the moving average of the weights in their place (the spec's train.average)."},
    {.name = "data",
     .kind = OPTION_TEXT,
     .value = "FILE.yaml",
     .help = "evaluate this data in place of the run's: a section `data` as in a spec, whose eval, or train "
             "where it has no other, is taken, with its root and transforms where it names any."},
    {.name = "measure",
     .kind = OPTION_TEXT,
     .value = "NAME,...",
     .help = "the metrics to measure, in place of the spec's eval.metrics."},
    {.name = "workers",
     .kind = OPTION_COUNT,
     .value = "N",
     .fallback = "1",
     .least = 1,
     .most = 256,
     .help = "of a folder: worker processes to start."},
    {.name = "threads",
     .kind = OPTION_COUNT,
     .value = "N",
     .least = 1,
     .most = 1024,
     .help = "of a folder: executors of each worker. Default: this machine's cores, shared out among the "
             "workers."},
    {.name = "device",
     .kind = OPTION_TEXT,
     .value = "DEVICE",
     .help = "of a folder: what the workers compute on: cpu, cuda, cuda:N, cuda:N,N... or auto. Default: "
             "$WEIR_DEVICE, else auto: all GPUs, or else the CPU."},
    {.name = "data-root",
     .kind = OPTION_TEXT,
     .value = "DIR",
     .help = "of a folder: data.root lies below this folder, or is joined to it if it is relative. "
             "Default: its data.root itself, or / where that is relative."},
    {.name = "json", .kind = OPTION_FLAG, .help = "print a JSON object on one line instead, for programs."},
    {0}};

const struct command_def command_eval = {
    .name = "eval",
    .summary = "evaluate a run's weights, on its data or on other",
    .arguments = "RUN|DIR",
    .min_arguments = 1,
    .max_arguments = 1,
    .takes_coordinator = true,
    .description =
        "Evaluates the weights of a checkpoint of RUN (an id, a unique prefix of one, or a name: its newest "
        "run), by default of the "
        "newest, on the cluster that has it: as a run of its own, eval-NAME, which trains nothing. Where no "
        "worker is free, a run that trains with several lends one; else it waits. DIR is a folder that `weir "
        "train` left: its store is read, and a "
        "private cluster on this machine evaluates.\n"
        "\n"
        "Progress goes to stderr, the result to stdout. On the same data the numbers are those of the "
        "training run's own evaluation of that step, to the last bit. Ctrl-C cancels the evaluation.",
    .options = eval_options,
    .if_failed = "the evaluation failed",
    .if_interrupted = "interrupted",
    .examples = "weir eval fashion-mnist --measure top5,perplexity\n"
                "weir eval fashion-mnist-3fa9c1 --step 500 --data held-out.yaml --json\n"
                "weir eval weir-out/fashion-mnist\n",
    .run = eval_run,
};
