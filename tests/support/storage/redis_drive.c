#include "tests/support/storage/redis_drive.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"
#include "common/base/sha256.h"
#include "storage/store.h"

char *drive_bytes(unsigned long seed, size_t size) {
  char *bytes = malloc(size + 8);
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (size_t i = 0; i < size; i += 8) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    memcpy(bytes + i, &state, 8);
  }
  return bytes;
}

/* N blocks of SIZE bytes, from SEED on. */
struct drive_blocks {
  unsigned long seed;
  size_t size;
  int n;
};

static int drive_put(struct store *store, const struct drive_blocks *wanted, char *text, struct err *err) {
  struct store_block *blocks = mem_new((size_t)wanted->n * sizeof *blocks);
  uint64_t written = 0;
  int rc;
  for (int i = 0; i < wanted->n; i++)
    blocks[i] = (struct store_block){
        .parts = {{drive_bytes(wanted->seed + (unsigned long)i, wanted->size), wanted->size}}, .n_parts = 1};
  rc = store_put_blocks(store, blocks, wanted->n, &written, err);
  for (int i = 0; i < wanted->n; i++)
    free(blocks[i].parts[0].iov_base);
  free(blocks);
  sprintf(text, "%llu", (unsigned long long)written);
  return rc;
}

static int drive_check(struct store *store, const struct drive_blocks *wanted, char *text, struct err *err) {
  int there = 0;
  for (int i = 0; i < wanted->n; i++) {
    char *bytes = drive_bytes(wanted->seed + (unsigned long)i, wanted->size), sha256[SHA256_HEX_SIZE];
    size_t got_size;
    void *got;
    int rc;
    sha256_hex(bytes, wanted->size, sha256);
    rc = store_get(store, sha256, &got, &got_size, err);
    free(bytes);
    if (rc && rc != ERR_NOT_FOUND)
      return rc;
    there += !rc;
    free(got);
  }
  sprintf(text, "%d", there);
  return 0;
}

static int drive_drop(struct store *store, const struct drive_blocks *wanted, char *text, struct err *err) {
  int rc = 0;
  text[0] = 0;
  for (int i = 0; i < wanted->n && !rc; i++) {
    char *bytes = drive_bytes(wanted->seed + (unsigned long)i, wanted->size), sha256[SHA256_HEX_SIZE];
    const char *key = sha256;
    sha256_hex(bytes, wanted->size, sha256);
    rc = store_delete_blocks(store, &key, 1, err);
    free(bytes);
  }
  return rc;
}

enum { CROWD = 8 };

struct drive_member {
  struct store *store;
  struct drive_blocks blocks;
  int rc;
  struct err err;
};

static void *drive_member_main(void *user) {
  struct drive_member *member = user;
  char name[64], text[64];
  snprintf(name, sizeof name, "crowd/%lu", member->blocks.seed);
  member->rc = drive_put(member->store, &member->blocks, text, &member->err);
  if (!member->rc)
    member->rc = store_put_record(member->store, &(struct store_record){name, "x", 1, NULL}, &member->err);
  return NULL;
}

static int drive_crowd(struct store *store, const struct drive_blocks *wanted, char *text, struct err *err) {
  struct drive_member members[CROWD];
  pthread_t threads[CROWD];
  int rc = 0;
  text[0] = 0;
  for (int i = 0; i < CROWD; i++) {
    members[i] = (struct drive_member){.store = store, .blocks = *wanted, .err = ERR_NONE};
    members[i].blocks.seed += (unsigned long)(i * wanted->n);
    CHECK(pthread_create(&threads[i], NULL, drive_member_main, &members[i]) == 0);
  }
  for (int i = 0; i < CROWD; i++) {
    pthread_join(threads[i], NULL);
    if (members[i].rc) {
      rc = members[i].rc;
      *err = members[i].err;
    }
  }
  return rc;
}

static int drive_count(void *user, const char *key, uint64_t size_bytes) {
  uint64_t *counts = user;
  (void)key;
  counts[0]++;
  counts[1] += size_bytes;
  return 0;
}

static int drive_one(struct store *store, char *line, char *text, size_t text_size, struct err *err) {
  static const struct {
    const char *name;
    int (*run)(struct store *store, const struct drive_blocks *wanted, char *text, struct err *err);
  } on_blocks[] = {{"put", drive_put}, {"check", drive_check}, {"drop", drive_drop}, {"crowd", drive_crowd}};
  char *words[8] = {0}, *word, *rest = line;
  struct store_names names = {0};
  struct store_record guard = {0};
  struct drive_blocks wanted;
  uint64_t counts[2] = {0};
  size_t size;
  void *data = NULL;
  int n = 0, rc = 0;
  while (n < 7 && (word = strsep(&rest, " \n")))
    if (*word)
      words[n++] = word;
  text[0] = 0;
  for (size_t i = 0; n == 4 && i < sizeof on_blocks / sizeof *on_blocks; i++)
    if (strcmp(words[0], on_blocks[i].name) == 0) {
      wanted =
          (struct drive_blocks){strtoul(words[1], NULL, 10), strtoul(words[2], NULL, 10), atoi(words[3])};
      return on_blocks[i].run(store, &wanted, text, err);
    }
  if (n >= 3 && strcmp(words[0], "write") == 0) {
    if (n == 5)
      guard =
          (struct store_record){words[3], strcmp(words[4], "-") ? words[4] : NULL, strlen(words[4]), NULL};
    return store_put_record(
        store, &(struct store_record){words[1], words[2], strlen(words[2]), n == 5 ? &guard : NULL}, err);
  }
  if (n == 2 && strcmp(words[0], "delete") == 0)
    return store_delete_record(store, words[1], NULL, err);
  if (n == 2 && strcmp(words[0], "read") == 0) {
    rc = store_get_record(store, words[1], &data, &size, err);
    if (!rc)
      snprintf(text, text_size, "%.*s", (int)size, (const char *)data);
    free(data);
    return rc;
  }
  if (n >= 1 && strcmp(words[0], "list") == 0) {
    rc = store_list_records(store, n > 1 ? words[1] : "", &names, err);
    for (int i = 0; i < names.count; i++)
      snprintf(text + strlen(text), text_size - strlen(text), "%s%s", i ? " " : "", names.items[i]);
    store_names_fini(&names);
    return rc;
  }
  if (n == 1 && strcmp(words[0], "blocks") == 0) {
    rc = store_list_blocks(store, drive_count, counts, err);
    sprintf(text, "%llu %llu", (unsigned long long)counts[0], (unsigned long long)counts[1]);
    return rc;
  }
  return err_set(err, ERR_INVALID, "no such command");
}

int drive_store(const char *url) {
  static char text[1 << 16], line[4096];
  struct store *store;
  struct err err = ERR_NONE;
  int rc = store_open(url, &store, &err);
  printf("%s %s\n", rc ? err_name(err.code) : "ok", rc ? err.text : "");
  fflush(stdout);
  while (!rc && fgets(line, sizeof line, stdin)) {
    err = ERR_NONE;
    if (drive_one(store, line, text, sizeof text, &err))
      printf("%s %s\n", err_name(err.code), err.text);
    else
      printf("ok %s\n", text);
    fflush(stdout);
  }
  store_close(rc ? NULL : store);
  return 0;
}
