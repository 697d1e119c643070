/* Checkpoints as servers and the coordinator write them, for a process that is to be killed, and what must be
   left of them: tests/integration/test_store_crash.py and tests/chaos/store_crash.py run it.

     store_crash write URL   takes over from whoever was there, and writes some checkpoints, each of blocks, a
                             manifest and a record of events, deleting older ones. Says on stdout, a line
                             each, what the store acknowledged: "term E", "committed STEP", "deleted STEP";
                             "end" last
     store_crash check URL   reads all that is there: every block and record must be whole, and every
                             checkpoint complete with the contents of its step. Says "term E" and
                             "checkpoint STEP" of each; then sweeps, and nothing but these may be left. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/agree/random.h"
#include "common/agree/spec.h"
#include "common/base/message.h"
#include "common/base/sha256.h"
#include "storage/checkpoint/checkpoint.h"

enum {
  BLOCKS = 9,
  PART_WORDS = 600,
  STEPS_A_LIFE = 4,
  STEPS = 1000,
  KEEP = 2,
  CHANGES_EVERY = 3,
  MODEL = 1000
};
#define RUN "crash-1"
#define TERM "coordinator/epoch"

static const char spec_text[] =
    "name: crash\n"
    "model: {onnx: mlp.onnx, loss: cross_entropy}\n"
    "data: {train: {format: idx, images: i, labels: l}}\n"
    "train: {steps: 1000, batch: 8, microbatches: 2, optimizer: {name: sgd, lr: 0.1}}\n";

static struct store *store;

static void need(int rc, const struct err *err, const char *what) {
  if (rc == 0)
    return;
  printf("error %s: %s\n", what, err->text);
  exit(1);
}

static void need_true(bool condition, const char *what) {
  if (condition)
    return;
  printf("error %s\n", what);
  exit(1);
}

static uint64_t decimal(const void *data, size_t size, char text[32]) {
  snprintf(text, 32, "%.*s", (int)size, (const char *)data);
  need_true(size > 0 && strlen(text) == size && strspn(text, "0123456789") == size, "the term is no number");
  return strtoull(text, NULL, 10);
}

/* Some blocks are as in the step before. */
static uint64_t block_version(uint64_t step, uint32_t block) {
  return (step + block) / CHANGES_EVERY;
}

static void block_fill(uint64_t version, uint32_t block, uint64_t words[2 * PART_WORDS]) {
  for (uint64_t i = 0; i < 2 * PART_WORDS; i++)
    words[i] = random_bits(random_key(1, version, block, 0), i);
}

static void block_key(uint64_t version, uint32_t block, char key[STORE_KEY_SIZE]) {
  uint64_t words[2 * PART_WORDS];
  block_fill(version, block, words);
  sha256_hex(words, sizeof words, key);
}

/* The record as the next guard must name it. Returns the new number. */
static uint64_t take_over(char text[32]) {
  struct store_record guard = {.name = TERM};
  struct err err = ERR_NONE;
  uint64_t term = 0;
  void *data;
  size_t size;
  int rc = store_get_record(store, TERM, &data, &size, &err);
  if (rc != ERR_NOT_FOUND)
    need(rc, &err, "term");
  if (rc == 0) {
    term = decimal(data, size, text);
    guard = (struct store_record){TERM, data, size, NULL};
  }
  snprintf(text, 32, "%" PRIu64, term + 1);
  need(store_put_record(store, &(struct store_record){TERM, text, strlen(text), &guard}, &err), &err,
       "take-over");
  free(data);
  printf("term %s\n", text);
  return term + 1;
}

static void put_blocks(uint64_t step, char keys[BLOCKS][STORE_KEY_SIZE]) {
  static uint64_t words[BLOCKS][2 * PART_WORDS];
  struct store_block blocks[BLOCKS];
  struct err err = ERR_NONE;
  int at_a_time = step % 2 ? BLOCKS : 2; /* stores may write many in another way */
  for (uint32_t b = 0; b < BLOCKS; b++) {
    block_fill(block_version(step, b), b, words[b]);
    blocks[b] = (struct store_block){
        .parts = {{words[b], sizeof words[b] / 2}, {words[b] + PART_WORDS, sizeof words[b] / 2}},
        .n_parts = 2};
  }
  for (int at = 0; at < BLOCKS; at += at_a_time)
    need(store_put_blocks(store, blocks + at, at + at_a_time < BLOCKS ? at_a_time : BLOCKS - at, NULL, &err),
         &err, "blocks");
  for (int b = 0; b < BLOCKS; b++)
    memcpy(keys[b], blocks[b].sha256, STORE_KEY_SIZE);
}

