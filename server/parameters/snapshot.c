/* Writing a run's blocks to the store. */
#include "server/parameters/snapshot.h"

#include <semaphore.h>
#include <stdlib.h>

/* One block's copy, made on its shard's thread. */
struct capture {
  struct job job;
  const struct hosted_block *block;
  uint64_t version;
  void *content;
  int code;
  struct err *err;
  sem_t done;
};

static void capture_run(struct job *job) {
  struct capture *capture = (struct capture *)((char *)job - offsetof(struct capture, job));
  capture->code = hosted_block_read_content(capture->block, capture->version, capture->content, capture->err);
  sem_post(&capture->done);
}

static int capture_block(const struct hosted_block *block, uint64_t version, void *content, struct err *err) {
  struct capture capture = {
      .job = {.run = capture_run}, .block = block, .version = version, .content = content, .err = err};
  sem_init(&capture.done, 0, 0);
  shard_post(block->shard, &capture.job);
  while (sem_wait(&capture.done))
    ;
  sem_destroy(&capture.done);
  return capture.code;
}

static int snapshot_write_block(const struct hosted_block *block, uint64_t version, struct store *store,
                                Weir__WrittenBlock *written, struct err *err) {
  size_t size = hosted_block_content_bytes(block);
  void *content = malloc(size);
  int code;
  if (!content)
    return err_set(err, ERR_NO_MEMORY, "no memory for a copy of block %u", block->index);
  code = capture_block(block, version, content, err);
  if (!code)
    code = store_put(store, content, size, written->sha256, err);
  written->block = block->index;
  written->bytes = size;
  free(content);
  return code;
}

int snapshot_write(struct hosted_run *run, uint64_t step, struct store *store, struct arena *arena,
                   Weir__BlocksWritten *written, struct err *err) {
  written->blocks = arena_new(arena, run->n_own * sizeof *written->blocks);
  for (uint32_t b = 0; b < run->n_own; b++) {
    Weir__WrittenBlock *block = arena_new(arena, sizeof *block);
    weir__written_block__init(block);
    block->sha256 = arena_new(arena, 65);
    if (snapshot_write_block(&run->blocks[b], step, store, block, err))
      return err_prefix(err, "run '%s', step %llu", run->id, (unsigned long long)step);
    written->blocks[written->n_blocks++] = block;
  }
  return 0;
}
