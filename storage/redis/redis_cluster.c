/* Redis Cluster: which master has which slot. The map comes from CLUSTER SLOTS of any node that answers, and
   MOVED corrects it slot by slot; after a node was lost it is asked for anew. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/memory.h"
#include "storage/redis/redis_session.h"

enum { SLOTS = 16384, NODES_MAX = 1000, ROUNDS_MAX = 16, TRYAGAIN_PAUSE_MS = 50, MAP_BYTES_MAX = 64 << 20 };

struct redis_cluster {
  struct redis_link *nodes[NODES_MAX]; /* the URL's first; they stay where they are */
  int n_nodes;
  bool is_known;
  int16_t slots[SLOTS]; /* node, or -1 */
};

/* A batch on its way. */
struct cluster_run {
  struct redis_session *session;
  struct redis_cluster *cluster;
  struct redis_batch *batch;
  bool *is_done; /* [batch->n] */
  int16_t
      *asking; /* [batch->n]: the node that the slot is moving to and that has the key already; -1: none */
  struct redis_command **list; /* [2 * batch->n + 1]: to one node */
  struct redis_command *ask;   /* [batch->n]: ASKING, before a command of the list */
  int *sent;                   /* [n_sent]: which commands that node got */
  int n_sent;
  bool has_lost, has_to_pause;
};

static int run_rounds(struct cluster_run *run, struct err *err);
static int run_node(struct cluster_run *run, int node, struct err *err);
static int lose_node(struct cluster_run *run, struct err *err);
static int take_replies(struct cluster_run *run, int node, struct redis_pipeline *pipeline, struct err *err);
static bool is_redirected(struct cluster_run *run, int i, int node);
static bool redirection_follow(struct cluster_run *run, int i, int node);
static int target_of(const struct cluster_run *run, int i);
static int read_map(struct redis_session *session, struct err *err);
static int ask_map(struct redis_session *session, int node, struct err *err);
static bool take_map(struct redis_session *session, const redisReply *reply, int asked);
static int node_at(struct redis_session *session, const struct redis_endpoint *endpoint);

void redis_cluster_init(struct redis_session *session) {
  session->cluster = mem_new(sizeof *session->cluster);
  for (int i = 0; i < session->config->n_endpoints; i++)
    node_at(session, &session->config->endpoints[i]);
}

void redis_cluster_fini(struct redis_session *session) {
  for (int i = 0; i < session->cluster->n_nodes; i++) {
    redis_link_fini(session->cluster->nodes[i]);
    free(session->cluster->nodes[i]);
  }
  free(session->cluster);
}

struct redis_link *redis_cluster_link(struct redis_session *session, int master) {
  return session->cluster->nodes[master];
}

int redis_cluster_masters(struct redis_session *session, int **masters, int *n, struct err *err) {
  struct redis_cluster *cluster = session->cluster;
  bool is_master[NODES_MAX] = {false};
  if (read_map(session, err))
    return err->code;
  for (int slot = 0; slot < SLOTS; slot++) {
    if (cluster->slots[slot] < 0)
      return err_set(err, ERR_UNAVAILABLE, "store: redis cluster: slot %d has no master", slot);
    is_master[cluster->slots[slot]] = true;
  }
  *masters = mem_new((size_t)cluster->n_nodes * sizeof **masters);
  *n = 0;
  for (int i = 0; i < cluster->n_nodes; i++)
    if (is_master[i])
      (*masters)[(*n)++] = i;
  return 0;
}

int redis_cluster_run(struct redis_session *session, struct redis_batch *batch, struct err *err) {
  size_t n = (size_t)batch->n;
  struct cluster_run run = {
      .session = session,
      .cluster = session->cluster,
      .batch = batch,
      .is_done = mem_new(n * sizeof *run.is_done),
      .asking = mem_new(n * sizeof *run.asking),
      .list = mem_new((2 * n + 1) * sizeof *run.list),
      .ask = mem_new(n * sizeof *run.ask),
      .sent = mem_new(n * sizeof *run.sent),
  };
  int rc;
  for (size_t i = 0; i < n; i++) {
    run.asking[i] = -1;
    redis_command_add_text(&run.ask[i], "ASKING");
  }
  rc = run_rounds(&run, err);
  redis_commands_fini(run.ask, batch->n);
  free(run.is_done);
  free(run.asking);
  free(run.list);
  free(run.ask);
  free(run.sent);
  return rc;
}

