/* Sentinel: who is the master now? Each sentinel is asked in turn, beginning with the one that knew last
   time, until the server that it names says itself that it is a master: a sentinel may be behind, or cut off
   together with a former master. */
#include <string.h>

#include "storage/redis/redis_session.h"

/* Of all that went wrong, the most telling is reported. */
enum failure { FAILURE_NONE, FAILURE_SENTINEL, FAILURE_UNKNOWN_NAME, FAILURE_MASTER };

static enum failure try_sentinel(struct redis_session *session, struct redis_link *sentinel, struct err *err);
static int sentinel_ask(struct redis_session *session, struct redis_link *sentinel,
                        struct redis_endpoint *master, struct err *err);
static int take_answer(const redisReply *reply, const char *name, struct redis_endpoint *master,
                       struct err *err);

int redis_sentinel_connect(struct redis_session *session, struct err *err) {
  enum failure worst = FAILURE_NONE;
  int n = session->config->n_endpoints;
  *err = ERR_NONE;
  if (redis_link_is_up(&session->link))
    return 0;
  for (int i = 0; i < n; i++) {
    int which = (session->newest_sentinel + i) % n;
    struct err one = ERR_NONE;
    enum failure failure = try_sentinel(session, &session->sentinels[which], &one);
    if (failure == FAILURE_NONE) {
      session->newest_sentinel = which;
      *err = ERR_NONE;
      return 0;
    }
    if (failure > worst) {
      worst = failure;
      *err = one;
    }
  }
  return err->code;
}

static enum failure try_sentinel(struct redis_session *session, struct redis_link *sentinel,
                                 struct err *err) {
  struct redis_link *master = &session->link;
  struct redis_endpoint endpoint;
  int rc = sentinel_ask(session, sentinel, &endpoint, err);
  if (rc)
    return rc == ERR_INVALID ? FAILURE_UNKNOWN_NAME : FAILURE_SENTINEL;
  /* The same server as before: its pause between attempts holds, so several sentinels cost one attempt. */
  if (endpoint.port != master->endpoint.port || strcmp(endpoint.host, master->endpoint.host) != 0) {
    redis_link_fini(master);
    redis_link_init(master, session->config, &endpoint, REDIS_ROLE_MASTER);
  }
  return redis_link_connect(master, err) ? FAILURE_MASTER : FAILURE_NONE;
}

static int sentinel_ask(struct redis_session *session, struct redis_link *sentinel,
                        struct redis_endpoint *master, struct err *err) {
  struct redis_command command = {.expects =
                                      REDIS_EXPECTS(REDIS_REPLY_ARRAY) | REDIS_EXPECTS(REDIS_REPLY_NIL)};
  struct redis_command *list = &command;
  int rc = redis_link_connect(sentinel, err);
  if (rc)
    return rc;
  redis_command_add_text(&command, "SENTINEL");
  redis_command_add_text(&command, "get-master-addr-by-name");
  redis_command_add_text(&command, session->config->master);
  rc = redis_link_exchange(sentinel, &list, 1, err);
  if (!rc)
    rc = redis_link_check(sentinel, &list, 1, err);
  if (!rc && take_answer(command.reply, session->config->master, master, err))
    rc = redis_link_err(sentinel, err);
  redis_commands_fini(&command, 1);
  return rc;
}

static int take_answer(const redisReply *reply, const char *name, struct redis_endpoint *master,
                       struct err *err) {
  const char *host = reply->elements == 2 ? redis_reply_text(reply->element[0]) : NULL;
  const char *port = reply->elements == 2 ? redis_reply_text(reply->element[1]) : NULL;
  if (reply->type == REDIS_REPLY_NIL)
    return err_set(err, ERR_INVALID, "the sentinel knows no master named '%.80s'", name);
  if (!host || !port || !redis_endpoint_make(host, port, master))
    return err_set(err, ERR_IO, "the sentinel's answer is no address");
  return 0;
}
