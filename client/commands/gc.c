/* weir gc: delete what nothing refers to, and runs that are over. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cluster/connect.h"
#include "client/cluster/stop.h"
#include "client/cluster/store_lease.h"
#include "client/cluster/stored.h"
#include "client/command.h"
#include "client/terminal/output.h"
#include "common/base/memory.h"
#include "common/base/message.h"

enum { GC_DEADLINE_MS = 600000 };

static int gc_asked(const struct args *args, struct err *err);
static int gc_stored(const struct args *args, struct store *store, struct err *err);
static int find_runs(const struct args *args, struct store *store, char **runs, int *n, struct err *err);
static char *run_to_delete(struct store *store, const char *name, struct err *err);
static void gc_print(const Weir__CollectGarbageReply *reply);

static int gc_run(const struct args *args) {
  struct store *store = NULL;
  struct err err = ERR_NONE;
  stop_on_signals();
  if (stored_open(args, &store, &err) == 0) {
    if (store)
      gc_stored(args, store, &err);
    else
      gc_asked(args, &err);
  }
  store_close(store);
  return err.code ? command_fail(&err) : EXIT_DONE;
}

static int gc_asked(const struct args *args, struct err *err) {
  Weir__CollectGarbageRequest request = WEIR__COLLECT_GARBAGE_REQUEST__INIT;
  struct rpc_question question = {RPC_COLLECT_GARBAGE, &request, GC_DEADLINE_MS};
  struct connection connection = {0};
  Weir__CollectGarbageReply *reply = NULL;
  request.n_runs = (size_t)args->n_arguments;
  request.runs = (char **)args->arguments;
  if (connection_open(&connection, args->coordinator, &args->security, err) == 0 &&
      connection_ask(&connection, &question, (void **)&reply, err) == 0) {
    gc_print(reply);
    weir__collect_garbage_reply__free_unpacked(reply, NULL);
  }
  connection_close(&connection);
  return err->code;
}

static int gc_stored(const struct args *args, struct store *store, struct err *err) {
  Weir__CollectGarbageReply done = WEIR__COLLECT_GARBAGE_REPLY__INIT;
  struct store_lease *lease = NULL;
  struct block_refs *refs = NULL;
  char **runs = mem_new((size_t)args->n_arguments * sizeof *runs + 1);
  int n_runs = 0, n_deleted = 0;
  if (store_lease_take(store, &lease, err) || find_runs(args, store, runs, &n_runs, err) ||
      block_refs_read(store, &refs, err))
    goto out;
  block_refs_guard(refs, store_lease_guard(lease)->name, store_lease_guard(lease)->data);
  for (; n_deleted < n_runs; n_deleted++) {
    if (stop_cause() != STOP_NONE)
      err_set(err, ERR_CANCELLED, "interrupted");
    if (err->code || checkpoint_delete_run(store, refs, runs[n_deleted], store_lease_guard(lease), err))
      goto out;
  }
  if (checkpoint_delete_orphans(store, refs, store_lease_guard(lease), err) == 0 &&
      checkpoint_sweep(store, refs, &done, err) == 0) {
    done.runs = (uint64_t)n_deleted;
    gc_print(&done);
  }
out:
  if (err->code)
    checkpoint_tell_deleted(runs, n_deleted, err);
  for (int i = 0; i < n_runs; i++)
    free(runs[i]);
  free(runs);
  block_refs_free(refs);
  store_lease_release(lease);
  return err->code;
}

/* The ids of all runs to delete, each once; or an error, and then none is to be deleted. */
static int find_runs(const struct args *args, struct store *store, char **runs, int *n, struct err *err) {
  for (int i = 0; i < args->n_arguments && !err->code; i++) {
    char *run = run_to_delete(store, args->arguments[i], err);
    int at = 0;
    while (run && at < *n && strcmp(runs[at], run) != 0)
      at++;
    if (run && at == *n)
      runs[(*n)++] = run;
    else
      free(run);
  }
  return err->code;
}

/* NULL: refused. */
static char *run_to_delete(struct store *store, const char *name, struct err *err) {
  Weir__RunRecord *record = NULL;
  char state[OUTPUT_TEXT_MAX], *run = NULL;
  if (checkpoint_find_run(store, name, &record, err))
    return NULL;
  if (record->state != WEIR__RUN_STATE__DONE && record->state != WEIR__RUN_STATE__FAILED &&
      record->state != WEIR__RUN_STATE__CANCELLED && record->state != WEIR__RUN_STATE__STOPPED)
    err_set(err, ERR_INVALID,
            "run '%s' is %s, not over: nothing is deleted; a coordinator on this store can cancel it",
            record->run, output_state(record->state, state));
  else
    run = mem_strdup(record->run);
  message_free(record);
  return run;
}

static void gc_print(const Weir__CollectGarbageReply *reply) {
  char count[OUTPUT_TEXT_MAX], bytes[OUTPUT_TEXT_MAX];
  if (reply->runs > 0)
    printf("deleted %s run%s\n", output_count((double)reply->runs, count), reply->runs == 1 ? "" : "s");
  printf("deleted %s block%s that nothing refers to, %s\n", output_count((double)reply->blocks, count),
         reply->blocks == 1 ? "" : "s", output_bytes(reply->bytes, bytes));
  printf("kept    %s block%s, %s\n", output_count((double)reply->kept_blocks, count),
         reply->kept_blocks == 1 ? "" : "s", output_bytes(reply->kept_bytes, bytes));
}

static const struct option_def gc_options[] = {STORED_OPTION, {0}};

const struct command_def command_gc = {
    .name = "gc",
    .summary = "delete what no checkpoint refers to, and runs that are over",
    .arguments = "[RUN]...",
    .max_arguments = ARGUMENTS_MAX,
    .takes_coordinator = true,
    .description =
        "Deletes blocks of the store that no checkpoint and no run refers to: those of checkpoints that were "
        "never committed, or whose deletion was cut short. Each RUN (an id, a unique prefix of one, or a "
        "name: its newest run), which "
        "must be done, failed, stopped or cancelled, is deleted before that with all its checkpoints. "
        "Where one of them is refused, nothing is deleted.\n"
        "\n"
        "With --store no coordinator may lead the store: it is watched for a little over a second, and if "
        "one "
        "does, its address is named and nothing is deleted.",
    .options = gc_options,
    .if_interrupted = "interrupted",
    .examples = "weir gc\nweir gc fashion-mnist-k3f9a2 --store file:///srv/weir\n",
    .run = gc_run,
};
