/* weir stop: end a run early, and keep its result. */
#include "client/commands/run_request.h"

static int stop_run(const struct args *args) {
  return run_request(args, RPC_STOP);
}

const struct command_def command_stop = {
    .name = "stop",
    .summary = "end a run early and keep its result",
    .arguments = "RUN",
    .min_arguments = 1,
    .max_arguments = 1,
    .takes_coordinator = true,
    .description =
        "Ends RUN (an id, a unique prefix of one, or a name: its newest run) before its last step: it writes "
        "a checkpoint some steps "
        "later, or where it is held, and is stopped with the weights of that version as its result. `weir "
        "export`, `weir status` and `weir watch` treat it as a run that is done. The command does not wait "
        "for "
        "the checkpoint. A run that is queued or loads has nothing to keep yet: `weir cancel` ends it. A "
        "run "
        "that was stopped cannot be resumed: `weir fork` begins another from its checkpoint.",
    .examples = "weir stop fashion-mnist\n",
    .run = stop_run,
};
