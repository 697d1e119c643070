/* weir runs: the coordinator's runs. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/cluster/connect.h"
#include "client/cluster/stored.h"
#include "client/command.h"
#include "client/terminal/output.h"

static int runs_asked(const struct args *args, struct err *err);
static int runs_stored(const struct args *args, struct store *store, struct err *err);
static void runs_print(const struct args *args, Weir__RunInfo **runs, size_t n);

static int runs_run(const struct args *args) {
  struct store *store = NULL;
  struct err err = ERR_NONE;
  if (stored_open(args, &store, &err) == 0) {
    if (store)
      runs_stored(args, store, &err);
    else
      runs_asked(args, &err);
  }
  store_close(store);
  return err.code ? command_fail(&err) : EXIT_DONE;
}

static int runs_asked(const struct args *args, struct err *err) {
  Weir__ListRunsRequest request = WEIR__LIST_RUNS_REQUEST__INIT;
  struct connection connection = {0};
  Weir__ListRunsReply *reply = NULL;
  if (connection_open(&connection, args->coordinator, &args->security, err) == 0 &&
      connection_call(&connection, RPC_LIST_RUNS, &request, (void **)&reply, err) == 0) {
    runs_print(args, reply->runs, reply->n_runs);
    weir__list_runs_reply__free_unpacked(reply, NULL);
  }
  connection_close(&connection);
  return err->code;
}

/* A damaged record does not keep the others from being listed; the first is the error. */
static int runs_stored(const struct args *args, struct store *store, struct err *err) {
  struct stored_run *runs = NULL;
  Weir__RunInfo *infos, **list;
  int n = 0, count;
  if (stored_runs_open(store, &runs, &count, err) && !runs)
    return err->code;
  infos = mem_new((size_t)count * sizeof *infos);
  list = mem_new((size_t)count * sizeof *list);
  for (; n < count; n++) {
    stored_run_info(&runs[n], &infos[n]);
    list[n] = &infos[n];
  }
  runs_print(args, list, (size_t)n);
  free(infos);
  free(list);
  stored_runs_close(runs, count);
  return err->code;
}

/* Moves those that are to be shown to the front; returns how many. */
static size_t keep_shown(const struct args *args, Weir__RunInfo **runs, size_t n) {
  size_t kept = 0;
  for (size_t i = 0; i < n; i++)
    if (args_flag(args, "all") || !*runs[i]->sweep) {
      Weir__RunInfo *shown = runs[i];
      runs[i] = runs[kept];
      runs[kept++] = shown;
    }
  return kept;
}

static void runs_print(const struct args *args, Weir__RunInfo **runs, size_t n) {
  static const char *const headings[] = {"RUN",       "STATE",      ">STEP",    ">EPOCH",      ">LOSS",
                                         ">ACCURACY", ">SAMPLES/S", ">WORKERS", ">CHECKPOINT", NULL};
  struct table table;
  n = keep_shown(args, runs, n);
  if (args_flag(args, "json")) {
    output_json_list(stdout, (ProtobufCMessage *const *)runs, n);
    return;
  }
  table_init(&table, headings);
  for (size_t i = 0; i < n; i++) {
    const Weir__RunInfo *run = runs[i];
    char state[OUTPUT_TEXT_MAX], step[OUTPUT_TEXT_MAX], epoch[OUTPUT_TEXT_MAX], loss[OUTPUT_TEXT_MAX];
    char accuracy[OUTPUT_TEXT_MAX], rate[OUTPUT_TEXT_MAX], workers[OUTPUT_TEXT_MAX];
    char checkpoint[OUTPUT_TEXT_MAX] = "-";
    if (run->checkpoint_unix_ms > 0)
      snprintf(checkpoint, sizeof checkpoint, "%" PRIu64, run->checkpoint_step);
    snprintf(step, sizeof step, "%" PRIu64 "/%" PRIu64, run->step, run->steps);
    snprintf(epoch, sizeof epoch, "%.2f", run->epoch);
    snprintf(workers, sizeof workers, "%u", run->workers);
    table_row(&table,
              (const char *const[]){
                  run->run, output_state(run->state, state), step, epoch, output_loss(run->loss, loss),
                  output_percent(run->accuracy, accuracy),
                  output_count(run->state == WEIR__RUN_STATE__RUNNING ? run->samples_per_second : NAN, rate),
                  workers, checkpoint});
  }
  table_print(&table, stdout);
  table_fini(&table);
}

static const struct option_def runs_options[] = {
    {.name = "all", .kind = OPTION_FLAG, .help = "the trials of sweeps, too, which are not listed else."},
    {.name = "json", .kind = OPTION_FLAG, .help = "print a JSON array of objects instead, for programs."},
    STORED_OPTION,
    {0}};

const struct command_def command_runs = {
    .name = "runs",
    .summary = "list the runs of a cluster",
    .arguments = "",
    .takes_coordinator = true,
    .description = "Lists the runs that the coordinator (or with --store the store) knows, with their state, "
                   "newest numbers "
                   "and newest checkpoint.",
    .options = runs_options,
    .examples = "weir runs\nweir runs --json | jq -r '.[] | select(.state == \"running\") | .run'\n",
    .run = runs_run,
};
