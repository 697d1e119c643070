/* weir sweep extend, and delete: changes of a sweep that is over or goes on. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cluster/connect.h"
#include "client/cluster/stop.h"
#include "client/commands/sweep.h"
#include "client/sweeps/sweep_table.h"
#include "common/base/message.h"

enum { DELETE_DEADLINE_MS = 600000 };

static int not_a_budget(const char *setting, struct err *err) {
  return err_set(err, ERR_INVALID,
                 "sweep extend: '%.100s' is none of budget.trials=N, budget.steps=N and budget.seconds=N",
                 setting);
}

/* A whole number above 0; 0: it is none. */
static uint64_t read_count(const char *text) {
  char *end;
  unsigned long long count;
  errno = 0;
  count = strtoull(text, &end, 10);
  return *text >= '0' && *text <= '9' && !*end && !errno ? count : 0;
}

static int read_setting(const char *setting, Weir__SweepBudget *budget, struct err *err) {
  const char *value = strchr(setting, '=');
  size_t length = value ? (size_t)(value - setting) : 0;
  uint64_t count = value ? read_count(value + 1) : 0;
  char *end;
  if (length == strlen("budget.trials") && strncmp(setting, "budget.trials", length) == 0) {
    budget->has_trials = count > 0 && count <= UINT32_MAX;
    budget->trials = (uint32_t)count;
    return budget->has_trials ? 0 : not_a_budget(setting, err);
  }
  if (length == strlen("budget.steps") && strncmp(setting, "budget.steps", length) == 0) {
    budget->has_steps = count > 0;
    budget->steps = count;
    return budget->has_steps ? 0 : not_a_budget(setting, err);
  }
  if (length == strlen("budget.seconds") && strncmp(setting, "budget.seconds", length) == 0) {
    budget->seconds = strtod(value + 1, &end);
    budget->has_seconds = end != value + 1 && !*end && budget->seconds > 0;
    return budget->has_seconds ? 0 : not_a_budget(setting, err);
  }
  return not_a_budget(setting, err);
}

/* A sweep that ended with its private cluster is on none that could be asked. */
static void explain(struct err *err) {
  if (err->code == ERR_UNAVAILABLE || err->code == ERR_NOT_FOUND)
    err_append(err,
               "; a sweep that `weir sweep SPEC` ran on a private cluster is extended by that command with "
               "--resume and a larger budget, as in `weir sweep SPEC budget.trials=120 --resume`");
}

static int extend_run(const struct args *args) {
  Weir__ExtendSweepRequest request = WEIR__EXTEND_SWEEP_REQUEST__INIT;
  Weir__SweepBudget budget = WEIR__SWEEP_BUDGET__INIT;
  struct connection connection = {0};
  Weir__SweepInfo *info = NULL;
  struct err err = ERR_NONE;
  stop_on_signals();
  request.sweep = (char *)args->arguments[0];
  request.budget = &budget;
  for (int i = 1; i < args->n_arguments && !err.code; i++)
    read_setting(args->arguments[i], &budget, &err);
  if (!err.code && connection_open(&connection, args->coordinator, &args->security, &err) == 0 &&
      connection_call(&connection, RPC_EXTEND_SWEEP, &request, (void **)&info, &err) == 0)
    sweep_print(stdout, info);
  explain(&err);
  message_free(info);
  connection_close(&connection);
  return err.code ? command_fail(&err) : EXIT_DONE;
}

static int delete_run(const struct args *args) {
  Weir__SweepRequest request = WEIR__SWEEP_REQUEST__INIT;
  struct rpc_question question = {RPC_DELETE_SWEEP, &request, DELETE_DEADLINE_MS};
  Weir__CollectGarbageReply *reply = NULL;
  struct connection connection = {0};
  struct err err = ERR_NONE;
  stop_on_signals();
  request.sweep = (char *)args->arguments[0];
  if (connection_open(&connection, args->coordinator, &args->security, &err) == 0 &&
      connection_ask(&connection, &question, (void **)&reply, &err) == 0)
    printf("deleted, with the runs of %llu trials\n", (unsigned long long)reply->runs);
  message_free(reply);
  connection_close(&connection);
  return err.code ? command_fail(&err) : EXIT_DONE;
}

static const struct option_def no_options[] = {{0}};

const struct command_def command_sweep_extend = {
    .name = "extend",
    .group = "sweep",
    .summary = "give a sweep a larger budget",
    .arguments = "SWEEP budget.trials=N|budget.steps=N|budget.seconds=N...",
    .min_arguments = 2,
    .max_arguments = 4,
    .takes_coordinator = true,
    .description =
        "Raises a budget that SWEEP has. If SWEEP has ended, it goes on: its searcher knows all "
        "results, and trials that waited at a rung or were under way go on from there. New "
        "budget.seconds count from now on. With the schedules halving and pbt budget.trials "
        "cannot be raised, since all trials begin together.\n\nSWEEP is on a cluster. One that `weir sweep "
        "SPEC` ran on a private cluster is extended by the same command with --resume and a larger "
        "budget in SPEC.",
    .options = no_options,
    .examples = "weir sweep extend lenet-search budget.trials=120\n",
    .run = extend_run,
};

const struct command_def command_sweep_delete = {
    .name = "delete",
    .group = "sweep",
    .summary = "delete a sweep and its trials' runs",
    .arguments = "SWEEP",
    .min_arguments = 1,
    .max_arguments = 1,
    .takes_coordinator = true,
    .description = "Deletes SWEEP from the store: its log, the runs of all its trials, and their "
                   "checkpoints. SWEEP must have ended. Export first what is still wanted.",
    .options = no_options,
    .examples = "weir sweep delete lenet-search\n",
    .run = delete_run,
};
