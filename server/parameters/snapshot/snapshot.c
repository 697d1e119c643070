/* Snapshots: pinned by shards, written by threads. */
#include "server/parameters/snapshot/snapshot.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/agree/float_setting.h"
#include "common/base/clock.h"
#include "common/base/log.h"

/* WRITERS: one hashes while the others wait for the store, which on a connection takes one block at a time.
   WRITER_NICE: a busy machine trains first, and a writer still gets a twentieth of a core. */
enum { ANSWER_BLOCKS_MAX = 4096, WRITERS = 4, WRITER_NICE = 13 };
_Static_assert(STORE_PARTS_MAX >= 2 + MODE_BEFORE_MAX,
               "a content's buffers are parts of a block of the store");

struct pin {
  uint32_t place;
  struct block_content content;
};

struct snapshot {
  uint32_t refs; /* atomic */
  struct snapshot_writer *writer;
  char *run;
  uint64_t incarnation, step, membership;
  uint32_t n_blocks;
  uint64_t stall_ns; /* atomic */

  /* Under the writer's lock. */
  struct pin *pins;  /* [n_blocks], in the order they came; those from n_taken to n_pinned hold references */
  uint64_t begin_ns; /* of the first pin */
  uint32_t n_pinned, n_taken, n_written;
  struct written {
    uint32_t block;
    char sha256[STORE_KEY_SIZE];
    uint64_t bytes;
  } * written; /* [n_blocks], by place */
  uint64_t written_bytes;
  bool is_over;
};

struct snapshot_writer {
  struct snapshot_writer_options options;
  uint32_t batch_max; /* blocks that a thread takes at a time */
  pthread_t threads[WRITERS];
  pthread_mutex_t lock; /* what follows */
  pthread_cond_t changed;
  struct snapshot **snapshots; /* not over, each with a reference; the first is the next to be served */
  int n_snapshots, capacity;
  bool is_stopping;
};

static void *writer_main(void *argument);
static bool snapshot_end_locked(struct snapshot *snapshot);
static void snapshot_release(struct snapshot *snapshot);
static void snapshot_tell(const struct snapshot *snapshot, Weir__BlocksWritten *written);
static void snapshot_tell_written(const struct snapshot *snapshot);

struct snapshot_writer *snapshot_writer_new(const struct snapshot_writer_options *options) {
  struct snapshot_writer *writer = mem_new(sizeof *writer);
  writer->options = *options;
  writer->batch_max = (uint32_t)store_batch_max(options->store);
  pthread_mutex_init(&writer->lock, NULL);
  pthread_cond_init(&writer->changed, NULL);
  for (int t = 0; t < WRITERS; t++)
    CHECK(pthread_create(&writer->threads[t], NULL, writer_main, writer) == 0);
  return writer;
}

void snapshot_writer_stop(struct snapshot_writer *writer) {
  snapshot_writer_cancel(writer, NULL);
  pthread_mutex_lock(&writer->lock);
  writer->is_stopping = true;
  pthread_cond_broadcast(&writer->changed);
  pthread_mutex_unlock(&writer->lock);
  for (int t = 0; t < WRITERS; t++)
    pthread_join(writer->threads[t], NULL);
}

void snapshot_writer_free(struct snapshot_writer *writer) {
  if (!writer)
    return;
  CHECK(writer->n_snapshots == 0);
  free(writer->snapshots);
  pthread_cond_destroy(&writer->changed);
  pthread_mutex_destroy(&writer->lock);
  free(writer);
}

struct snapshot *snapshot_start(struct snapshot_writer *writer, const Weir__WriteBlocks *order,
                                uint32_t n_blocks, uint64_t membership) {
  struct snapshot *snapshot = mem_new(sizeof *snapshot);
  snapshot->refs = 2; /* the caller's, the writer's */
  snapshot->writer = writer;
  snapshot->run = mem_strdup(order->run);
  snapshot->incarnation = order->incarnation;
  snapshot->step = order->step;
  snapshot->membership = membership;
  snapshot->begin_ns = clock_now_ns();
  snapshot->n_blocks = n_blocks;
  snapshot->pins = mem_new(n_blocks * sizeof *snapshot->pins);
  snapshot->written = mem_new(n_blocks * sizeof *snapshot->written);
  snapshot_writer_cancel(writer, order->run);
  pthread_mutex_lock(&writer->lock);
  array_reserve((void **)&writer->snapshots, &writer->capacity, writer->n_snapshots,
                sizeof(struct snapshot *));
  writer->snapshots[writer->n_snapshots++] = snapshot;
  pthread_cond_signal(&writer->changed); /* one without blocks is complete */
  pthread_mutex_unlock(&writer->lock);
  return snapshot;
}

