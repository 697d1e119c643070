/* weir runs: the coordinator's runs. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "client/command.h"
#include "client/connect.h"
#include "client/output.h"

static void runs_print(const Weir__ListRunsReply *reply);

static int runs_run(const struct args *args) {
  Weir__ListRunsRequest request = WEIR__LIST_RUNS_REQUEST__INIT;
  struct connection connection = {0};
  Weir__ListRunsReply *reply = NULL;
  struct err err = ERR_NONE;
  if (connection_open(&connection, args->coordinator, &err) == 0 &&
      connection_call(&connection, RPC_LIST_RUNS, &request, (void **)&reply, &err) == 0) {
    if (args_flag(args, "json"))
      output_json_list(stdout, (ProtobufCMessage *const *)reply->runs, reply->n_runs);
    else
      runs_print(reply);
    weir__list_runs_reply__free_unpacked(reply, NULL);
  }
  connection_close(&connection);
  return err.code ? command_fail(&err) : EXIT_DONE;
}

static void runs_print(const Weir__ListRunsReply *reply) {
  static const char *const headings[] = {"RUN",       "STATE",      ">STEP",    ">EPOCH", ">LOSS",
                                         ">ACCURACY", ">SAMPLES/S", ">WORKERS", NULL};
  struct table table;
  table_init(&table, headings);
  for (size_t i = 0; i < reply->n_runs; i++) {
    const Weir__RunInfo *run = reply->runs[i];
    char state[OUTPUT_TEXT_MAX], step[OUTPUT_TEXT_MAX], epoch[OUTPUT_TEXT_MAX], loss[OUTPUT_TEXT_MAX];
    char accuracy[OUTPUT_TEXT_MAX], rate[OUTPUT_TEXT_MAX], workers[OUTPUT_TEXT_MAX];
    snprintf(step, sizeof step, "%" PRIu64 "/%" PRIu64, run->step, run->steps);
    snprintf(epoch, sizeof epoch, "%.2f", run->epoch);
    snprintf(workers, sizeof workers, "%u", run->workers);
    table_row(&table,
              (const char *const[]){
                  run->run, output_state(run->state, state), step, epoch, output_loss(run->loss, loss),
                  output_percent(run->accuracy, accuracy),
                  output_count(run->state == WEIR__RUN_STATE__RUNNING ? run->samples_per_second : NAN, rate),
                  workers});
  }
  table_print(&table, stdout);
  table_fini(&table);
}

static const struct option_def runs_options[] = {
    {.name = "json", .kind = OPTION_FLAG, .help = "print a JSON array of objects instead, for programs."},
    {0}};

const struct command_def command_runs = {
    .name = "runs",
    .summary = "list the runs of a cluster",
    .arguments = "",
    .takes_coordinator = true,
    .description = "Lists the runs that the coordinator knows, with their state and newest numbers.",
    .options = runs_options,
    .examples = "weir runs\nweir runs --json | jq -r '.[] | select(.state == \"running\") | .run'\n",
    .run = runs_run,
};