/* A round sends to each node what it should have and is not done yet. */
static int run_rounds(struct cluster_run *run, struct err *err) {
  struct redis_cluster *cluster = run->cluster;
  for (int round = 0; round < ROUNDS_MAX; round++) {
    int n_left = 0;
    if (!cluster->is_known && read_map(run->session, err))
      return err->code;
    run->has_to_pause = false;
    for (int i = 0; i < run->batch->n; i++) {
      if (run->is_done[i])
        continue;
      n_left++;
      if (target_of(run, i) < 0) {
        cluster->is_known = false;
        return err_set(err, ERR_UNAVAILABLE, "store: redis cluster: slot %d has no master",
                       run->batch->commands[i].slot);
      }
      if (run_node(run, target_of(run, i), err))
        return err->code;
    }
    if (n_left == 0)
      return 0;
    if (run->has_to_pause)
      nanosleep(&(struct timespec){.tv_nsec = TRYAGAIN_PAUSE_MS * 1000000L}, NULL);
  }
  return err_set(err, ERR_UNAVAILABLE,
                 run->has_to_pause ? "store: redis cluster: the slot of these keys is moving to another node"
                                   : "store: redis cluster: its nodes send us from one to another");
}

static int run_node(struct cluster_run *run, int node, struct err *err) {
  struct redis_pipeline pipeline = {.link = run->cluster->nodes[node], .commands = run->list};
  int rc;
  run->n_sent = 0;
  for (int i = 0; i < run->batch->n; i++) {
    if (run->is_done[i] || target_of(run, i) != node)
      continue;
    run->sent[run->n_sent++] = i;
    if (run->asking[i] >= 0)
      run->list[pipeline.n++] = &run->ask[i];
    run->list[pipeline.n++] = &run->batch->commands[i];
  }
  if (redis_link_connect(pipeline.link, err))
    return err->code == ERR_INVALID ? ERR_INVALID : lose_node(run, err);
  rc = redis_pipeline_run(&pipeline, run->batch, err);
  if (rc == ERR_UNAVAILABLE && run->batch->is_repeatable)
    return lose_node(run, err);
  if (rc) {
    run->cluster->is_known = false;
    return rc;
  }
  return take_replies(run, node, &pipeline, err);
}

/* The first time, the other nodes are asked which of them has its slots by now. */
static int lose_node(struct cluster_run *run, struct err *err) {
  run->cluster->is_known = false;
  for (int i = 0; i < run->batch->n; i++)
    run->asking[i] = -1;
  if (run->has_lost)
    return err->code;
  run->has_lost = true;
  return read_map(run->session, err);
}

/* The pipeline becomes what was done. */
static int take_replies(struct cluster_run *run, int node, struct redis_pipeline *pipeline, struct err *err) {
  pipeline->n = 0;
  for (int k = 0; k < run->n_sent; k++) {
    int i = run->sent[k];
    redis_commands_fini(&run->ask[i], 1);
    if (is_redirected(run, i, node))
      continue;
    run->is_done[i] = true;
    run->list[pipeline->n++] = &run->batch->commands[i];
  }
  return pipeline->n == 0 ? 0 : redis_pipeline_check(pipeline, err);
}

/* True if the node did not run the command, which goes out again. */
static bool is_redirected(struct cluster_run *run, int i, int node) {
  struct redis_command *command = &run->batch->commands[i];
  bool is_busy = redis_reply_is_error(command->reply, "TRYAGAIN");
  run->has_to_pause |= is_busy;
  if (!is_busy && !redirection_follow(run, i, node))
    return false;
  redis_commands_fini(command, 1);
  return true;
}

/* "MOVED 3999 HOST:PORT", "ASK 3999 HOST:PORT"; no HOST, or '?': the one that says so. */
static bool redirection_follow(struct cluster_run *run, int i, int node) {
  const redisReply *reply = run->batch->commands[i].reply;
  struct redis_endpoint endpoint;
  char host[REDIS_HOST_SIZE], *port;
  bool is_ask = redis_reply_is_error(reply, "ASK "), is_moved = redis_reply_is_error(reply, "MOVED ");
  int target, slot = run->batch->commands[i].slot;
  if ((!is_ask && !is_moved) || sscanf(reply->str, "%*s %*d %255s", host) != 1 ||
      !(port = strrchr(host, ':')))
    return false;
  *port++ = 0;
  if (!redis_endpoint_make(*host && strcmp(host, "?") ? host : run->cluster->nodes[node]->endpoint.host, port,
                           &endpoint))
    return false;
  target = node_at(run->session, &endpoint);
  if (target < 0)
    return false;
  run->asking[i] = is_ask ? (int16_t)target : -1;
  if (is_moved)
    run->cluster->slots[slot] = (int16_t)target;
  return true;
}