static void commit(struct block_refs *refs, uint64_t term, uint64_t step, const char *model,
                   const struct store_record *guard) {
  Weir__Manifest manifest = WEIR__MANIFEST__INIT;
  Weir__Plan plan = WEIR__PLAN__INIT;
  Weir__WrittenBlock blocks[BLOCKS], *list[BLOCKS];
  struct store_record incarnation = {.name = "runs/" RUN "/incarnation", .data = "1", .size = 1},
                      both = *guard;
  char keys[BLOCKS][STORE_KEY_SIZE];
  struct err err = ERR_NONE;
  both.guard = &incarnation;
  need(spec_read("spec", spec_text, sizeof spec_text - 1, &manifest.spec, &err), &err, "spec");
  put_blocks(step, keys);
  for (uint32_t b = 0; b < BLOCKS; b++) {
    weir__written_block__init(&blocks[b]);
    blocks[b].block = b;
    blocks[b].bytes = 2 * PART_WORDS * sizeof(uint64_t);
    blocks[b].sha256 = keys[b];
    list[b] = &blocks[b];
  }
  plan.train_samples = 100;
  plan.steps = STEPS;
  manifest.run = (char *)RUN;
  manifest.plan = &plan;
  manifest.model_sha256 = (char *)model;
  manifest.term = term;
  manifest.step = step;
  manifest.blocks = list;
  manifest.n_blocks = BLOCKS;
  need(checkpoint_commit(store, refs, &manifest, &both, &err), &err, "commit");
  spec_free(manifest.spec);
  printf("committed %" PRIu64 "\n", step);
}

static void write_run(struct block_refs *refs, const char *model, const struct store_record *guard) {
  Weir__RunRecord record = WEIR__RUN_RECORD__INIT;
  struct err err = ERR_NONE;
  record.run = (char *)RUN;
  record.model_sha256 = (char *)model;
  need(checkpoint_write_record(store, "runs/" RUN "/run", &record, guard, &err), &err, "run");
  need(store_put_record(store, &(struct store_record){"runs/" RUN "/incarnation", "1", 1, guard}, &err), &err,
       "incarnation");
  block_refs_add_run(refs, &record, &(struct onnx_outline){0});
}

static void write_events(uint64_t step, const struct store_record *guard) {
  char *name = mem_printf("runs/" RUN "/events/%020" PRIu64, step);
  Weir__EventChunk chunk = WEIR__EVENT_CHUNK__INIT;
  struct err err = ERR_NONE;
  need(checkpoint_write_record(store, name, &chunk, guard, &err), &err, "events");
  free(name);
}

static void delete_older(struct block_refs *refs, const struct store_record *guard) {
  struct err err = ERR_NONE;
  uint64_t *steps;
  int n;
  need(checkpoint_list(store, RUN, &steps, &n, &err), &err, "checkpoints");
  for (int i = 0; i < n - KEEP; i++) {
    char *name = checkpoint_name(RUN, steps[i]);
    need(checkpoint_delete(store, refs, name, guard, &err), &err, "delete");
    free(name);
    printf("deleted %" PRIu64 "\n", steps[i]);
  }
  free(steps);
}

static struct block_refs *sweep(void) {
  Weir__CollectGarbageReply done;
  struct block_refs *refs;
  struct err err = ERR_NONE;
  need(block_refs_read(store, &refs, &err), &err, "references");
  need(checkpoint_sweep(store, refs, &done, &err), &err, "sweep");
  need(store_sweep(store, 0, &err), &err, "sweep of rests");
  return refs;
}

static void write_life(void) {
  uint64_t words[2 * PART_WORDS], *steps, first, term;
  char model[STORE_KEY_SIZE], text[32];
  struct err err = ERR_NONE;
  struct store_record guard = {.name = TERM, .data = text};
  struct block_refs *refs;
  int n;
  term = take_over(text);
  guard.size = strlen(text);
  refs = sweep();
  block_fill(0, MODEL, words);
  need(store_put(store, words, sizeof words, model, &err), &err, "model");
  write_run(refs, model, &guard);
  need(checkpoint_list(store, RUN, &steps, &n, &err), &err, "checkpoints");
  first = n ? steps[n - 1] + 1 : 1;
  free(steps);
  for (uint64_t step = first; step < first + STEPS_A_LIFE; step++) {
    commit(refs, term, step, model, &guard);
    write_events(step, &guard);
    delete_older(refs, &guard);
  }
  block_refs_free(refs);
  printf("end\n");
}

struct all_blocks {
  char (*keys)[STORE_KEY_SIZE];
  int n, capacity;
};

static int collect(void *user, const char *key, uint64_t size_bytes) {
  struct all_blocks *all = user;
  (void)size_bytes;
  array_reserve((void **)&all->keys, &all->capacity, all->n, sizeof *all->keys);
  memcpy(all->keys[all->n++], key, STORE_KEY_SIZE);
  return 0;
}

