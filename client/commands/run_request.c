/* Commands that ask the coordinator one thing of one run. */
#include "client/commands/run_request.h"

#include <stdio.h>

#include "client/cluster/connect.h"
#include "client/terminal/output.h"

int run_request(const struct args *args, enum rpc_method_id method) {
  Weir__RunRequest request = WEIR__RUN_REQUEST__INIT;
  struct connection connection = {0};
  Weir__RunInfo *info = NULL;
  struct err err = ERR_NONE;
  request.run = (char *)args->arguments[0];
  if (connection_open(&connection, args->coordinator, &args->security, &err) == 0 &&
      connection_call(&connection, method, &request, (void **)&info, &err) == 0) {
    output_run_line(stdout, info);
    weir__run_info__free_unpacked(info, NULL);
  }
  connection_close(&connection);
  return err.code ? command_fail(&err) : EXIT_DONE;
}
