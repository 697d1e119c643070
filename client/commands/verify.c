/* weir verify: are a run's checkpoints whole? */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/cluster/connect.h"
#include "client/cluster/stop.h"
#include "client/cluster/stored.h"
#include "client/command.h"
#include "client/terminal/output.h"
#include "common/base/message.h"

/* What was found so far. */
struct verdict {
  uint64_t checkpoints, damaged_checkpoints, damaged_blocks;
};

static int verify_asked(const struct args *args, struct verdict *verdict, struct err *err);
static int verify_stored(const struct args *args, struct store *store, struct verdict *verdict,
                         struct err *err);
static void verdict_print(struct verdict *verdict, const Weir__VerifyReply *reply);
static void verdict_fail(const struct verdict *verdict, struct err *err);

static int verify_run(const struct args *args) {
  struct store *store = NULL;
  struct verdict verdict = {0};
  struct err err = ERR_NONE;
  stop_on_signals();
  if (stored_open(args, &store, &err) == 0) {
    if (store)
      verify_stored(args, store, &verdict, &err);
    else
      verify_asked(args, &verdict, &err);
  }
  store_close(store);
  if (err.code == ERR_OK && verdict.checkpoints == 0)
    printf("run '%s' has no checkpoint\n", args->arguments[0]);
  if (err.code == ERR_OK && verdict.damaged_checkpoints > 0)
    verdict_fail(&verdict, &err);
  return err.code ? command_fail(&err) : EXIT_DONE;
}

static int verify_asked(const struct args *args, struct verdict *verdict, struct err *err) {
  Weir__VerifyRequest request = WEIR__VERIFY_REQUEST__INIT;
  struct connection connection = {0};
  struct rpc_reader *reader;
  Weir__VerifyReply *reply = NULL;
  struct err send_err = ERR_NONE;
  if (connection_open(&connection, args->coordinator, &args->security, err))
    return err->code;
  request.run = (char *)args->arguments[0];
  request.has_step = stored_step(args, &request.step) != NULL;
  connection_find_leader(&connection);
  reader = rpc_reader_open(connection.channel, RPC_VERIFY, -1);
  stop_cancels(reader);
  if (rpc_reader_send(reader, &request, &send_err) == 0)
    rpc_reader_half_close(reader);
  while (rpc_reader_next(reader, (void **)&reply, err) == 0 && reply) {
    verdict_print(verdict, reply);
    weir__verify_reply__free_unpacked(reply, NULL);
    reply = NULL;
  }
  stop_cancels(NULL);
  rpc_reader_close(reader);
  if (err->code && stop_cause() != STOP_NONE)
    err_set(err, ERR_CANCELLED, "interrupted");
  connection_explain(&connection, err);
  connection_close(&connection);
  return err->code;
}

/* Each line as it is found: its step comes first. */
static void damage_print(void *user, const char *line) {
  (void)user;
  printf("  %s\n", line);
}

static int verify_one(const struct stored_run *run, uint64_t step, struct verdict *verdict, struct err *err) {
  Weir__VerifyReply reply = WEIR__VERIFY_REPLY__INIT;
  struct checkpoint_damage damage = {.each = damage_print};
  Weir__Manifest *manifest = NULL;
  reply.step = step;
  if (stored_manifest(run, &step, &manifest, err) == ERR_CORRUPT) {
    printf("  %s\n", err->text);
    *err = ERR_NONE;
    reply.n_damaged = 1;
  } else if (err->code || checkpoint_verify(run->store, manifest, &damage, err)) {
    message_free(manifest);
    return err->code;
  } else {
    reply.blocks = damage.blocks;
    reply.bytes = damage.bytes;
    reply.n_damaged = damage.n_damaged;
    reply.weights_sha256 = damage.sha256;
  }
  verdict_print(verdict, &reply);
  message_free(manifest);
  return ERR_OK;
}

static int verify_stored(const struct args *args, struct store *store, struct verdict *verdict,
                         struct err *err) {
  struct stored_run run;
  uint64_t step;
  if (stored_run_open(store, args->arguments[0], &run, err) == 0) {
    if (stored_step(args, &step))
      verify_one(&run, step, verdict, err);
    else
      for (int i = 0; i < run.n_steps && err->code == ERR_OK; i++) {
        if (stop_cause() != STOP_NONE)
          err_set(err, ERR_CANCELLED, "interrupted");
        else
          verify_one(&run, run.steps[i], verdict, err);
      }
  }
  stored_run_fini(&run);
  return err->code;
}

static void verdict_print(struct verdict *verdict, const Weir__VerifyReply *reply) {
  char bytes[OUTPUT_TEXT_MAX];
  verdict->checkpoints++;
  if (reply->n_damaged == 0) {
    printf("step %" PRIu64 ": whole, %u blocks, %s, sha256 %s\n", reply->step, reply->blocks,
           output_bytes(reply->bytes, bytes), reply->weights_sha256);
  } else {
    verdict->damaged_checkpoints++;
    for (size_t i = 0; i < reply->n_damage; i++) {
      output_clean(reply->damage[i]);
      printf("  %s\n", reply->damage[i]);
    }
    printf("step %" PRIu64 ": damaged", reply->step);
    if (reply->blocks > 0) { /* else its record is */
      verdict->damaged_blocks += reply->n_damaged;
      printf(", %u of %u blocks", reply->n_damaged, reply->blocks);
    }
    printf("\n");
  }
  fflush(stdout);
}

static void verdict_fail(const struct verdict *verdict, struct err *err) {
  char blocks[64] = "";
  if (verdict->damaged_blocks > 0)
    snprintf(blocks, sizeof blocks, ": %" PRIu64 " blocks", verdict->damaged_blocks);
  err_set(err, ERR_INTERNAL, "%" PRIu64 " of %" PRIu64 " checkpoints damaged%s", verdict->damaged_checkpoints,
          verdict->checkpoints, blocks);
}

static const struct option_def verify_options[] = {
    {.name = "step",
     .kind = OPTION_COUNT,
     .value = "N",
     .most = OPTION_COUNT_MAX,
     .help = "only the checkpoint at this step. Default: all."},
    STORED_OPTION,
    {0}};

const struct command_def command_verify = {
    .name = "verify",
    .summary = "re-read a run's checkpoints and compare every block with its hash",
    .arguments = "RUN",
    .min_arguments = 1,
    .max_arguments = 1,
    .takes_coordinator = true,
    .description =
        "Reads every block of the checkpoints of RUN (an id, a unique prefix of one, or a name: its newest "
        "run) and compares it with "
        "its hash. A line for each checkpoint says whether it is whole; before that line each block that is "
        "missing or damaged is named. The sha256 shown is that of the weights (as `weir status` shows it for "
        "a run that is done).",
    .options = verify_options,
    .if_failed = "something is damaged",
    .if_interrupted = "interrupted",
    .examples = "weir verify fashion-mnist\n"
                "weir verify fashion-mnist --step 500 --store file:///srv/weir\n",
    .run = verify_run,
};
