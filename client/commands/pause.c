/* weir pause: checkpoint a run and let its members go. */
#include "client/commands/run_request.h"

static int pause_run(const struct args *args) {
  return run_request(args, RPC_PAUSE);
}

const struct command_def command_pause = {
    .name = "pause",
    .summary = "checkpoint a run and let its members go",
    .arguments = "RUN",
    .min_arguments = 1,
    .max_arguments = 1,
    .takes_coordinator = true,
    .description =
        "Has RUN (an id, a unique prefix of one, or a name: its newest run) write a checkpoint some steps "
        "later and stop there: its "
        "servers and workers are free for other runs then. The command does not wait for that: `weir status` "
        "says when the run is paused. `weir resume` takes it up again, and the result is the same bits as "
        "without a pause.",
    .examples = "weir pause fashion-mnist\n",
    .run = pause_run,
};
