/* weir cancel: end a run. */
#include <stdio.h>

#include "client/command.h"
#include "client/connect.h"
#include "client/output.h"

static int cancel_run(const struct args *args) {
  Weir__RunRequest request = WEIR__RUN_REQUEST__INIT;
  struct connection connection = {0};
  Weir__RunInfo *info = NULL;
  struct err err = ERR_NONE;
  request.run = (char *)args->arguments[0];
  if (connection_open(&connection, args->coordinator, &err) == 0 &&
      connection_call(&connection, RPC_CANCEL, &request, (void **)&info, &err) == 0) {
    output_run_line(stdout, info);
    weir__run_info__free_unpacked(info, NULL);
  }
  connection_close(&connection);
  return err.code ? command_fail(&err) : EXIT_DONE;
}

const struct command_def command_cancel = {
    .name = "cancel",
    .summary = "end a run",
    .arguments = "RUN",
    .min_arguments = 1,
    .max_arguments = 1,
    .takes_coordinator = true,
    .description =
        "Ends RUN (an id or a unique prefix of one) at once; its servers and workers are free for other "
        "runs. Its checkpoints stay: `weir resume` can take it up again.",
    .examples = "weir cancel fashion-mnist-k3f9a2\n",
    .run = cancel_run,
};
