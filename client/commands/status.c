/* weir status: one run in detail. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "client/cluster/connect.h"
#include "client/command.h"
#include "client/terminal/mode_text.h"
#include "client/terminal/output.h"
#include "client/terminal/stages_table.h"
#include "common/base/clock.h"
#include "common/base/text.h"

static void status_print(const Weir__RunInfo *info);
static void status_print_numbers(const Weir__RunInfo *info);
static void status_print_replicas(const Weir__RunInfo *info);
static void status_print_checkpoints(const Weir__RunInfo *info);
static void status_print_cluster(const Weir__RunInfo *info);

static int status_run(const struct args *args) {
  Weir__RunRequest request = WEIR__RUN_REQUEST__INIT;
  struct connection connection = {0};
  Weir__RunInfo *info = NULL;
  struct err err = ERR_NONE;
  request.run = (char *)args->arguments[0];
  if (connection_open(&connection, args->coordinator, &args->security, &err) == 0 &&
      connection_call(&connection, RPC_GET_RUN, &request, (void **)&info, &err) == 0) {
    if (args_flag(args, "json"))
      output_json(stdout, (const ProtobufCMessage *)info);
    else
      status_print(info);
    weir__run_info__free_unpacked(info, NULL);
  }
  connection_close(&connection);
  return err.code ? command_fail(&err) : EXIT_DONE;
}

static void status_print(const Weir__RunInfo *info) {
  bool is_held = info->state == WEIR__RUN_STATE__HELD;
  char text[OUTPUT_TEXT_MAX];
  output_clean(info->message);
  printf("run          %s\n", info->run);
  printf("state        %s%s%s\n",
         is_held ? output_held(info->step, info->steps, text) : output_state(info->state, text),
         info->message[0] ? ": " : "", info->message);
  output_clean(info->parent);
  if (info->parent[0])
    printf("forked from  %s at step %" PRIu64 "\n", info->parent, info->parent_step);
  printf("submitted    %s ago\n",
         output_duration((double)(clock_unix_ms() - info->submitted_unix_ms) / 1000, text));
  status_print_numbers(info);
  status_print_checkpoints(info);
  status_print_cluster(info);
  if (info->weights_sha256[0])
    printf("sha256       %s\n", info->weights_sha256);
  if (info->executors > info->useful_executors && info->useful_executors > 0)
    printf("note: %u of the %u executors have nothing to do: a step has %u microbatches\n",
           info->executors - info->useful_executors, info->executors, info->useful_executors);
  status_print_replicas(info);
  stages_table_print(stdout, info->staged_workers, info->n_staged_workers);
}

/* A replica is computed by one worker. */
static void status_print_replicas(const Weir__RunInfo *info) {
  const Weir__LocalSpec *local = info->spec && info->spec->train ? info->spec->train->local : NULL;
  if (local && info->workers > local->replicas)
    printf("note: %u of the %u workers stand by: train.local.replicas is %u\n",
           info->workers - local->replicas, info->workers, local->replicas);
}

static void status_print_patience(const Weir__Patience *patience, const Weir__EarlyStoppingSpec *spec) {
  char best[TEXT_NUMBER_SIZE];
  output_clean(spec->metric);
  printf("patience     %u of %u evaluations", patience->waited, spec->patience);
  if (patience->best_step)
    printf(" without a better %s than %s, of version %" PRIu64, spec->metric,
           text_number(patience->best, best), patience->best_step);
  putchar('\n');
}

static void status_print_numbers(const Weir__RunInfo *info) {
  char text[OUTPUT_TEXT_MAX], total[OUTPUT_TEXT_MAX];
  printf("step         %s of %s\n", output_count((double)info->step, text),
         info->steps > 0 ? output_count((double)info->steps, total) : "-");
  if (info->hold > 0)
    printf("hold         step %s\n", output_count((double)info->hold, text));
  if (info->patience && info->spec && info->spec->train && info->spec->train->early_stopping)
    status_print_patience(info->patience, info->spec->train->early_stopping);
  if (info->epochs > 0)
    printf("epoch        %.2f of %.5g\n", info->epoch, info->epochs);
  printf("loss         %s\n", output_loss(info->loss, text));
  if (!isnan(info->accuracy))
    printf("accuracy     %s (eval loss %s)\n", output_percent(info->accuracy, text),
           output_loss(info->eval_loss, total));
  else if (!isnan(info->eval_loss))
    printf("eval loss    %s\n", output_loss(info->eval_loss, text));
  for (size_t m = 0; m < info->n_metrics; m++)
    if (output_metric(info->metrics[m], text))
      printf("%-12s %s\n", info->metrics[m]->name, text);
  if (info->state == WEIR__RUN_STATE__RUNNING)
    printf("speed        %s samples/s\n", output_count(info->samples_per_second, text));
  printf("time         %s\n", output_duration(info->train_seconds, text));
}

static void status_print_checkpoints(const Weir__RunInfo *info) {
  char text[OUTPUT_TEXT_MAX];
  output_clean(info->store_message);
  if (info->checkpoint_unix_ms > 0)
    printf("checkpoint   step %" PRIu64 ", %s ago (%u kept)\n", info->checkpoint_step,
           output_age(clock_unix_ms() - info->checkpoint_unix_ms, text), info->checkpoints);
  else
    printf("checkpoint   none yet\n");
  if (info->store_message[0])
    printf("store        %s\n", info->store_message);
}

/* An older coordinator does not say by which. */
static void status_print_groups(const Weir__RunInfo *info) {
  const char *wanted = info->spec && info->spec->train ? info->spec->train->collective : "";
  output_clean(info->collective);
  if (!*info->collective)
    return;
  printf("collective   %s%s", info->collective, strcmp(wanted, "auto") == 0 ? " (auto)" : "");
  if (info->grouped_workers > 0)
    printf(", %u workers in groups", info->grouped_workers);
  putchar('\n');
}

static void status_print_cluster(const Weir__RunInfo *info) {
  char text[OUTPUT_TEXT_MAX];
  printf("servers      %u\n", info->servers);
  printf("workers      %u with %u executors\n", info->workers, info->executors);
  status_print_groups(info);
  printf("model        %s parameters in %u blocks\n", output_count((double)info->parameters, text),
         info->blocks);
  mode_print(stdout, "mode         ", info->spec, info->parameters);
  printf("view         %" PRIu64 "\n", info->view);
  printf("incarnation  %" PRIu64 "\n", info->incarnation);
  if (info->insecure)
    puts("insecure     connections between machines are plaintext");
}

static const struct option_def status_options[] = {
    {.name = "json", .kind = OPTION_FLAG, .help = "print a JSON object instead, for programs."}, {0}};

const struct command_def command_status = {
    .name = "status",
    .summary = "show one run in detail",
    .arguments = "RUN",
    .min_arguments = 1,
    .max_arguments = 1,
    .takes_coordinator = true,
    .description =
        "Shows what the coordinator knows of RUN (an id, a unique prefix of one, or a name: its newest run): "
        "its state and why it "
        "waits or failed, its newest numbers, its newest checkpoint and what troubles the store, its servers "
        "and "
        "workers, and the hash of its weights when it is done or was stopped.\n"
        "\n"
        "A microbatch is computed by one executor, so a run has use for as many executors as a step has "
        "microbatches; status says when there are more.\n"
        "\n"
        "Of a run that is cut into stages (workers.stages) a table has the stages of each worker, as "
        "`weir workers` explains.",
    .options = status_options,
    .examples = "weir status fashion-mnist\nweir status fashion-mnist-k3f9a2 --json | jq .loss\n",
    .run = status_run,
};
