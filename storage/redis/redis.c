/* The redis stores: one server, Sentinel, or Cluster.

     PREFIX:b:SHA256       a block
     {PREFIX}:r:NAME       a record; the braces put all records in one slot of a cluster, so that one script
                           sees them all
     {PREFIX}:names        a sorted set of the records' names, all of score 0: ZRANGEBYLEX lists them

   Calls of several threads go at the same time, each on a session (connections) of its own, at most
   SESSIONS_MAX of them; further calls wait. No lock is held while a server is talked to.

   replicas=N: WAIT follows the writes on the same connection. It covers all that this master wrote before. So
   when a manifest has its replicas, the master's blocks have them, too, even those of an earlier call that
   failed because there were too few. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"
#include "storage/redis/redis_list.h"
#include "storage/redis/redis_session.h"
#include "storage/redis/redis_tls.h"
#include "storage/store.h"

enum { SESSIONS_MAX = 6, PUT_BLOCKS_MAX = 8, BLOCK_KEY_SIZE = REDIS_PREFIX_MAX + 3 + STORE_KEY_SIZE };
static const size_t block_bytes_max = (size_t)512 << 20, record_bytes_max = (size_t)256 << 20;

struct redis_store {
  struct store base;
  struct redis_config config;
  char *index; /* key of the names */
  pthread_mutex_t mutex;
  pthread_cond_t came_back;
  struct redis_session *idle[SESSIONS_MAX]; /* the newest used last */
  int n_idle, n_sessions;
};

extern const struct store_def store_redis;

/* A batch with a command for each of n blocks. */
struct block_call {
  struct redis_store *store;
  struct redis_batch batch;
  char (*keys)[BLOCK_KEY_SIZE];
};

/* KEYS: the record, the names, then each guard's record. ARGV: the name, "1" to write or "0" to delete, the
   content, then for each guard "1" and its content, or "0" and nothing. Answers 0, or which guard does not
   hold. The names first: what could fail there must not leave a record written. */
static const char write_script[] = "for i = 3, #KEYS do\n"
                                   "  local now = redis.call('GET', KEYS[i])\n"
                                   "  if ARGV[2 * i - 2] == '0' then\n"
                                   "    if now then return i - 2 end\n"
                                   "  elseif now ~= ARGV[2 * i - 1] then return i - 2 end\n"
                                   "end\n"
                                   "if ARGV[2] == '1' then\n"
                                   "  redis.call('ZADD', KEYS[2], 0, ARGV[1])\n"
                                   "  redis.call('SET', KEYS[1], ARGV[3])\n"
                                   "else\n"
                                   "  redis.call('ZREM', KEYS[2], ARGV[1])\n"
                                   "  redis.call('DEL', KEYS[1])\n"
                                   "end\n"
                                   "return 0\n";

static int redis_open(const char *url, struct store **out, struct err *err);
static void redis_close(struct store *base);
static int redis_put_blocks(struct store *base, const struct store_block *blocks, int n, struct err *err);
static int redis_has_blocks(struct store *base, const char *const *keys, int n, bool *has, struct err *err);
static int redis_get_blocks(struct store *base, struct store_read *reads, int n, struct err *err);
static int redis_delete_blocks(struct store *base, const char *const *keys, int n, struct err *err);
static int redis_list_all_blocks(struct store *base,
                                 int (*each)(void *user, const char *key, uint64_t size_bytes), void *user,
                                 struct err *err);
static int redis_write_record(struct store *base, const struct store_record *record, struct err *err);
static int redis_get_record(struct store *base, const char *name, void **data, size_t *size, struct err *err);
static int redis_list_records(struct store *base, const char *prefix, struct store_names *names,
                              struct err *err);
static struct redis_session *session_borrow(struct redis_store *store);
static void session_give_back(struct redis_store *store, struct redis_session *session);
static int batch_run(struct redis_store *store, struct redis_batch *batch, struct err *err);
static int check_server(struct redis_store *store, struct err *err);
static void call_init(struct block_call *call, struct redis_store *store, int n);
static struct redis_command *call_add(struct block_call *call, const char *command, const char *sha256);
static void call_fini(struct block_call *call);
static int write_guarded(struct redis_store *store, const struct store_record *record, bool *is_in_doubt,
                         struct err *err);
static int confirm_write(struct redis_store *store, const struct store_record *record, struct err *err);
static char *record_key(const struct redis_store *store, const char *name);

/* None of the servers that the URL names is asked before all may be. */
static int check_reach(const struct redis_config *config, struct err *err) {
  for (int i = 0; i < config->n_endpoints; i++)
    if (redis_endpoint_allow(&config->endpoints[i], config, err))
      return err_prefix(err, "store: %s:%d", config->endpoints[i].host, config->endpoints[i].port);
  return 0;
}