static int target_of(const struct cluster_run *run, int i) {
  return run->asking[i] >= 0 ? run->asking[i] : run->cluster->slots[run->batch->commands[i].slot];
}

/* Of the first node that answers. */
static int read_map(struct redis_session *session, struct err *err) {
  struct redis_cluster *cluster = session->cluster;
  struct err worst = ERR_NONE;
  cluster->is_known = false;
  for (int i = 0; i < cluster->n_nodes; i++) {
    int rc = ask_map(session, i, err);
    if (!rc) {
      cluster->is_known = true;
      return 0;
    }
    if (worst.code == ERR_OK || rc == ERR_INVALID)
      worst = *err;
  }
  *err = worst;
  return err->code;
}

static int ask_map(struct redis_session *session, int node, struct err *err) {
  struct redis_command command = {.expects = REDIS_EXPECTS(REDIS_REPLY_ARRAY),
                                  .reply_bytes_max = MAP_BYTES_MAX};
  struct redis_command *list = &command;
  struct redis_link *link = session->cluster->nodes[node];
  int rc = redis_link_connect(link, err);
  if (rc)
    return rc;
  redis_command_add_text(&command, "CLUSTER");
  redis_command_add_text(&command, "SLOTS");
  rc = redis_link_exchange(link, &list, 1, err);
  if (!rc)
    rc = redis_link_check(link, &list, 1, err);
  if (!rc && !take_map(session, command.reply, node)) {
    err_set(err, ERR_IO, "the reply to CLUSTER SLOTS is no map of slots");
    rc = redis_link_err(link, err);
  }
  redis_commands_fini(&command, 1);
  return rc;
}

/* Items: first slot, last slot, (host, port, ...) of the master, then its replicas. */
static bool take_map(struct redis_session *session, const redisReply *reply, int asked) {
  struct redis_cluster *cluster = session->cluster;
  if (reply->elements > SLOTS)
    return false;
  memset(cluster->slots, -1, sizeof cluster->slots);
  for (size_t i = 0; i < reply->elements; i++) {
    const redisReply *range = reply->element[i], *master = range->elements < 3 ? NULL : range->element[2];
    const char *host;
    struct redis_endpoint endpoint;
    char port[24];
    int node;
    if (!master || range->element[0]->type != REDIS_REPLY_INTEGER ||
        range->element[1]->type != REDIS_REPLY_INTEGER || range->element[0]->integer < 0 ||
        range->element[1]->integer >= SLOTS || master->elements < 2 ||
        master->element[1]->type != REDIS_REPLY_INTEGER)
      return false;
    host = redis_reply_text(master->element[0]);
    snprintf(port, sizeof port, "%lld", master->element[1]->integer);
    if (!redis_endpoint_make(host && *host && strcmp(host, "?") ? host : cluster->nodes[asked]->endpoint.host,
                             port, &endpoint) ||
        (node = node_at(session, &endpoint)) < 0)
      return false;
    for (long long slot = range->element[0]->integer; slot <= range->element[1]->integer; slot++)
      cluster->slots[slot] = (int16_t)node;
  }
  return true;
}

/* The node at an endpoint, made if it is new; -1 when there are too many. */
static int node_at(struct redis_session *session, const struct redis_endpoint *endpoint) {
  struct redis_cluster *cluster = session->cluster;
  for (int i = 0; i < cluster->n_nodes; i++) {
    const struct redis_endpoint *known = &cluster->nodes[i]->endpoint;
    if (known->port == endpoint->port && strcmp(known->host, endpoint->host) == 0)
      return i;
  }
  if (cluster->n_nodes == NODES_MAX)
    return -1;
  cluster->nodes[cluster->n_nodes] = mem_new(sizeof **cluster->nodes);
  redis_link_init(cluster->nodes[cluster->n_nodes], session->config, endpoint, REDIS_ROLE_ANY);
  return cluster->n_nodes++;
}

/* CRC-16/XMODEM: polynomial 0x1021, from 0. */
int redis_key_slot(const char *key, size_t size) {
  const char *open = memchr(key, '{', size);
  const char *close = open ? memchr(open, '}', size - (size_t)(open - key)) : NULL;
  uint16_t crc = 0;
  if (close && close > open + 1) {
    key = open + 1;
    size = (size_t)(close - key);
  }
  for (size_t i = 0; i < size; i++) {
    crc ^= (uint16_t)((unsigned char)key[i] << 8);
    for (int bit = 0; bit < 8; bit++)
      crc = (uint16_t)(crc & 0x8000 ? crc << 1 ^ 0x1021 : crc << 1);
  }
  return crc % SLOTS;
}
