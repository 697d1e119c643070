/* weir runs: the coordinator's runs. */
#include <fnmatch.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cluster/connect.h"
#include "client/cluster/stored.h"
#include "client/command.h"
#include "client/terminal/output.h"
#include "common/base/clock.h"

/* In a table. */
enum { MESSAGE_SHOWN = 60 };

#define STATES_HELP "queued, loading, running, finishing, done, failed, cancelled, paused, held and stopped"

static int check_states(const char *states, struct err *err);
static int runs_asked(const struct args *args, struct err *err);
static int runs_stored(const struct args *args, struct store *store, struct err *err);
static void runs_print(const struct args *args, Weir__RunInfo **runs, size_t n);

static int runs_run(const struct args *args) {
  struct store *store = NULL;
  struct err err = ERR_NONE;
  if (check_states(args_text(args, "state"), &err) == 0 && stored_open(args, &store, &err) == 0) {
    if (store)
      runs_stored(args, store, &err);
    else
      runs_asked(args, &err);
  }
  store_close(store);
  return err.code ? command_fail(&err) : EXIT_DONE;
}

/* NULL: all. */
static int check_states(const char *states, struct err *err) {
  const ProtobufCEnumDescriptor *known = &weir__run_state__descriptor;
  char word[OUTPUT_TEXT_MAX], name[OUTPUT_TEXT_MAX];
  while (states) {
    size_t length = strcspn(states, ",");
    bool is_known = false;
    snprintf(word, sizeof word, "%.*s", (int)length, states);
    for (unsigned i = 1; i < known->n_values && !is_known; i++)
      is_known = strcmp(word, output_state((Weir__RunState)known->values[i].value, name)) == 0;
    if (!is_known)
      return err_set(err, ERR_INVALID, "--state: '%s' is no state of a run: give some of %s", word,
                     STATES_HELP);
    states = states[length] ? states + length + 1 : NULL;
  }
  return 0;
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

static bool has_state(const char *states, Weir__RunState state) {
  char name[OUTPUT_TEXT_MAX];
  size_t length = strlen(output_state(state, name));
  for (const char *at = states; (at = strstr(at, name)); at += length)
    if ((at == states || at[-1] == ',') && (at[length] == ',' || !at[length]))
      return true;
  return false;
}

static bool is_shown(const struct args *args, const Weir__RunInfo *run) {
  const char *states = args_text(args, "state"), *pattern = args_text(args, "name");
  return (args_flag(args, "all") || !*run->sweep) && (!states || has_state(states, run->state)) &&
         (!pattern || fnmatch(pattern, run->name, 0) == 0);
}

/* Moves those that are to be shown to the front; returns how many. */
static size_t keep_shown(const struct args *args, Weir__RunInfo **runs, size_t n) {
  size_t kept = 0;
  for (size_t i = 0; i < n; i++)
    if (is_shown(args, runs[i])) {
      Weir__RunInfo *shown = runs[i];
      runs[i] = runs[kept];
      runs[kept++] = shown;
    }
  return kept;
}

/* As much of it as a table has room for; --json has all. */
static void cut_message(const Weir__RunInfo *run, char text[MESSAGE_SHOWN + 4]) {
  size_t length = strlen(run->message);
  if (length <= MESSAGE_SHOWN) {
    strcpy(text, run->message);
  } else {
    for (length = MESSAGE_SHOWN; length > 0 && ((unsigned char)run->message[length] & 0xC0) == 0x80;)
      length--;
    snprintf(text, MESSAGE_SHOWN + 4, "%.*s...", (int)length, run->message);
  }
  output_clean(text);
}

static void runs_row(struct table *table, const Weir__RunInfo *run) {
  char state[OUTPUT_TEXT_MAX], step[OUTPUT_TEXT_MAX], epoch[OUTPUT_TEXT_MAX], loss[OUTPUT_TEXT_MAX];
  char accuracy[OUTPUT_TEXT_MAX], rate[OUTPUT_TEXT_MAX], workers[OUTPUT_TEXT_MAX];
  char checkpoint[OUTPUT_TEXT_MAX] = "-", age[OUTPUT_TEXT_MAX], left[OUTPUT_TEXT_MAX];
  char message[MESSAGE_SHOWN + 4];
  if (run->checkpoint_unix_ms > 0)
    snprintf(checkpoint, sizeof checkpoint, "%" PRIu64, run->checkpoint_step);
  snprintf(step, sizeof step, "%" PRIu64 "/%" PRIu64, run->step, run->steps);
  snprintf(epoch, sizeof epoch, "%.2f", run->epoch);
  snprintf(workers, sizeof workers, "%u", run->workers);
  cut_message(run, message);
  table_row(table,
            (const char *const[]){
                run->run, output_state(run->state, state), step, epoch, output_loss(run->loss, loss),
                output_percent(run->accuracy, accuracy),
                output_count(run->state == WEIR__RUN_STATE__RUNNING ? run->samples_per_second : NAN, rate),
                workers, checkpoint, output_age(clock_unix_ms() - run->submitted_unix_ms, age),
                output_duration(run->seconds_left > 0 ? run->seconds_left : NAN, left), message});
}

static void runs_print(const struct args *args, Weir__RunInfo **runs, size_t n) {
  static const char *const headings[] = {"RUN",       "STATE",      ">STEP",    ">EPOCH",      ">LOSS",
                                         ">ACCURACY", ">SAMPLES/S", ">WORKERS", ">CHECKPOINT", ">AGE",
                                         ">LEFT",     "MESSAGE",    NULL};
  struct table table;
  n = keep_shown(args, runs, n);
  if (args_flag(args, "json")) {
    output_json_list(stdout, (ProtobufCMessage *const *)runs, n);
    return;
  }
  table_init(&table, headings);
  for (size_t i = 0; i < n; i++)
    runs_row(&table, runs[i]);
  table_print(&table, stdout);
  table_fini(&table);
}

static const struct option_def runs_options[] = {
    {.name = "all", .kind = OPTION_FLAG, .help = "the trials of sweeps, too, which are not listed else."},
    {.name = "state",
     .kind = OPTION_TEXT,
     .value = "STATE,...",
     .help = "those alone that are in one of these states: " STATES_HELP "."},
    {.name = "name",
     .kind = OPTION_TEXT,
     .value = "PATTERN",
     .help = "those alone whose name is as the shell pattern says, 'mnist-*'."},
    {.name = "json", .kind = OPTION_FLAG, .help = "print a JSON array of objects instead, for programs."},
    STORED_OPTION,
    {0}};

const struct command_def command_runs = {
    .name = "runs",
    .summary = "list the runs of a cluster",
    .arguments = "",
    .takes_coordinator = true,
    .description =
        "Lists the runs that the coordinator (or with --store the store) knows, with their state, "
        "newest numbers and newest checkpoint, how long ago they were submitted, how long the ones that run "
        "have left at their present speed, and why they wait or failed. Messages are cut; --json has all.",
    .options = runs_options,
    .examples = "weir runs\nweir runs --state running,queued --name 'mnist-*'\nweir runs --json | jq -r '.[] "
                "| select(.state == \"running\") | .run'\n",
    .run = runs_run,
};