struct snapshot *snapshot_get(struct snapshot *snapshot) {
  __atomic_fetch_add(&snapshot->refs, 1, __ATOMIC_RELAXED);
  return snapshot;
}

void snapshot_put(struct snapshot *snapshot) {
  if (!snapshot || __atomic_sub_fetch(&snapshot->refs, 1, __ATOMIC_ACQ_REL) > 0)
    return;
  free(snapshot->run);
  free(snapshot->pins);
  free(snapshot->written);
  free(snapshot);
}

uint64_t snapshot_step(const struct snapshot *snapshot) {
  return snapshot->step;
}

/* A batch is as large as it may be, or the last: what is pinned while others are not costs nothing, for no
   block leaves the version before all have come to it. */
static bool snapshot_is_due_locked(const struct snapshot *snapshot) {
  uint32_t left = snapshot->n_blocks - snapshot->n_taken, most = snapshot->writer->batch_max;
  if (left == 0 && snapshot->n_blocks > 0)
    return false; /* the rest is with other threads */
  return snapshot->n_pinned - snapshot->n_taken >= (left < most ? left : most);
}

void snapshot_pin(struct snapshot *snapshot, uint32_t place, uint32_t block,
                  const struct block_content *content) {
  struct snapshot_writer *writer = snapshot->writer;
  uint64_t begin_ns = clock_now_ns();
  pthread_mutex_lock(&writer->lock);
  if (!snapshot->is_over) {
    CHECK(snapshot->n_pinned < snapshot->n_blocks);
    if (snapshot->n_pinned == 0)
      snapshot->begin_ns = begin_ns;
    snapshot->written[place].block = block;
    snapshot->pins[snapshot->n_pinned++] =
        (struct pin){.place = place, .content = block_content_get(content)};
    if (snapshot_is_due_locked(snapshot))
      pthread_cond_signal(&writer->changed);
  }
  pthread_mutex_unlock(&writer->lock);
  snapshot_add_stall(snapshot, clock_now_ns() - begin_ns);
}

void snapshot_add_stall(struct snapshot *snapshot, uint64_t ns) {
  __atomic_fetch_add(&snapshot->stall_ns, ns, __ATOMIC_RELAXED);
}

/* False if it was over already. Otherwise the writer's reference is the caller's, who releases the pins. */
static bool snapshot_end_locked(struct snapshot *snapshot) {
  struct snapshot_writer *writer = snapshot->writer;
  int i = 0;
  if (snapshot->is_over)
    return false;
  snapshot->is_over = true;
  while (writer->snapshots[i] != snapshot)
    i++;
  writer->n_snapshots--;
  memmove(&writer->snapshots[i], &writer->snapshots[i + 1],
          (size_t)(writer->n_snapshots - i) * sizeof(struct snapshot *));
  return true;
}

/* Of one that is over: no lock is needed, and shards shall not wait while memory is freed. */
static void snapshot_release(struct snapshot *snapshot) {
  for (uint32_t p = snapshot->n_taken; p < snapshot->n_pinned; p++)
    block_content_put(&snapshot->pins[p].content);
  snapshot_put(snapshot);
}

