/* What a server's refusal means here, and what to do about it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/text.h"
#include "storage/redis/redis_link.h"

enum { QUOTE_MAX = 200 };

struct refusal {
  const char *begins; /* the reply */
  enum err_code code;
  const char *text;
};

static const struct refusal refusals[] = {
    {"OOM ", ERR_UNAVAILABLE, "is full (maxmemory): delete old runs or checkpoints, or raise its maxmemory"},
    {"READONLY", ERR_UNAVAILABLE, "is a read-only replica: name its master, or use redis+sentinel://"},
    {"LOADING", ERR_UNAVAILABLE, "is still loading its data"},
    {"MASTERDOWN", ERR_UNAVAILABLE, "is a replica that has lost its master"},
    {"CLUSTERDOWN", ERR_UNAVAILABLE, "says that its cluster is down: some slots have no master"},
    {"TRYAGAIN", ERR_UNAVAILABLE, "is moving these keys to another node"},
    {"NOREPLICAS", ERR_UNAVAILABLE, "has fewer replicas than its min-replicas-to-write asks for"},
    {"MISCONF", ERR_UNAVAILABLE, "takes no writes as it cannot save to its disk (its log says why)"},
    {"BUSY ", ERR_UNAVAILABLE, "is busy with somebody's script"},
    {"ERR max number of clients", ERR_UNAVAILABLE, "has as many clients as its maxclients lets it"},
    {"NOAUTH", ERR_INVALID,
     "asks for a password: put it in the file that WEIR_STORE_PASSWORD_FILE names, or in "
     "WEIR_STORE_PASSWORD"},
    {"WRONGPASS", ERR_INVALID, "refuses the password, or the user's name"},
    {"ERR invalid password", ERR_INVALID, "refuses the password"},
    {"ERR AUTH <password> called", ERR_INVALID, "has no password, but one is given"},
    {"ERR Client sent AUTH", ERR_INVALID, "has no password, but one is given"},
    {"NOPERM", ERR_INVALID, "does not let this user do that (its ACL)"},
    {"DENIED", ERR_INVALID,
     "is in protected mode: it has no password and so takes clients of its own host only"},
    {"ERR DB index", ERR_INVALID, "does not have that database"},
    {"ERR invalid DB index", ERR_INVALID, "does not have that database"},
    {"ERR SELECT is not allowed", ERR_INVALID, "has the database 0 only: it belongs to a cluster"},
    {"MOVED", ERR_INVALID, "belongs to a cluster: use redis+cluster://"},
    {"CROSSSLOT", ERR_INVALID, "belongs to a cluster: use redis+cluster://"},
    {"ERR This instance has cluster support disabled", ERR_INVALID, "belongs to no cluster: use redis://"},
    {"ERR unknown command", ERR_INVALID,
     "lacks a command that the store needs (is it a sentinel? then redis+sentinel://)"},
    {"ERR Protocol error: invalid bulk length", ERR_INVALID,
     "takes no values as large as this one (its proto-max-bulk-len)"},
    {"WRONGTYPE", ERR_IO, "has other data under the store's keys: choose another prefix="},
};

int redis_link_err(const struct redis_link *link, struct err *err) {
  if (link->endpoint.port)
    return err_prefix(err, "store: redis %s:%d", link->endpoint.host, link->endpoint.port);
  return err_prefix(err, "store: redis %s", link->endpoint.host);
}

int redis_link_refused(const struct redis_link *link, const redisReply *reply, struct err *err) {
  const char *password = link->config->password;
  char *quoted;
  for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
    if (!redis_reply_is_error(reply, refusals[i].begins))
      continue;
    err_set(err, refusals[i].code, "%s", refusals[i].text);
    return redis_link_err(link, err);
  }
  /* A server that does not know AUTH repeats its words. */
  if (password && *password && memmem(reply->str, reply->len, password, strlen(password)))
    err_set(err, ERR_IO, "error reply (not shown: it has the password in it)");
  else {
    quoted = text_copy_clean(reply->str, QUOTE_MAX);
    err_set(err, ERR_IO, "error reply '%s'", quoted);
    free(quoted);
  }
  return redis_link_err(link, err);
}

int redis_link_check(struct redis_link *link, struct redis_command *const *commands, int n, struct err *err) {
  for (int i = 0; i < n; i++) {
    const struct redis_command *command = commands[i];
    if (command->reply->type == REDIS_REPLY_ERROR)
      return redis_link_refused(link, command->reply, err);
    if (!command->expects || command->expects & REDIS_EXPECTS(command->reply->type))
      continue;
    redis_link_close(link);
    err_set(err, ERR_IO, "the reply to %.*s is not of its kind", (int)command->sizes[0], command->words[0]);
    return redis_link_err(link, err);
  }
  return 0;
}

/* Before release 7 a script's error is "ERR Error running script ... -OOM command not allowed ...". */
bool redis_reply_is_error(const redisReply *reply, const char *word) {
  char passed_on[64];
  if (reply->type != REDIS_REPLY_ERROR)
    return false;
  snprintf(passed_on, sizeof passed_on, ": -%s", word);
  return strncmp(reply->str, word, strlen(word)) == 0 ||
         (strncmp(reply->str, "ERR Error running script", 24) == 0 && strstr(reply->str, passed_on));
}
