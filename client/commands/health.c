/* weir health: the standard gRPC health check, for probes of containers and scripts that wait. */
#include <stdio.h>

#include "client/cluster/connect.h"
#include "client/command.h"

enum { PROBE_DEADLINE_MS = 3000 };

static int health_run(const struct args *args) {
  const char *address = args->n_arguments ? args->arguments[0] : args->coordinator;
  struct connection connection = {0};
  struct err err = ERR_NONE;
  bool is_serving = false, is_insecure = false;
  if (connection_open_member(&connection, address, &args->security, &err) == 0 &&
      rpc_health_probe(connection.channel, PROBE_DEADLINE_MS, &is_serving, &err) == 0 &&
      rpc_health_probe_insecure(connection.channel, PROBE_DEADLINE_MS, &is_insecure, &err) == 0) {
    puts(is_serving ? "serving" : "not serving");
    if (is_insecure)
      puts("insecure: connections between machines are plaintext");
  }
  if (err.code && connection.channel)
    rpc_channel_explain(connection.channel, &err);
  connection_close(&connection);
  return err.code ? command_fail(&err) : is_serving ? EXIT_DONE : EXIT_RUN_FAILED;
}

const struct command_def command_health = {
    .name = "health",
    .summary = "ask a coordinator or server whether it serves",
    .arguments = "[HOST:PORT]",
    .max_arguments = 1,
    .takes_coordinator = true,
    .description =
        "Asks the process at HOST:PORT, the coordinator's address if none is given, for its health by the "
        "standard gRPC protocol, and prints \"serving\" or \"not serving\". A coordinator that stands by for "
        "another one is not serving. A second line begins with \"insecure\" if the process was started with "
        "--insecure.",
    .if_failed = "the process answers, but does not serve",
    .examples = "weir health\nweir health 10.0.0.7:7071\n",
    .run = health_run,
};