/* Every block that can be seen is whole. */
static void list_and_verify(struct all_blocks *all) {
  struct err err = ERR_NONE;
  *all = (struct all_blocks){0};
  need(store_list_blocks(store, collect, all, &err), &err, "blocks");
  for (int i = 0; i < all->n; i++) {
    void *data;
    size_t size;
    need(store_get(store, all->keys[i], &data, &size, &err), &err, "block");
    free(data);
  }
}

static void check_records(void) {
  struct err err = ERR_NONE;
  struct store_names names;
  need(store_list_records(store, "", &names, &err), &err, "records");
  for (int i = 0; i < names.count; i++) {
    const char *name = names.items[i];
    bool is_run = strcmp(name, "runs/" RUN "/run") == 0, is_events = strstr(name, "/events/") != NULL;
    char text[32];
    void *data;
    size_t size;
    need(store_get_record(store, name, &data, &size, &err), &err, "record");
    if (strcmp(name, TERM) == 0)
      printf("term %" PRIu64 "\n", decimal(data, size, text));
    free(data);
    if (!is_run && !is_events)
      continue;
    need(checkpoint_read_record(store, name,
                                is_run ? &weir__run_record__descriptor : &weir__event_chunk__descriptor,
                                &data, &err),
         &err, "record");
    message_free(data);
  }
  store_names_fini(&names);
}

/* Its blocks are counted in is_used[all->n]. */
static void check_checkpoint(const char *name, uint64_t step, const struct all_blocks *all, bool *is_used) {
  Weir__Manifest *manifest;
  struct err err = ERR_NONE;
  char key[STORE_KEY_SIZE];
  need(checkpoint_read(store, name, &manifest, &err), &err, "manifest");
  need_true(manifest->n_blocks == BLOCKS && manifest->step == step, "a manifest is another's");
  for (uint32_t b = 0; b <= BLOCKS; b++) {
    bool is_there = false;
    if (b < BLOCKS)
      block_key(block_version(step, b), b, key);
    else
      block_key(0, MODEL, key);
    need_true(strcmp(b < BLOCKS ? manifest->blocks[b]->sha256 : manifest->model_sha256, key) == 0,
              "a manifest names other blocks than were written");
    for (int i = 0; i < all->n; i++)
      if (strcmp(all->keys[i], key) == 0)
        is_there = is_used[i] = true;
    if (!is_there)
      printf("error %s: block %u (%s) is missing\n", name, b, key);
    need_true(is_there, name);
  }
  message_free(manifest);
  printf("checkpoint %" PRIu64 "\n", step);
}

static void check_checkpoints(const struct all_blocks *all, bool *is_used) {
  struct err err = ERR_NONE;
  uint64_t *steps;
  int n;
  need(checkpoint_list(store, RUN, &steps, &n, &err), &err, "checkpoints");
  for (int i = 0; i < n; i++) {
    char *name = checkpoint_name(RUN, steps[i]);
    check_checkpoint(name, steps[i], all, is_used);
    free(name);
  }
  free(steps);
}

/* The run's model may be there before the first checkpoint. */
static bool is_model(const char *key) {
  char model[STORE_KEY_SIZE];
  block_key(0, MODEL, model);
  return strcmp(key, model) == 0;
}

static void check(void) {
  struct all_blocks before, after;
  bool *is_used;
  int n_used = 0;
  list_and_verify(&before);
  is_used = mem_new((size_t)before.n + 1);
  check_records();
  check_checkpoints(&before, is_used);
  block_refs_free(sweep());
  list_and_verify(&after);
  for (int i = 0; i < before.n; i++)
    n_used += is_used[i];
  for (int i = 0; i < after.n && n_used == 0; i++)
    need_true(is_model(after.keys[i]), "the sweep left a block that nothing refers to");
  need_true(n_used == 0 || after.n == n_used,
            "the sweep left more or fewer blocks than the checkpoints have");
  printf("swept %d\n", before.n - after.n);
  free(before.keys);
  free(after.keys);
  free(is_used);
}

int main(int argc, char **argv) {
  struct err err = ERR_NONE;
  if (argc != 3 || (strcmp(argv[1], "write") && strcmp(argv[1], "check"))) {
    fprintf(stderr, "usage: store_crash write|check URL\n");
    return 2;
  }
  setvbuf(stdout, NULL, _IOLBF, 0);
  need(store_open(argv[2], &store, &err), &err, "open");
  if (strcmp(argv[1], "write") == 0)
    write_life();
  else
    check();
  store_close(store);
  return 0;
}
