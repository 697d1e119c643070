/* Bytes in segments, and how another process reads them.

   Whoever names bytes to another process goes on with them: when what was done with them is over, the memory
   is used for something else. The other process may be late; then it would read what nobody has named to it.
   So each range has a turn, which changes before other bytes are written there, and is named with the range.
   The reader copies the bytes first, and looks at the turn after that: if it is another, the copy counts for
   nothing. */
#ifndef WEIR_COMMON_SHARE_SHARED_H
#define WEIR_COMMON_SHARE_SHARED_H

#include "common/base/memory.h"
#include "common/share/segment.h"

/* SHARED_ALIGN: of every range, whose turn lies in the line before it. */
enum { SHARED_ALIGN = 256 };

struct shared_place {
  struct segment *segment; /* of our own; outlives the place */
  size_t offset;           /* of the bytes */
};

/* What one segment of ours has given away, from its beginning on. */
struct shared_cut {
  struct segment *segment;
  size_t used_bytes;
};

struct shared_cut shared_cut_of(struct segment *segment);
/* How many bytes of a segment a range takes. */
size_t shared_bytes_of(size_t size_bytes);
/* The next range; NULL: there is no room for it. */
void *shared_cut_take(struct shared_cut *cut, size_t size_bytes, struct shared_place *place);

/* Other bytes will be written where the buffer's are: what was named to others is named no more. The caller
   has the sole reference. Of a buffer in no segment: nothing. */
void shared_renew(const struct buffer *buffer);
uint32_t shared_turn(const struct shared_place *place);

/* Bytes of another process. */
struct shared_bytes {
  struct segment *segment; /* a reference; NULL: there are none */
  uint64_t offset;
  size_t size_bytes;
  uint32_t turn;
};

/* Whether the range may be read at all. Errors: INVALID. */
int shared_bytes_check(const struct shared_bytes *bytes, struct err *err);
/* Copies all of them; they were checked. Errors: STALE if they were named no more before all was copied; what
   is in `out` counts for nothing then. */
int shared_bytes_copy(const struct shared_bytes *bytes, void *out, struct err *err);
void shared_bytes_put(struct shared_bytes *bytes);

#endif