static int redis_check_url(const char *url, struct err *err) {
  struct redis_config config;
  int rc = redis_config_init(&config, url, err);
  rc = rc ? rc : check_reach(&config, err);
  redis_config_fini(&config);
  return rc;
}

static int redis_open(const char *url, struct store **out, struct err *err) {
  struct redis_store *store = mem_new(sizeof *store);
  int rc;
  store->base.def = &store_redis;
  pthread_mutex_init(&store->mutex, NULL);
  pthread_cond_init(&store->came_back, NULL);
  rc = redis_config_init(&store->config, url, err);
  store->index = mem_printf("{%s}:names", store->config.prefix);
  rc = rc ? rc : check_reach(&store->config, err);
  if (!rc)
    rc = redis_tls_init(&store->config, err);
  if (!rc)
    rc = check_server(store, err);
  if (rc)
    redis_close(&store->base);
  else
    *out = &store->base;
  return rc;
}

/* That it answers to a command on our keys: it is a Redis, of the kind that the URL says, and lets us in. Two
   keys of two slots are more than a node of a cluster takes in one command, whichever slots it has. */
static int check_server(struct redis_store *store, struct err *err) {
  struct redis_command exists = {.expects = REDIS_EXPECTS(REDIS_REPLY_INTEGER)};
  struct redis_batch batch = {.commands = &exists, .n = 1, .master = -1, .is_repeatable = true};
  char *block = mem_printf("%s:b:", store->config.prefix);
  int rc;
  redis_command_add_text(&exists, "EXISTS");
  redis_command_add_text(&exists, store->index);
  if (store->config.kind != REDIS_CLUSTER)
    redis_command_add_text(&exists, block);
  exists.slot = redis_key_slot(store->index, strlen(store->index));
  rc = batch_run(store, &batch, err);
  redis_commands_fini(&exists, 1);
  free(block);
  return rc;
}

static void redis_close(struct store *base) {
  struct redis_store *store = (struct redis_store *)base;
  for (int i = 0; i < store->n_idle; i++)
    redis_session_free(store->idle[i]);
  redis_tls_fini(&store->config);
  redis_config_fini(&store->config);
  free(store->index);
  pthread_cond_destroy(&store->came_back);
  pthread_mutex_destroy(&store->mutex);
  free(store);
}

static struct redis_session *session_borrow(struct redis_store *store) {
  struct redis_session *session = NULL;
  pthread_mutex_lock(&store->mutex);
  while (store->n_idle == 0 && store->n_sessions == SESSIONS_MAX)
    pthread_cond_wait(&store->came_back, &store->mutex);
  if (store->n_idle > 0)
    session = store->idle[--store->n_idle];
  else
    store->n_sessions++;
  pthread_mutex_unlock(&store->mutex);
  return session ? session : redis_session_new(&store->config);
}

static void session_give_back(struct redis_store *store, struct redis_session *session) {
  pthread_mutex_lock(&store->mutex);
  store->idle[store->n_idle++] = session;
  pthread_cond_signal(&store->came_back);
  pthread_mutex_unlock(&store->mutex);
}

static int batch_run(struct redis_store *store, struct redis_batch *batch, struct err *err) {
  struct redis_session *session = session_borrow(store);
  int rc = redis_session_run(session, batch, err);
  session_give_back(store, session);
  return rc;
}

static int redis_put_blocks(struct store *base, const struct store_block *blocks, int n, struct err *err) {
  struct block_call call;
  int rc = 0;
  call_init(&call, (struct redis_store *)base, n);
  call.batch.is_write = true;
  for (int i = 0; i < n && !rc; i++) {
    const struct store_block *block = &blocks[i];
    struct redis_command *command;
    size_t size = 0;
    if (block->was_there)
      continue;
    for (int p = 0; p < block->n_parts; p++)
      size += block->parts[p].iov_len;
    if (size > block_bytes_max)
      rc = err_set(err, ERR_INVALID, "store: redis: block %s has %zu bytes, and a value at most %zu",
                   block->sha256, size, block_bytes_max);
    command = call_add(&call, "SET", block->sha256);
    redis_command_add_text(command, "");
    command->value = block->parts;
    command->n_value = block->n_parts;
    command->expects = REDIS_EXPECTS(REDIS_REPLY_STATUS);
  }
  if (!rc)
    rc = batch_run(call.store, &call.batch, err);
  call_fini(&call);
  return rc;
}

