/* Pipes in shared memory: one writer and one reader each. */
#include "tests/simulation/cuda/nccl_segment.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/memory.h"

enum { PIPE_BYTES = 256 << 10 };

struct pipe {
  atomic_uint_least64_t n_written, n_read;
  char bytes[PIPE_BYTES];
};

struct shared {
  atomic_uint_least64_t joined; /* members */
  struct pipe pipes[];          /* [from][to] */
};

struct segment {
  struct shared *shared;
  char name[80];
  int size;
  size_t size_bytes;
};

struct segment *segment_join(const char *name, int rank, int size) {
  struct segment *segment = mem_new(sizeof *segment);
  int fd;
  segment->size = size;
  segment->size_bytes = sizeof *segment->shared + (size_t)size * (size_t)size * sizeof(struct pipe);
  snprintf(segment->name, sizeof segment->name, "%s", name);
  segment->shared = MAP_FAILED;
  fd = shm_open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd >= 0 && ftruncate(fd, (off_t)segment->size_bytes) == 0)
    segment->shared = mmap(NULL, segment->size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (fd >= 0)
    close(fd);
  if (segment->shared == MAP_FAILED) {
    free(segment);
    return NULL;
  }
  segment->shared->joined |= (uint64_t)1 << rank;
  return segment;
}

void segment_leave(struct segment *segment) {
  if (!segment)
    return;
  shm_unlink(segment->name); /* nobody joins any more */
  munmap(segment->shared, segment->size_bytes);
  free(segment);
}

bool segment_is_full(const struct segment *segment) {
  uint64_t all = segment->size == 64 ? ~(uint64_t)0 : ((uint64_t)1 << segment->size) - 1;
  return segment->shared->joined == all;
}

static struct pipe *pipe_of(const struct segment *segment, int from, int to) {
  return &segment->shared->pipes[from * segment->size + to];
}

size_t segment_write(struct segment *segment, int from, int to, const char *bytes, size_t size) {
  struct pipe *pipe = pipe_of(segment, from, to);
  uint64_t at = pipe->n_written;
  size_t room = PIPE_BYTES - (size_t)(at - pipe->n_read), n = size < room ? size : room;
  size_t first = PIPE_BYTES - (size_t)(at % PIPE_BYTES);
  if (first > n)
    first = n;
  memcpy(pipe->bytes + at % PIPE_BYTES, bytes, first);
  memcpy(pipe->bytes, bytes + first, n - first);
  pipe->n_written = at + n;
  return n;
}

size_t segment_read(struct segment *segment, int from, int to, char *bytes, size_t size) {
  struct pipe *pipe = pipe_of(segment, from, to);
  uint64_t at = pipe->n_read;
  size_t there = (size_t)(pipe->n_written - at), n = size < there ? size : there;
  size_t first = PIPE_BYTES - (size_t)(at % PIPE_BYTES);
  if (first > n)
    first = n;
  memcpy(bytes, pipe->bytes + at % PIPE_BYTES, first);
  memcpy(bytes + first, pipe->bytes, n - first);
  pipe->n_read = at + n;
  return n;
}

uint64_t segment_bytes_read(const struct segment *segment, int from, int to) {
  return pipe_of(segment, from, to)->n_read;
}

uint64_t segment_bytes_written(const struct segment *segment, int from, int to) {
  return pipe_of(segment, from, to)->n_written;
}
