/* What a store on Redis holds. */
#include "storage/redis/redis_list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"

enum { PAGE = 500, PAGES_MAX = 1 << 22, LENGTHS_MAX = 64, PAGE_BYTES_MAX = 64 << 20, KEY_MAX = 256 };
static const size_t found_max = (size_t)1 << 26;

struct listing {
  struct redis_session *session;
  struct redis_found *items;
  size_t n, capacity;
};

static int scan_master(struct listing *listing, int master, struct err *err);
static int scan_page(struct listing *listing, int master, char cursor[24], struct err *err);
static int add_found(struct listing *listing, const redisReply *keys, struct err *err);
static int blocks_measure(struct listing *listing, struct redis_found *const *blocks, int n, struct err *err);
static int by_key(const void *a, const void *b);
static int take_names(const redisReply *reply, const char *prefix, struct store_names *names);
static int refuse_reply(struct err *err, const char *command);

int redis_list_blocks(struct redis_session *session, struct redis_found **found, size_t *n, struct err *err) {
  struct listing listing = {.session = session};
  int *masters = NULL, n_masters = 0;
  int rc = redis_session_masters(session, &masters, &n_masters, err);
  for (int i = 0; i < n_masters && !rc; i++)
    rc = scan_master(&listing, masters[i], err);
  free(masters);
  if (rc) {
    free(listing.items);
    return rc;
  }
  /* SCAN may give a key several times, and so may two nodes while a slot moves. */
  if (listing.n > 0)
    qsort(listing.items, listing.n, sizeof *listing.items, by_key);
  *found = listing.items;
  *n = 0;
  for (size_t i = 0; i < listing.n; i++)
    if (*n == 0 || strcmp(listing.items[*n - 1].key, listing.items[i].key) != 0)
      listing.items[(*n)++] = listing.items[i];
  return 0;
}

static int scan_master(struct listing *listing, int master, struct err *err) {
  char cursor[24] = "0";
  for (int page = 0; page < PAGES_MAX; page++) {
    int rc = scan_page(listing, master, cursor, err);
    if (rc || strcmp(cursor, "0") == 0)
      return rc;
  }
  return err_set(err, ERR_IO, "store: redis: SCAN does not end");
}

static int scan_page(struct listing *listing, int master, char cursor[24], struct err *err) {
  struct redis_command scan = {.expects = REDIS_EXPECTS(REDIS_REPLY_ARRAY),
                               .reply_bytes_max = PAGE_BYTES_MAX};
  struct redis_batch batch = {.commands = &scan, .n = 1, .master = master, .is_repeatable = true};
  char pattern[KEY_MAX], count[16];
  const char *next;
  int rc;
  snprintf(pattern, sizeof pattern, "%s:b:*", listing->session->config->prefix);
  snprintf(count, sizeof count, "%d", PAGE);
  redis_command_add_text(&scan, "SCAN");
  redis_command_add_text(&scan, cursor);
  redis_command_add_text(&scan, "MATCH");
  redis_command_add_text(&scan, pattern);
  redis_command_add_text(&scan, "COUNT");
  redis_command_add_text(&scan, count);
  rc = redis_session_run(listing->session, &batch, err);
  if (rc)
    return rc;
  next = scan.reply->elements == 2 ? redis_reply_text(scan.reply->element[0]) : NULL;
  if (!next || !*next || strlen(next) > 20 || strspn(next, "0123456789") != strlen(next) ||
      scan.reply->element[1]->type != REDIS_REPLY_ARRAY)
    rc = refuse_reply(err, "SCAN");
  else {
    strcpy(cursor, next);
    rc = add_found(listing, scan.reply->element[1], err);
  }
  redis_commands_fini(&scan, 1);
  return rc;
}

/* Other keys that begin like ours are somebody else's. */
static int add_found(struct listing *listing, const redisReply *keys, struct err *err) {
  size_t skip = strlen(listing->session->config->prefix) + strlen(":b:");
  struct redis_found *blocks[LENGTHS_MAX];
  int n = 0, rc = 0;
  if (listing->n + keys->elements > found_max)
    return err_set(err, ERR_IO, "store: redis: more than %zu blocks", found_max);
  while (listing->capacity < listing->n + keys->elements) {
    listing->capacity = listing->capacity ? 2 * listing->capacity : PAGE;
    listing->items = mem_resize(listing->items, listing->capacity * sizeof *listing->items);
  }
  for (size_t i = 0; i < keys->elements && !rc; i++) {
    const char *key = redis_reply_text(keys->element[i]);
    if (!key)
      return refuse_reply(err, "SCAN");
    if (strlen(key) != skip + STORE_KEY_SIZE - 1 ||
        strspn(key + skip, "0123456789abcdef") != STORE_KEY_SIZE - 1)
      continue;
    blocks[n] = &listing->items[listing->n++];
    memcpy(blocks[n++]->key, key + skip, STORE_KEY_SIZE);
    if (n == LENGTHS_MAX) {
      rc = blocks_measure(listing, blocks, n, err);
      n = 0;
    }
  }
  return rc ? rc : blocks_measure(listing, blocks, n, err);
}

