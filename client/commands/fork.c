/* weir fork: a new run from a checkpoint of another. */
#include <stdio.h>
#include <stdlib.h>

#include "client/cluster/connect.h"
#include "client/cluster/run_step.h"
#include "client/command.h"
#include "client/terminal/output.h"

/* The coordinator looks at the model, and writes to the store. */
enum { FORK_DEADLINE_MS = 60000 };

static int fork_run(const struct args *args) {
  Weir__ForkRequest request = WEIR__FORK_REQUEST__INIT;
  struct rpc_question question = {RPC_FORK_RUN, &request, FORK_DEADLINE_MS};
  struct connection connection = {0};
  Weir__ForkReply *reply = NULL;
  struct run_step from;
  struct err err = ERR_NONE;
  if (run_step_parse(args->arguments[0], &from, &err))
    return command_fail(&err);
  request.run = from.run;
  request.has_step = from.has_step;
  request.step = from.step;
  request.settings = (char **)args->arguments + 1;
  request.n_settings = (size_t)args->n_arguments - 1;
  if (args_text(args, "name"))
    request.name = (char *)args_text(args, "name");
  if (connection_open(&connection, args->coordinator, &args->security, &err) == 0 &&
      connection_ask(&connection, &question, (void **)&reply, &err) == 0) {
    for (size_t i = 0; i < reply->n_notes; i++) {
      output_clean(reply->notes[i]);
      fprintf(stderr, "weir: note: %s\n", reply->notes[i]);
    }
    printf("%s\n", reply->run);
    weir__fork_reply__free_unpacked(reply, NULL);
  }
  connection_close(&connection);
  free(from.run);
  return err.code ? command_fail(&err) : EXIT_DONE;
}

static const struct option_def fork_options[] = {
    {.name = "name",
     .kind = OPTION_TEXT,
     .value = "NAME",
     .help = "of the new run, whose id is NAME-xxxxxx. Default: that of RUN."},
    {0}};

const struct command_def command_fork = {
    .name = "fork",
    .summary = "begin a new run from another's checkpoint; prints its id",
    .arguments = "RUN[@STEP] [PATH=VALUE]...",
    .min_arguments = 1,
    .max_arguments = ARGUMENTS_MAX,
    .takes_coordinator = true,
    .description =
        "Begins a run of its own from the checkpoint of RUN (an id, a unique prefix of one, or a name: its "
        "newest run) at STEP, by "
        "default "
        "the newest: with its weights, what its optimizer keeps, its average, and its model. It goes on at "
        "that "
        "step, with the samples, the learning rate and the random numbers that follow; with nothing changed "
        "it ends "
        "in the weights of RUN. No block is copied. What becomes of RUN does not matter to it. The "
        "command waits for a checkpoint that is still being written. STEP may be one that RUN has yet to "
        "come to: the new run then waits in the queue, and RUN makes a checkpoint there.\n"
        "\n"
        "PATH=VALUE gives a key of the spec another value, as with `weir submit`. It may be of the "
        "optimizer, the "
        "schedule, clipping, the average, eval, checkpoint, workers, priority, name, train.steps and "
        "train.epochs. "
        "Where the optimizer then keeps other values of each weight (momentum where there was none, amsgrad, "
        "another "
        "optimizer), they begin anew, and a note on stderr says so. What makes a step another one (batch, "
        "microbatches, seed, data, model, which tensors a group has) stays: for that, `weir submit SPEC "
        "--from "
        "RUN@STEP` begins from the weights alone.",
    .options = fork_options,
    .examples = "weir fork fashion-mnist@500\n"
                "weir fork fashion-mnist@500 train.optimizer.lr=0.01 --name slower\n"
                "weir fork fashion-mnist@2000 train.optimizer.lr=0.005    # once it has come there\n"
                "run=$(weir fork fashion-mnist-k3f9a2 train.steps=4000) && weir watch $run\n",
    .run = fork_run,
};