static int redis_has_blocks(struct store *base, const char *const *keys, int n, bool *has, struct err *err) {
  struct block_call call;
  int rc;
  call_init(&call, (struct redis_store *)base, n);
  for (int i = 0; i < n; i++)
    call_add(&call, "EXISTS", keys[i])->expects = REDIS_EXPECTS(REDIS_REPLY_INTEGER);
  rc = batch_run(call.store, &call.batch, err);
  for (int i = 0; i < n; i++)
    has[i] = !rc && call.batch.commands[i].reply->integer > 0;
  call_fini(&call);
  return rc;
}

/* The replies' memory becomes the caller's. */
static int redis_get_blocks(struct store *base, struct store_read *reads, int n, struct err *err) {
  struct block_call call;
  int rc;
  call_init(&call, (struct redis_store *)base, n);
  for (int i = 0; i < n; i++) {
    struct redis_command *command = call_add(&call, "GET", reads[i].key);
    command->expects = REDIS_EXPECTS(REDIS_REPLY_STRING) | REDIS_EXPECTS(REDIS_REPLY_NIL);
    command->reply_bytes_max = block_bytes_max + 1;
    command->wants_block = true;
  }
  rc = batch_run(call.store, &call.batch, err);
  for (int i = 0; i < n; i++) {
    redisReply *reply = call.batch.commands[i].reply;
    reads[i].data = rc ? NULL : reply->str;
    reads[i].size = rc ? 0 : reply->len;
    if (!rc)
      reply->str = NULL;
  }
  call_fini(&call);
  return rc;
}

static int redis_delete_blocks(struct store *base, const char *const *keys, int n, struct err *err) {
  struct block_call call;
  int rc;
  call_init(&call, (struct redis_store *)base, n);
  for (int i = 0; i < n; i++)
    call_add(&call, "UNLINK", keys[i])->expects = REDIS_EXPECTS(REDIS_REPLY_INTEGER);
  rc = batch_run(call.store, &call.batch, err);
  call_fini(&call);
  return rc;
}

static int redis_list_all_blocks(struct store *base,
                                 int (*each)(void *user, const char *key, uint64_t size_bytes), void *user,
                                 struct err *err) {
  struct redis_store *store = (struct redis_store *)base;
  struct redis_session *session = session_borrow(store);
  struct redis_found *found = NULL;
  size_t n = 0;
  int rc = redis_list_blocks(session, &found, &n, err);
  session_give_back(store, session);
  for (size_t i = 0; i < n && !rc; i++)
    rc = each(user, found[i].key, found[i].size_bytes);
  free(found);
  return rc;
}

static int redis_write_record(struct store *base, const struct store_record *record, struct err *err) {
  struct redis_store *store = (struct redis_store *)base;
  bool is_in_doubt;
  int rc;
  if (record->size > record_bytes_max)
    return err_set(err, ERR_INVALID, "store: redis: record '%s' has %zu bytes, and may have %zu",
                   record->name, record->size, record_bytes_max);
  rc = write_guarded(store, record, &is_in_doubt, err);
  if (rc == ERR_UNAVAILABLE && is_in_doubt)
    rc = confirm_write(store, record, err);
  return rc;
}

static int write_guarded(struct redis_store *store, const struct store_record *record, bool *is_in_doubt,
                         struct err *err) {
  struct redis_command eval = {.expects = REDIS_EXPECTS(REDIS_REPLY_INTEGER)};
  struct redis_batch batch = {.commands = &eval, .n = 1, .master = -1, .is_write = true};
  const struct store_record *all[STORE_GUARDS_MAX + 1] = {record}; /* then its guards */
  char *keys[STORE_GUARDS_MAX + 1], n_keys[16];
  int n = 1, rc, broken;
  keys[0] = record_key(store, record->name);
  for (const struct store_record *guard = record->guard; guard; guard = guard->guard) {
    CHECK(n <= STORE_GUARDS_MAX);
    keys[n] = record_key(store, guard->name);
    all[n++] = guard;
  }
  snprintf(n_keys, sizeof n_keys, "%d", n + 1);
  redis_command_add_text(&eval, "EVAL");
  redis_command_add_text(&eval, write_script);
  redis_command_add_text(&eval, n_keys);
  redis_command_add_text(&eval, keys[0]);
  redis_command_add_text(&eval, store->index);
  for (int i = 1; i < n; i++)
    redis_command_add_text(&eval, keys[i]);
  redis_command_add_text(&eval, record->name);
  for (int i = 0; i < n; i++) {
    redis_command_add_text(&eval, all[i]->data ? "1" : "0");
    redis_command_add(&eval, all[i]->data, all[i]->data ? all[i]->size : 0);
  }
  eval.slot = redis_key_slot(store->index, strlen(store->index));
  rc = batch_run(store, &batch, err);
  *is_in_doubt = batch.is_in_doubt;
  broken = rc ? 0 : (int)eval.reply->integer;
  if (broken > 0 && broken < n)
    rc = err_set(err, ERR_STALE,
                 "store: record '%s' is not as '%s' needs it to be: somebody else has written it",
                 all[broken]->name, record->name);
  else if (broken != 0)
    rc = err_set(err, ERR_IO, "store: redis: the reply to EVAL makes no sense");
  for (int i = 0; i < n; i++)
    free(keys[i]);
  redis_commands_fini(&eval, 1);
  return rc;
}

