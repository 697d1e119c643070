/* Candidates for the last word of a command line. */
#include "client/completion/candidates.h"

#include <stdlib.h>
#include <string.h>

#include "client/cluster/connect.h"
#include "client/command.h"
#include "common/base/memory.h"
#include "common/base/message.h"
#include "common/base/text.h"
#include "training.pb-c.h"

enum { ASK_MS = 1000 };

/* What a line says before its last word. */
struct line {
  const struct command_def *command; /* NULL: none is named yet */
  bool is_help;                      /* `weir help`: the command is only asked about */
  bool is_wrong;                     /* there is no such command */
  const struct option_def *option;   /* whose value the last word is; NULL: of none */
  int argument;                      /* which of the command's arguments the last word is */
  const char *coordinator, *tls;     /* NULL: not given */
  bool is_insecure;
};

/* Where the candidates go that begin as the last word does. */
struct offer {
  FILE *file;
  const char *start;
};

static struct line line_read(const char *const *words, int n);
static void offer_commands(const struct offer *offer, const struct line *line);
static void offer_options(const struct offer *offer, const struct command_def *command);
static void offer_values(const struct offer *offer, const struct line *line, const char *placeholder);
static void offer_cluster(const struct offer *offer, const struct line *line, const char *placeholder);

/* Of "RUN[@STEP] [PATH=VALUE]...", say: the text of that number; the last one may stand for several. */
static void placeholder_find(const char *arguments, int number, char out[64]) {
  out[0] = '\0';
  for (int i = 0; *arguments; i++) {
    size_t length = strcspn(arguments, " ");
    bool is_several = length > 3 && strncmp(arguments + length - 3, "...", 3) == 0;
    if (i == number || (i < number && is_several && !arguments[length])) {
      snprintf(out, 64, "%.*s", (int)length, arguments);
      return;
    }
    arguments += length + (arguments[length] == ' ');
  }
}

void candidates_print(FILE *file, const char *const *words, int n) {
  const struct offer offer = {file, n > 0 ? words[n - 1] : ""};
  const struct line line = line_read(words, n - 1);
  char placeholder[64];
  if (line.is_wrong)
    return;
  if (line.option) {
    offer_values(&offer, &line, line.option->value);
  } else if (offer.start[0] == '-' && line.command && !line.is_help) {
    offer_options(&offer, line.command);
  } else {
    offer_commands(&offer, &line);
    if (line.command && !line.is_help) {
      placeholder_find(line.command->arguments, line.argument, placeholder);
      offer_values(&offer, &line, placeholder);
    }
  }
}

static const struct command_def *subcommand_of(const struct command_def *group, const char *word) {
  const struct command_def *const *sub = group->subcommands;
  while (sub && *sub && strcmp((*sub)->name, word) != 0)
    sub++;
  return sub ? *sub : NULL;
}

static const struct command_def *command_named(const char *word) {
  for (const struct command_row *row = command_rows(); row->title || row->command; row++)
    if (row->command && strcmp(row->command->name, word) == 0)
      return row->command;
  return NULL;
}

/* NULL: the command knows none of that name or letter. */
static const struct option_def *option_named(const struct command_def *command, const char *word) {
  const struct option_def *tables[] = {command->options, option_common(command->takes_coordinator)};
  for (int t = 0; t < 2; t++)
    for (const struct option_def *option = tables[t]; option && option->name; option++)
      if (word[1] == '-' ? strcmp(option->name, word + 2) == 0
                         : word[1] == option->letter && word[1] && !word[2])
        return option;
  return NULL;
}

static void take_word(struct line *line, const char *word) {
  const struct command_def *sub =
      line->command && line->argument == 0 ? subcommand_of(line->command, word) : NULL;
  if (!line->command && !line->is_help && strcmp(word, "help") == 0)
    line->is_help = true;
  else if (!line->command)
    line->is_wrong |= (line->command = command_named(word)) == NULL;
  else if (sub)
    line->command = sub;
  else
    line->argument++;
}

static void take_value(struct line *line, const char *value) {
  if (strcmp(line->option->name, "coordinator") == 0)
    line->coordinator = value;
  if (strcmp(line->option->name, "tls") == 0)
    line->tls = value;
  line->option = NULL;
}

static struct line line_read(const char *const *words, int n) {
  struct line line = {0};
  for (int i = 0; i < n; i++) {
    const struct option_def *option =
        words[i][0] == '-' && line.command ? option_named(line.command, words[i]) : NULL;
    if (line.option)
      take_value(&line, words[i]);
    else if (option && option->kind != OPTION_FLAG)
      line.option = option;
    else if (option)
      line.is_insecure |= strcmp(option->name, "insecure") == 0;
    else if (words[i][0] != '-')
      take_word(&line, words[i]);
  }
  return line;
}

/* What comes from the cluster may hold anything. */
static void offer_word(const struct offer *offer, const char *candidate, const char *what) {
  if (strncmp(candidate, offer->start, strlen(offer->start)) == 0 && text_is_clean(candidate))
    fprintf(offer->file, "%s\t%.*s\n", candidate, (int)strcspn(what, "\n\t"), what);
}

