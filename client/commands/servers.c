/* weir servers: the parameter servers of a cluster. */
#include <stdio.h>

#include "client/cluster/connect.h"
#include "client/command.h"
#include "client/terminal/output.h"

enum { MESSAGE_MAX = 64 };

static void servers_print(const Weir__ListServersReply *reply);

static int servers_run(const struct args *args) {
  Weir__ListServersRequest request = WEIR__LIST_SERVERS_REQUEST__INIT;
  struct connection connection = {0};
  Weir__ListServersReply *reply = NULL;
  struct err err = ERR_NONE;
  if (connection_open(&connection, args->coordinator, &args->security, &err) == 0 &&
      connection_call(&connection, RPC_LIST_SERVERS, &request, (void **)&reply, &err) == 0) {
    if (args_flag(args, "json"))
      output_json_list(stdout, (ProtobufCMessage *const *)reply->servers, reply->n_servers);
    else
      servers_print(reply);
    weir__list_servers_reply__free_unpacked(reply, NULL);
  }
  connection_close(&connection);
  return err.code ? command_fail(&err) : EXIT_DONE;
}

/* Of one that drains, how far that is. */
static const char *server_message(const Weir__ServerInfo *server, char text[MESSAGE_MAX]) {
  if (!server->draining)
    return server->message;
  if (server->runs == 0)
    return "drained: it may be stopped";
  snprintf(text, MESSAGE_MAX, "draining: it has blocks of %u run%s", server->runs,
           server->runs == 1 ? "" : "s");
  return text;
}

static void servers_print(const Weir__ListServersReply *reply) {
  static const char *const headings[] = {"SERVER",   "ADDRESS",    "HOST",    ">PID", ">BLOCKS",
                                         ">WEIGHTS", ">CONNECTED", "MESSAGE", NULL};
  struct table table;
  table_init(&table, headings);
  for (size_t i = 0; i < reply->n_servers; i++) {
    const Weir__ServerInfo *server = reply->servers[i];
    char pid[16], blocks[16], bytes[OUTPUT_TEXT_MAX], connected[OUTPUT_TEXT_MAX], text[MESSAGE_MAX];
    snprintf(pid, sizeof pid, "%u", server->pid);
    output_clean(server->message);
    snprintf(blocks, sizeof blocks, "%u", server->blocks);
    table_row(&table, (const char *const[]){server->id, server->address, server->host, pid, blocks,
                                            output_bytes(server->bytes, bytes),
                                            output_duration(server->connected_seconds, connected),
                                            server_message(server, text)});
  }
  table_print(&table, stdout);
  table_fini(&table);
}

static const struct option_def servers_options[] = {
    {.name = "json", .kind = OPTION_FLAG, .help = "print a JSON array of objects instead, for programs."},
    {0}};

const struct command_def command_servers = {
    .name = "servers",
    .summary = "list the parameter servers of a cluster",
    .arguments = "",
    .takes_coordinator = true,
    .description =
        "Lists the parameter servers that have joined the coordinator, with the blocks that each owns, "
        "the bytes of their weights, and why runs go on without one.",
    .options = servers_options,
    .examples = "weir servers\nweir servers --json | jq -r '.[].address'\n",
    .run = servers_run,
};
