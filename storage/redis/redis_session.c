/* A way to the servers of one store. */
#include "storage/redis/redis_session.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/memory.h"

static int run_on_link(struct redis_session *session, struct redis_link *link, struct redis_batch *batch,
                       struct err *err);
static bool is_demoted(const struct redis_batch *batch);

struct redis_session *redis_session_new(const struct redis_config *config) {
  struct redis_session *session = mem_new(sizeof *session);
  session->config = config;
  redis_link_init(&session->link, config, &config->endpoints[0],
                  config->kind == REDIS_SENTINEL ? REDIS_ROLE_MASTER : REDIS_ROLE_ANY);
  if (config->kind == REDIS_SENTINEL) {
    session->sentinels = mem_new((size_t)config->n_endpoints * sizeof *session->sentinels);
    for (int i = 0; i < config->n_endpoints; i++)
      redis_link_init(&session->sentinels[i], config, &config->endpoints[i], REDIS_ROLE_SENTINEL);
  }
  if (config->kind == REDIS_CLUSTER)
    redis_cluster_init(session);
  return session;
}

void redis_session_free(struct redis_session *session) {
  redis_link_fini(&session->link);
  for (int i = 0; session->sentinels && i < session->config->n_endpoints; i++)
    redis_link_fini(&session->sentinels[i]);
  free(session->sentinels);
  if (session->cluster)
    redis_cluster_fini(session);
  free(session);
}

int redis_session_run(struct redis_session *session, struct redis_batch *batch, struct err *err) {
  int rc;
  *err = ERR_NONE;
  if (batch->n == 0)
    return 0;
  if (!session->cluster)
    rc = run_on_link(session, &session->link, batch, err);
  else if (batch->master >= 0)
    rc = run_on_link(session, redis_cluster_link(session, batch->master), batch, err);
  else
    rc = redis_cluster_run(session, batch, err);
  if (rc)
    redis_commands_fini(batch->commands, batch->n);
  return rc;
}

int redis_session_masters(struct redis_session *session, int **masters, int *n, struct err *err) {
  *err = ERR_NONE;
  if (session->cluster)
    return redis_cluster_masters(session, masters, n, err);
  *masters = mem_new(sizeof **masters);
  *n = 1;
  return 0;
}

/* A second time, on a new connection, if the first one broke; what a demoted master refused was not done. */
static int run_on_link(struct redis_session *session, struct redis_link *link, struct redis_batch *batch,
                       struct err *err) {
  struct redis_pipeline pipeline = {
      .link = link, .commands = mem_new(((size_t)batch->n + 1) * sizeof *pipeline.commands), .n = batch->n};
  bool is_again = false, is_master = session->sentinels != NULL;
  int rc;
  for (int i = 0; i < batch->n; i++)
    pipeline.commands[i] = &batch->commands[i];
  for (;; is_again = true) {
    rc = is_master ? redis_sentinel_connect(session, err) : redis_link_connect(link, err);
    if (rc)
      break;
    rc = redis_pipeline_run(&pipeline, batch, err);
    if (rc == ERR_UNAVAILABLE && batch->is_repeatable && !is_again)
      continue;
    if (!rc && !is_again && is_master && is_demoted(batch)) {
      redis_commands_fini(batch->commands, batch->n);
      redis_link_close(link);
      continue;
    }
    if (!rc)
      rc = redis_pipeline_check(&pipeline, err);
    break;
  }
  free(pipeline.commands);
  return rc;
}

static bool is_demoted(const struct redis_batch *batch) {
  for (int i = 0; i < batch->n; i++)
    if (redis_reply_is_error(batch->commands[i].reply, "READONLY"))
      return true;
  return false;
}

int redis_pipeline_run(struct redis_pipeline *pipeline, struct redis_batch *batch, struct err *err) {
  const struct redis_config *config = pipeline->link->config;
  struct redis_command *wait;
  char replicas[16], timeout[16];
  int rc;
  pipeline->n_replicas = INT_MAX;
  if (!batch->is_write || config->replicas == 0) {
    rc = redis_link_exchange(pipeline->link, pipeline->commands, pipeline->n, err);
    batch->is_in_doubt |= rc != 0;
    return rc;
  }
  /* Its answer must come before we stop waiting for it. */
  snprintf(replicas, sizeof replicas, "%d", config->replicas);
  snprintf(timeout, sizeof timeout, "%d", config->timeout_ms - config->timeout_ms / 4);
  wait = mem_new(sizeof *wait);
  redis_command_add_text(wait, "WAIT");
  redis_command_add_text(wait, replicas);
  redis_command_add_text(wait, timeout);
  pipeline->commands[pipeline->n] = wait;
  rc = redis_link_exchange(pipeline->link, pipeline->commands, pipeline->n + 1, err);
  batch->is_in_doubt |= rc != 0;
  if (!rc)
    pipeline->n_replicas =
        wait->reply->type == REDIS_REPLY_INTEGER && wait->reply->integer > 0 && wait->reply->integer < INT_MAX
            ? (int)wait->reply->integer
            : 0;
  redis_commands_fini(wait, 1);
  free(wait);
  return rc;
}

int redis_pipeline_check(const struct redis_pipeline *pipeline, struct err *err) {
  int wanted = pipeline->link->config->replicas;
  if (redis_link_check(pipeline->link, pipeline->commands, pipeline->n, err))
    return err->code;
  if (pipeline->n_replicas >= wanted)
    return 0;
  err_set(err, ERR_UNAVAILABLE, "only %d of %d replicas have the write", pipeline->n_replicas, wanted);
  return redis_link_err(pipeline->link, err);
}
