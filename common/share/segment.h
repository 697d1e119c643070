/* A segment: memory of one process that others of its host can read. It has no name anywhere: another process
   opens it as /proc/PID/fd/N, which the kernel allows to the same user in the same namespace of processes
   alone, and it is gone with the last process that has it mapped, however that process ends.

   The file is sealed before anybody knows of it: it never shrinks, so that reading what is mapped cannot
   fault, and only its maker writes to it. It begins with a token, by which a reader knows that it has opened
   the segment that it was told of, and not what another process keeps under that number. */
#ifndef WEIR_COMMON_SHARE_SEGMENT_H
#define WEIR_COMMON_SHARE_SEGMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

/* OPENED_MAX: others' segments that a process has mapped at a time: a process may have 65,530 mappings, and
   needs them for other things, too. */
enum {
  SEGMENT_TOKEN_BYTES = 16,
  SEGMENT_HEADER_BYTES = 256,
  SEGMENT_BYTES_MAX = 1 << 30,
  SEGMENT_OPENED_MAX = 4096
};

struct segment {
  unsigned char *data; /* [size_bytes], the header first */
  size_t size_bytes;
  int fd;      /* of our own; -1: another process made it */
  uint32_t id; /* of our own: no other of this process has it */
  unsigned char token[SEGMENT_TOKEN_BYTES];
  uint32_t refs; /* atomic */
};

/* Where another process finds it. */
struct segment_place {
  uint32_t pid, fd;
  uint64_t size_bytes;
  unsigned char token[SEGMENT_TOKEN_BYTES];
};

/* False where $WEIR_SHM is "off", or segment_turn_off was called: none is made or opened. */
bool segment_is_on(void);
void segment_turn_off(void); /* before there are threads */

/* Bytes behind the header are zero, and have no memory before they are touched. size_bytes: with the header,
   at most SEGMENT_BYTES_MAX. Errors: UNSUPPORTED, of a kernel without such seals among others; NO_MEMORY. */
int segment_new(size_t size_bytes, struct segment **out, struct err *err);
struct segment_place segment_place(const struct segment *segment); /* of our own */

/* Maps what another process says that it has made, to be read. Nothing that it says is relied on. Errors:
   INVALID for what is no segment, or another than the place says; UNAVAILABLE where it cannot be opened;
   NO_MEMORY beyond SEGMENT_OPENED_MAX, and where all that is mapped would be larger than the machine's
   memory. */
int segment_open(const struct segment_place *place, struct segment **out, struct err *err);

struct segment *segment_get(struct segment *segment);
void segment_put(struct segment *segment); /* NULL is ignored */

#endif
