/* Checkpoints to and from a store, as a server writes and loads them: `store_bench URL MIB`. A first
   checkpoint of that many MiB in blocks of weights and one optimizer slot, a second in which every tenth
   block has changed, and reading the second back, verified. One line of JSON: bytes and seconds of each. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/memory.h"
#include "common/random.h"
#include "storage/store.h"

enum { PART_BYTES = 256 * 1024, PARTS = 2, BLOCK_BYTES = PARTS * PART_BYTES, CHANGED_EVERY = 10 };

static void check(int code, const struct err *err) {
  if (code == 0)
    return;
  fprintf(stderr, "store_bench: %s\n", err->text);
  exit(1);
}

/* What no store and no disk can make smaller. */
static void fill(uint64_t *words, uint64_t seed) {
  for (size_t i = 0; i < BLOCK_BYTES / sizeof *words; i++)
    words[i] = random_key(seed, i, 0, 0);
}

static double put(struct store *store, char *content, struct store_block *blocks, int n, uint64_t *bytes) {
  struct err err;
  uint64_t begin_ns = clock_now_ns();
  for (int i = 0; i < n; i++) {
    char *at = content + (size_t)i * BLOCK_BYTES;
    blocks[i] =
        (struct store_block){.parts = {{at, PART_BYTES}, {at + PART_BYTES, PART_BYTES}}, .n_parts = PARTS};
  }
  *bytes = 0;
  check(store_put_blocks(store, blocks, n, bytes, &err), &err);
  check(store_put_record(store, "bench/manifest", blocks, sizeof *blocks, NULL, 0, &err), &err);
  return clock_seconds(clock_now_ns() - begin_ns);
}

static double get(struct store *store, const struct store_block *blocks, int n) {
  struct err err;
  uint64_t begin_ns = clock_now_ns();
  for (int at = 0; at < n; at += STORE_BATCH_MAX) {
    const char *keys[STORE_BATCH_MAX];
    void *data[STORE_BATCH_MAX];
    size_t sizes[STORE_BATCH_MAX];
    int count = n - at < STORE_BATCH_MAX ? n - at : STORE_BATCH_MAX;
    for (int i = 0; i < count; i++)
      keys[i] = blocks[at + i].sha256;
    check(store_get_blocks(store, keys, count, data, sizes, &err), &err);
    for (int i = 0; i < count; i++)
      free(data[i]);
  }
  return clock_seconds(clock_now_ns() - begin_ns);
}

int main(int argc, char **argv) {
  int n = argc == 3 ? atoi(argv[2]) * (1024 * 1024 / BLOCK_BYTES) : 0;
  struct store_block *blocks = mem_new((size_t)(n + 1) * sizeof *blocks);
  char *content = malloc((size_t)n * BLOCK_BYTES + 1);
  uint64_t first_bytes, second_bytes;
  double first_s, second_s, restore_s;
  struct store *store;
  struct err err;
  if (n <= 0 || !content) {
    fprintf(stderr, "usage: store_bench URL MIB\n");
    return 2;
  }
  check(store_open(argv[1], &store, &err), &err);
  for (int i = 0; i < n; i++)
    fill((uint64_t *)(void *)(content + (size_t)i * BLOCK_BYTES), clock_now_ns());
  first_s = put(store, content, blocks, n, &first_bytes);
  for (int i = 0; i < n; i += CHANGED_EVERY)
    content[(size_t)i * BLOCK_BYTES] ^= 1;
  second_s = put(store, content, blocks, n, &second_bytes);
  restore_s = get(store, blocks, n);
  printf(
      "{\"first_bytes\":%llu,\"first_s\":%.4f,\"second_bytes\":%llu,\"second_s\":%.4f,\"restore_s\":%.4f}\n",
      (unsigned long long)first_bytes, first_s, (unsigned long long)second_bytes, second_s, restore_s);
  store_close(store);
  free(content);
  free(blocks);
  return 0;
}