void snapshot_fail(struct snapshot *snapshot, const struct err *err, bool is_too_late) {
  Weir__BlocksWritten written = WEIR__BLOCKS_WRITTEN__INIT;
  struct err text = *err;
  bool is_ended;
  pthread_mutex_lock(&snapshot->writer->lock);
  is_ended = snapshot_end_locked(snapshot);
  pthread_mutex_unlock(&snapshot->writer->lock);
  if (!is_ended)
    return;
  err_prefix(&text, "run '%s', version %llu", snapshot->run, (unsigned long long)snapshot->step);
  log_event(LOG_WARN, "parameters", "snapshot_failed", "run=%s step=%llu too_late=%d text=\"%s\"",
            snapshot->run, (unsigned long long)snapshot->step, is_too_late, text.text);
  written.error = text.text;
  written.is_last = true;
  written.is_too_late = is_too_late;
  snapshot_tell(snapshot, &written);
  snapshot_release(snapshot);
}

void snapshot_cancel(struct snapshot *snapshot) {
  bool is_ended;
  pthread_mutex_lock(&snapshot->writer->lock);
  is_ended = snapshot_end_locked(snapshot);
  pthread_mutex_unlock(&snapshot->writer->lock);
  if (is_ended)
    snapshot_release(snapshot);
}

void snapshot_writer_cancel(struct snapshot_writer *writer, const char *run) {
  struct snapshot *snapshot;
  do {
    snapshot = NULL;
    pthread_mutex_lock(&writer->lock);
    for (int i = 0; i < writer->n_snapshots && !snapshot; i++)
      if (!run || strcmp(writer->snapshots[i]->run, run) == 0)
        snapshot = writer->snapshots[i];
    if (snapshot)
      snapshot_end_locked(snapshot);
    pthread_mutex_unlock(&writer->lock);
    if (snapshot)
      snapshot_release(snapshot);
  } while (snapshot);
}

static struct snapshot *writer_find_due_locked(const struct snapshot_writer *writer) {
  for (int i = 0; i < writer->n_snapshots; i++)
    if (snapshot_is_due_locked(writer->snapshots[i]))
      return writer->snapshots[i];
  return NULL;
}

/* The batch's pins are the caller's. The snapshot goes behind the others. */
static uint32_t writer_take_batch_locked(struct snapshot_writer *writer, struct snapshot *snapshot,
                                         struct pin *batch) {
  uint32_t n = snapshot->n_pinned - snapshot->n_taken;
  int i = 0;
  n = n < writer->batch_max ? n : writer->batch_max;
  memcpy(batch, &snapshot->pins[snapshot->n_taken], n * sizeof *batch);
  snapshot->n_taken += n;
  while (writer->snapshots[i] != snapshot)
    i++;
  memmove(&writer->snapshots[i], &writer->snapshots[i + 1],
          (size_t)(writer->n_snapshots - 1 - i) * sizeof(struct snapshot *));
  writer->snapshots[writer->n_snapshots - 1] = snapshot;
  return n;
}

static uint64_t part_add(struct store_block *block, const struct buffer *buffer) {
  block->parts[block->n_parts++] = (struct iovec){buffer->data, buffer->size_bytes};
  return buffer->size_bytes;
}

/* As it lies in the store; returns its size. */
static uint64_t lay_out(struct store_block *block, const struct block_content *content) {
  uint64_t bytes = part_add(block, content->weights);
  if (content->slots)
    bytes += part_add(block, content->slots);
  for (uint32_t i = 0; i < content->n_before; i++)
    bytes += part_add(block, content->before[i]);
  return bytes;
}

/* Where the bytes lie is where the store reads them. Nobody else touches these places of `written`. */
static int snapshot_write_batch(struct snapshot *snapshot, struct pin *batch, uint32_t n,
                                uint64_t *written_bytes, struct err *err) {
  struct store_block blocks[STORE_BATCH_MAX] = {0};
  int code;
  for (uint32_t i = 0; i < n; i++)
    snapshot->written[batch[i].place].bytes = lay_out(&blocks[i], &batch[i].content);
  code = n ? store_put_blocks(snapshot->writer->options.store, blocks, (int)n, written_bytes, err) : 0;
  for (uint32_t i = 0; i < n; i++) {
    memcpy(snapshot->written[batch[i].place].sha256, blocks[i].sha256, STORE_KEY_SIZE);
    block_content_put(&batch[i].content);
  }
  return code;
}