static void offer_commands(const struct offer *offer, const struct line *line) {
  if (line->command) {
    for (const struct command_def *const *sub = line->argument == 0 ? line->command->subcommands : NULL;
         sub && *sub; sub++)
      offer_word(offer, (*sub)->name, (*sub)->summary);
    return;
  }
  for (const struct command_row *row = command_rows(); row->title || row->command; row++)
    if (row->command)
      offer_word(offer, row->command->name, row->command->summary);
  if (!line->is_help)
    offer_word(offer, "help", "explain a command");
}

static void offer_options(const struct offer *offer, const struct command_def *command) {
  const struct option_def *tables[] = {command->options, option_common(command->takes_coordinator)};
  for (int t = 0; t < 2; t++)
    for (const struct option_def *option = tables[t]; option && option->name; option++) {
      char name[64];
      snprintf(name, sizeof name, "--%s", option->name);
      offer_word(offer, name, option->help ? option->help : "the coordinator to talk to");
    }
}

/* placeholder: what the usage line or an option's help calls the value. Words in lower case are the values
 * themselves. */
static void offer_values(const struct offer *offer, const struct line *line, const char *placeholder) {
  const char *files[] = {"FILE", "DIR", "SPEC"};
  char words[64], *rest = words;
  offer_cluster(offer, line, placeholder);
  for (size_t i = 0; i < sizeof files / sizeof *files; i++)
    if (strstr(placeholder, files[i])) {
      fputs(":files\n", offer->file);
      return;
    }
  snprintf(words, sizeof words, "%s", placeholder);
  for (char *word; (word = strsep(&rest, "|"));)
    if (word[0] >= 'a' && word[0] <= 'z')
      offer_word(offer, word, "");
}

static void *ask(struct connection *connection, enum rpc_method_id method, const void *request) {
  const struct rpc_question question = {.method = method, .message = request, .deadline_ms = ASK_MS};
  struct err err = ERR_NONE;
  void *reply = NULL;
  return connection_ask(connection, &question, &reply, &err) ? NULL : reply;
}

static void offer_runs(const struct offer *offer, struct connection *connection) {
  const Weir__ListRunsRequest request = WEIR__LIST_RUNS_REQUEST__INIT;
  Weir__ListRunsReply *reply = ask(connection, RPC_LIST_RUNS, &request);
  for (size_t i = 0; reply && i < reply->n_runs; i++)
    if (!*reply->runs[i]->sweep || *offer->start) /* trials are many */
      offer_word(offer, reply->runs[i]->run, "run");
  message_free(reply);
}

static void offer_sweeps(const struct offer *offer, struct connection *connection) {
  const Weir__ListSweepsRequest request = WEIR__LIST_SWEEPS_REQUEST__INIT;
  Weir__ListSweepsReply *reply = ask(connection, RPC_LIST_SWEEPS, &request);
  for (size_t i = 0; reply && i < reply->n_sweeps; i++)
    offer_word(offer, reply->sweeps[i]->sweep, "sweep");
  message_free(reply);
}

static void offer_workers(const struct offer *offer, struct connection *connection) {
  const Weir__ListWorkersRequest request = WEIR__LIST_WORKERS_REQUEST__INIT;
  Weir__ListWorkersReply *reply = ask(connection, RPC_LIST_WORKERS, &request);
  for (size_t i = 0; reply && i < reply->n_workers; i++)
    offer_word(offer, reply->workers[i]->id, "worker");
  message_free(reply);
}

static void offer_servers(const struct offer *offer, struct connection *connection) {
  const Weir__ListServersRequest request = WEIR__LIST_SERVERS_REQUEST__INIT;
  Weir__ListServersReply *reply = ask(connection, RPC_LIST_SERVERS, &request);
  for (size_t i = 0; reply && i < reply->n_servers; i++)
    offer_word(offer, reply->servers[i]->id, "server");
  message_free(reply);
}

static void offer_cluster(const struct offer *offer, const struct line *line, const char *placeholder) {
  static const struct {
    const char *word;
    void (*offer)(const struct offer *offer, struct connection *connection);
  } kinds[] = {
      {"RUN", offer_runs}, {"SWEEP", offer_sweeps}, {"WORKER", offer_workers}, {"SERVER", offer_servers}};
  const char *usual = getenv("WEIR_COORDINATOR");
  const char *address = line->coordinator ? line->coordinator : usual && *usual ? usual : "127.0.0.1:7070";
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    struct connection connection = {0};
    struct rpc_security security;
    struct err err = ERR_NONE;
    if (!strstr(placeholder, kinds[i].word))
      continue;
    if (rpc_security_choose(line->tls, line->is_insecure, &security, &err) == 0 &&
        connection_open(&connection, address, &security, &err) == 0)
      kinds[i].offer(offer, &connection);
    connection_close(&connection);
  }
}