/* A block without bytes that is not the empty one has gone meanwhile: it is listed all the same, as it would
   have been a moment ago. */
static int blocks_measure(struct listing *listing, struct redis_found *const *blocks, int n,
                          struct err *err) {
  struct redis_command *commands = mem_new((size_t)(n + 1) * sizeof *commands);
  struct redis_batch batch = {.commands = commands, .n = n, .master = -1, .is_repeatable = true};
  char(*keys)[KEY_MAX] = mem_new((size_t)(n + 1) * sizeof *keys);
  int rc;
  for (int i = 0; i < n; i++) {
    snprintf(keys[i], sizeof keys[i], "%s:b:%s", listing->session->config->prefix, blocks[i]->key);
    redis_command_add_text(&commands[i], "STRLEN");
    redis_command_add_text(&commands[i], keys[i]);
    commands[i].slot = redis_key_slot(keys[i], strlen(keys[i]));
    commands[i].expects = REDIS_EXPECTS(REDIS_REPLY_INTEGER);
  }
  rc = redis_session_run(listing->session, &batch, err);
  for (int i = 0; i < n && !rc; i++)
    blocks[i]->size_bytes = commands[i].reply->integer > 0 ? (uint64_t)commands[i].reply->integer : 0;
  redis_commands_fini(commands, n);
  free(commands);
  free(keys);
  return rc;
}

static int by_key(const void *a, const void *b) {
  return strcmp(((const struct redis_found *)a)->key, ((const struct redis_found *)b)->key);
}

int redis_list_names(struct redis_session *session, const char *index, const char *prefix,
                     struct store_names *names, struct err *err) {
  char *from = mem_printf("[%s", prefix), *to = mem_printf("[%s\xff", prefix), count[16];
  int rc = 0, got = PAGE;
  snprintf(count, sizeof count, "%d", PAGE);
  for (int page = 0; got == PAGE && !rc; page++) {
    struct redis_command range = {.expects = REDIS_EXPECTS(REDIS_REPLY_ARRAY),
                                  .reply_bytes_max = PAGE_BYTES_MAX};
    struct redis_batch batch = {.commands = &range, .n = 1, .master = -1, .is_repeatable = true};
    const char *words[] = {"ZRANGEBYLEX", index, from, to, "LIMIT", "0", count};
    if (page == PAGES_MAX) {
      rc = refuse_reply(err, "ZRANGEBYLEX");
      break;
    }
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
      redis_command_add_text(&range, words[i]);
    range.slot = redis_key_slot(index, strlen(index));
    rc = redis_session_run(session, &batch, err);
    got = rc ? 0 : take_names(range.reply, prefix, names);
    if (got < 0)
      rc = refuse_reply(err, "ZRANGEBYLEX");
    redis_commands_fini(&range, 1);
    free(from);
    from = mem_printf("(%s", got > 0 ? names->items[names->count - 1] : "");
  }
  free(from);
  free(to);
  return rc;
}

/* How many; -1 if they are not what was asked for: ascending, so that the pages end. */
static int take_names(const redisReply *reply, const char *prefix, struct store_names *names) {
  int first = names->count;
  if (reply->elements > PAGE)
    return -1;
  for (size_t i = 0; i < reply->elements; i++) {
    const char *name = redis_reply_text(reply->element[i]);
    if (!name || strncmp(name, prefix, strlen(prefix)) != 0 ||
        (names->count > first && strcmp(names->items[names->count - 1], name) >= 0))
      return -1;
    array_reserve((void **)&names->items, &names->capacity, names->count, sizeof *names->items);
    names->items[names->count++] = mem_strdup(name);
  }
  return (int)reply->elements;
}

static int refuse_reply(struct err *err, const char *command) {
  return err_set(err, ERR_IO, "store: redis: the reply to %s makes no sense", command);
}