/* The answer was lost. Writes once more, provided that the record is as we wanted it and the guards on others
   hold: that changes nothing, and says that the first write was done. Anything else leaves it open. */
static int confirm_write(struct redis_store *store, const struct store_record *record, struct err *err) {
  struct store_record wanted[STORE_GUARDS_MAX], again = *record;
  struct err second = ERR_NONE;
  bool is_in_doubt;
  int n = 0;
  again.guard = NULL;
  for (const struct store_record *guard = record->guard; guard; guard = guard->guard)
    if (strcmp(guard->name, record->name) != 0) {
      wanted[n] = *guard;
      wanted[n].guard = again.guard;
      again.guard = &wanted[n++];
    }
  if (n == STORE_GUARDS_MAX)
    return err->code;
  wanted[n] = again;
  again.guard = &wanted[n];
  if (write_guarded(store, &again, &is_in_doubt, &second) == 0) {
    *err = ERR_NONE;
    return 0;
  }
  return err_prefix(err, "store: record '%s' may or may not be written", record->name);
}

static int redis_get_record(struct store *base, const char *name, void **data, size_t *size,
                            struct err *err) {
  struct redis_store *store = (struct redis_store *)base;
  struct redis_command get = {.expects = REDIS_EXPECTS(REDIS_REPLY_STRING) | REDIS_EXPECTS(REDIS_REPLY_NIL),
                              .reply_bytes_max = record_bytes_max + 1};
  struct redis_batch batch = {.commands = &get, .n = 1, .master = -1, .is_repeatable = true};
  char *key = record_key(store, name);
  int rc;
  redis_command_add_text(&get, "GET");
  redis_command_add_text(&get, key);
  get.slot = redis_key_slot(key, strlen(key));
  rc = batch_run(store, &batch, err);
  free(key);
  if (!rc && get.reply->type == REDIS_REPLY_NIL)
    rc = err_set(err, ERR_NOT_FOUND, "store: no such record: '%s'", name);
  if (!rc) {
    *data = get.reply->str;
    *size = get.reply->len;
    get.reply->str = NULL;
  }
  redis_commands_fini(&get, 1);
  return rc;
}

static int redis_list_records(struct store *base, const char *prefix, struct store_names *names,
                              struct err *err) {
  struct redis_store *store = (struct redis_store *)base;
  struct redis_session *session = session_borrow(store);
  int rc = redis_list_names(session, store->index, prefix, names, err);
  session_give_back(store, session);
  return rc;
}

static char *record_key(const struct redis_store *store, const char *name) {
  return mem_printf("{%s}:r:%s", store->config.prefix, name);
}

static void call_init(struct block_call *call, struct redis_store *store, int n) {
  *call = (struct block_call){.store = store, .batch = {.master = -1, .is_repeatable = true}};
  call->batch.commands = mem_new((size_t)(n + 1) * sizeof *call->batch.commands);
  call->keys = mem_new((size_t)(n + 1) * sizeof *call->keys);
}

static struct redis_command *call_add(struct block_call *call, const char *name, const char *sha256) {
  struct redis_command *command = &call->batch.commands[call->batch.n];
  char *key = call->keys[call->batch.n++];
  snprintf(key, BLOCK_KEY_SIZE, "%s:b:%s", call->store->config.prefix, sha256);
  redis_command_add_text(command, name);
  redis_command_add_text(command, key);
  command->slot = redis_key_slot(key, strlen(key));
  return command;
}

static void call_fini(struct block_call *call) {
  redis_commands_fini(call->batch.commands, call->batch.n);
  free(call->batch.commands);
  free(call->keys);
}

const struct store_def store_redis = {
    .schemes = "redis rediss redis+unix redis+sentinel rediss+sentinel redis+cluster rediss+cluster",
    .check_url = redis_check_url,
    .open = redis_open,
    .close = redis_close,
    .put_blocks_max = PUT_BLOCKS_MAX,
    .put_blocks = redis_put_blocks,
    .has_blocks = redis_has_blocks,
    .get_blocks = redis_get_blocks,
    .delete_blocks = redis_delete_blocks,
    .list_blocks = redis_list_all_blocks,
    .write_record = redis_write_record,
    .get_record = redis_get_record,
    .list_records = redis_list_records,
};