/* Called and left with the lock held. */
static void writer_serve(struct snapshot_writer *writer, struct snapshot *snapshot) {
  struct pin batch[STORE_BATCH_MAX];
  struct err err = ERR_NONE;
  uint64_t written_bytes = 0;
  uint32_t n = writer_take_batch_locked(writer, snapshot, batch);
  bool is_done = false;
  int code;
  snapshot_get(snapshot);
  pthread_mutex_unlock(&writer->lock);
  code = snapshot_write_batch(snapshot, batch, n, &written_bytes, &err);
  if (code)
    snapshot_fail(snapshot, &err, false);
  pthread_mutex_lock(&writer->lock);
  snapshot->n_written += n;
  snapshot->written_bytes += written_bytes;
  if (!code && snapshot->n_written == snapshot->n_blocks)
    is_done = snapshot_end_locked(snapshot);
  pthread_mutex_unlock(&writer->lock);
  if (is_done) {
    snapshot_tell_written(snapshot);
    snapshot_release(snapshot);
  }
  snapshot_put(snapshot);
  pthread_mutex_lock(&writer->lock);
}

static void *writer_main(void *argument) {
  struct snapshot_writer *writer = argument;
  struct snapshot *snapshot;
  float_setting_require("snapshot writer");
  setpriority(PRIO_PROCESS, (id_t)gettid(), WRITER_NICE); /* a thread's own on Linux */
  pthread_mutex_lock(&writer->lock);
  while (!writer->is_stopping) {
    snapshot = writer_find_due_locked(writer);
    if (snapshot)
      writer_serve(writer, snapshot);
    else
      pthread_cond_wait(&writer->changed, &writer->lock);
  }
  pthread_mutex_unlock(&writer->lock);
  return NULL;
}

static void snapshot_tell(const struct snapshot *snapshot, Weir__BlocksWritten *written) {
  Weir__MemberMessage message = WEIR__MEMBER_MESSAGE__INIT;
  const struct snapshot_writer_options *options = &snapshot->writer->options;
  written->run = snapshot->run;
  written->incarnation = snapshot->incarnation;
  written->step = snapshot->step;
  message.body_case = WEIR__MEMBER_MESSAGE__BODY_WRITTEN;
  message.written = written;
  options->tell(options->user, snapshot->membership, &message);
}

/* All blocks, in as many messages as they need. */
static void snapshot_tell_written(const struct snapshot *snapshot) {
  Weir__WrittenBlock *blocks = mem_new(ANSWER_BLOCKS_MAX * sizeof *blocks);
  Weir__WrittenBlock **list = mem_new(ANSWER_BLOCKS_MAX * sizeof(Weir__WrittenBlock *));
  double stall_s = clock_seconds(__atomic_load_n(&snapshot->stall_ns, __ATOMIC_RELAXED));
  uint32_t at = 0;
  log_event(LOG_INFO, "parameters", "snapshot_written",
            "run=%s step=%llu blocks=%u written_bytes=%llu seconds=%.4f stall_seconds=%.6f", snapshot->run,
            (unsigned long long)snapshot->step, snapshot->n_blocks,
            (unsigned long long)snapshot->written_bytes, clock_seconds(clock_now_ns() - snapshot->begin_ns),
            stall_s);
  do {
    Weir__BlocksWritten written = WEIR__BLOCKS_WRITTEN__INIT;
    for (; written.n_blocks < ANSWER_BLOCKS_MAX && at < snapshot->n_blocks; at++) {
      Weir__WrittenBlock *block = list[written.n_blocks] = &blocks[written.n_blocks];
      weir__written_block__init(block);
      block->block = snapshot->written[at].block;
      block->sha256 = snapshot->written[at].sha256;
      block->bytes = snapshot->written[at].bytes;
      written.n_blocks++;
    }
    written.blocks = list;
    written.is_last = at == snapshot->n_blocks;
    if (written.is_last) {
      written.written_bytes = snapshot->written_bytes;
      written.stall_seconds = stall_s;
    }
    snapshot_tell(snapshot, &written);
  } while (at < snapshot->n_blocks);
  free(list);
  free(blocks);
}
