/* weir pause: checkpoint a run and let its members go. */
#include <inttypes.h>
#include <stdio.h>

#include "client/command.h"
#include "client/connect.h"
#include "client/output.h"

static int pause_run(const struct args *args) {
  Weir__RunRequest request = WEIR__RUN_REQUEST__INIT;
  struct connection connection = {0};
  Weir__RunInfo *info = NULL;
  struct err err = ERR_NONE;
  request.run = (char *)args->arguments[0];
  if (connection_open(&connection, args->coordinator, &err) == 0 &&
      connection_call(&connection, RPC_PAUSE, &request, (void **)&info, &err) == 0) {
    output_run_line(stdout, info);
    weir__run_info__free_unpacked(info, NULL);
  }
  connection_close(&connection);
  return err.code ? command_fail(&err) : EXIT_DONE;
}

const struct command_def command_pause = {
    .name = "pause",
    .summary = "checkpoint a run and let its members go",
    .arguments = "RUN",
    .min_arguments = 1,
    .max_arguments = 1,
    .takes_coordinator = true,
    .description =
        "Has RUN (an id or a unique prefix of one) write a checkpoint some steps later and stop there: its "
        "servers and workers are free for other runs then. The command does not wait for that: `weir status` "
        "says when the run is paused. `weir resume` takes it up again, and the result is the same bits as "
        "without a pause.",
    .examples = "weir pause fashion-mnist\n",
    .run = pause_run,
};
