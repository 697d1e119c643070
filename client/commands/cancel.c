/* weir cancel: end a run. */
#include "client/commands/run_request.h"

static int cancel_run(const struct args *args) {
  return run_request(args, RPC_CANCEL);
}

const struct command_def command_cancel = {
    .name = "cancel",
    .summary = "end a run",
    .arguments = "RUN",
    .min_arguments = 1,
    .max_arguments = 1,
    .takes_coordinator = true,
    .description =
        "Ends RUN (an id, a unique prefix of one, or a name: its newest run) at once; its servers and "
        "workers are free for other "
        "runs. Its checkpoints stay: `weir resume` can take it up again. Where the store cannot keep yet "
        "that "
        "the run is cancelled, the line says so: until then a coordinator that is restarted goes on with it.",
    .examples = "weir cancel fashion-mnist-k3f9a2\n",
    .run = cancel_run,
};
