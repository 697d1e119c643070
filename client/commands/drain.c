/* weir drain: a worker hands over its work and is given no more. */
#include <stdio.h>

#include "client/cluster/connect.h"
#include "client/command.h"
#include "client/terminal/output.h"

static int drain_run(const struct args *args) {
  Weir__DrainRequest request = WEIR__DRAIN_REQUEST__INIT;
  struct connection connection = {0};
  Weir__WorkerInfo *worker = NULL;
  struct err err = ERR_NONE;
  request.worker = (char *)args->arguments[0];
  if (connection_open(&connection, args->coordinator, &err) == 0 &&
      connection_call(&connection, RPC_DRAIN_WORKER, &request, (void **)&worker, &err) == 0) {
    output_clean(worker->host);
    printf("%s (%s, pid %u) is draining\n", worker->id, worker->host, worker->pid);
    weir__worker_info__free_unpacked(worker, NULL);
  }
  connection_close(&connection);
  return err.code ? command_fail(&err) : EXIT_DONE;
}

const struct command_def command_drain = {
    .name = "drain",
    .summary = "give a worker no more work, before its machine is taken away",
    .arguments = "WORKER",
    .min_arguments = 1,
    .max_arguments = 1,
    .takes_coordinator = true,
    .description =
        "WORKER, an id that `weir workers` lists, hands over its work to the other workers of its run and is "
        "given no more, by this coordinator or another one. Its process goes on, in the state draining, "
        "until somebody ends it: started again it is a new worker. The run's result does not change.",
    .examples = "weir drain worker-3\n",
    .run = drain_run,
};
