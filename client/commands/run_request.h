/* Commands that ask the coordinator one thing of one run. */
#ifndef WEIR_CLIENT_COMMANDS_RUN_REQUEST_H
#define WEIR_CLIENT_COMMANDS_RUN_REQUEST_H

#include "client/command.h"
#include "common/rpc/client.h"

/* Calls a method that takes RunRequest, of the run that the first argument names, and gives RunInfo; prints
   what became of it. Returns the exit status. */
int run_request(const struct args *args, enum rpc_method_id method);

#endif
