/* weir checkpoints: the checkpoints of a run. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/cluster/connect.h"
#include "client/cluster/stored.h"
#include "client/command.h"
#include "client/terminal/output.h"
#include "common/base/clock.h"
#include "common/base/memory.h"
#include "common/base/message.h"

static int list_asked(const struct args *args, struct err *err);
static int list_stored(const struct args *args, struct store *store, struct err *err);
static void list_print(const struct args *args, Weir__CheckpointInfo *const *infos, size_t n);

static int checkpoints_run(const struct args *args) {
  struct store *store = NULL;
  struct err err = ERR_NONE;
  if (stored_open(args, &store, &err) == 0) {
    if (store)
      list_stored(args, store, &err);
    else
      list_asked(args, &err);
  }
  store_close(store);
  return err.code ? command_fail(&err) : EXIT_DONE;
}

static int list_asked(const struct args *args, struct err *err) {
  Weir__RunRequest request = WEIR__RUN_REQUEST__INIT;
  struct connection connection = {0};
  Weir__ListCheckpointsReply *reply = NULL;
  request.run = (char *)args->arguments[0];
  if (connection_open(&connection, args->coordinator, &args->security, err) == 0 &&
      connection_call(&connection, RPC_LIST_CHECKPOINTS, &request, (void **)&reply, err) == 0) {
    list_print(args, reply->checkpoints, reply->n_checkpoints);
    weir__list_checkpoints_reply__free_unpacked(reply, NULL);
  }
  connection_close(&connection);
  return err->code;
}

/* A damaged manifest does not keep the others from being listed; the first is the error. */
static int list_stored(const struct args *args, struct store *store, struct err *err) {
  struct stored_run run;
  Weir__Manifest **manifests = NULL;
  Weir__CheckpointInfo *infos = NULL, **list = NULL;
  int n = 0;
  if (stored_run_open(store, args->arguments[0], &run, err))
    goto out;
  manifests = mem_new((size_t)run.n_steps * sizeof *manifests);
  infos = mem_new((size_t)run.n_steps * sizeof *infos);
  list = mem_new((size_t)run.n_steps * sizeof *list);
  for (int i = 0; i < run.n_steps; i++) {
    struct err manifest_err = ERR_NONE;
    if (stored_manifest(&run, &run.steps[i], &manifests[n], &manifest_err)) {
      if (err->code == ERR_OK)
        *err = manifest_err;
      continue;
    }
    checkpoint_info(manifests[n], &infos[n]);
    list[n] = &infos[n];
    n++;
  }
  list_print(args, list, (size_t)n);
out:
  for (int i = 0; i < n; i++)
    message_free(manifests[i]);
  free(manifests);
  free(infos);
  free(list);
  stored_run_fini(&run);
  return err->code;
}

static void list_print(const struct args *args, Weir__CheckpointInfo *const *infos, size_t n) {
  static const char *const headings[] = {">STEP", ">COMMITTED", ">INCARNATION", ">BLOCKS",   ">SIZE",
                                         ">NEW",  ">LOSS",      ">EVAL LOSS",   ">ACCURACY", NULL};
  struct table table;
  if (args_flag(args, "json")) {
    output_json_list(stdout, (ProtobufCMessage *const *)infos, n);
    return;
  }
  table_init(&table, headings);
  for (size_t i = 0; i < n; i++) {
    const Weir__CheckpointInfo *info = infos[i];
    char step[OUTPUT_TEXT_MAX], age[OUTPUT_TEXT_MAX], incarnation[OUTPUT_TEXT_MAX], blocks[OUTPUT_TEXT_MAX];
    char bytes[OUTPUT_TEXT_MAX], written[OUTPUT_TEXT_MAX], loss[OUTPUT_TEXT_MAX], eval_loss[OUTPUT_TEXT_MAX];
    char accuracy[OUTPUT_TEXT_MAX], ago[OUTPUT_TEXT_MAX + 20];
    snprintf(step, sizeof step, "%" PRIu64, info->step);
    snprintf(incarnation, sizeof incarnation, "%" PRIu64, info->incarnation);
    snprintf(ago, sizeof ago, "%s ago%s", output_age(clock_unix_ms() - info->committed_unix_ms, age),
             info->unreadable ? ", unreadable" : "");
    table_row(&table, (const char *const[]){
                          step, ago, incarnation, output_count(info->blocks, blocks),
                          output_bytes(info->bytes, bytes), output_bytes(info->written_bytes, written),
                          output_loss(info->loss, loss), output_loss(info->eval_loss, eval_loss),
                          output_percent(info->accuracy, accuracy)});
  }
  table_print(&table, stdout);
  table_fini(&table);
}

static const struct option_def checkpoints_options[] = {
    {.name = "json", .kind = OPTION_FLAG, .help = "print a JSON array of objects instead, for programs."},
    STORED_OPTION,
    {0}};

const struct command_def command_checkpoints = {
    .name = "checkpoints",
    .summary = "list the checkpoints of a run",
    .arguments = "RUN",
    .min_arguments = 1,
    .max_arguments = 1,
    .takes_coordinator = true,
    .description =
        "Lists the committed checkpoints of RUN (an id, a unique prefix of one, or a name: its newest run), "
        "the oldest first: the "
        "version of the weights, when it was committed, its blocks and their size, how much of that was new "
        "in the store, the loss of the step before, and how the version was evaluated, if it was.\n"
        "\n"
        "Which are kept is said by the spec (checkpoint.keep and checkpoint.keep_best); the last version "
        "always is.",
    .options = checkpoints_options,
    .examples = "weir checkpoints fashion-mnist\n"
                "weir checkpoints fashion-mnist --store file:///srv/weir --json | jq '.[-1].step'\n",
    .run = checkpoints_run,
};
