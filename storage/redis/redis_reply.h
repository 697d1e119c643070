/* Replies of the Redis protocol (RESP 2) as they come in.

   Why not hiredis's reader: release 0.14 collects a whole bulk in one buffer whose size the server dictates,
   allocates an array as large as the server says, and copies each bulk out of that buffer. This reader checks
   every length before it allocates, takes memory as bytes arrive, and receives a block's bytes into the
   memory that the caller gets. */
#ifndef WEIR_STORAGE_REDIS_REDIS_REPLY_H
#define WEIR_STORAGE_REDIS_REDIS_REPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

enum redis_type { REDIS_NIL, REDIS_STATUS, REDIS_ERROR, REDIS_INTEGER, REDIS_BULK, REDIS_ARRAY };

struct redis_reply {
  enum redis_type type;
  int64_t integer;
  char *text; /* STATUS, ERROR, BULK: size bytes and a zero, malloc'd */
  size_t size;
  struct redis_reply *items; /* ARRAY */
  int n_items;
};

void redis_reply_fini(struct redis_reply *reply); /* leaves a NIL */

/* The text if it is a STATUS or BULK, else NULL. */
const char *redis_reply_text(const struct redis_reply *reply);

enum { REDIS_DEPTH_MAX = 4, REDIS_BUFFER_SIZE = 64 * 1024 };

/* One reply being read. */
struct redis_reader {
  char *buffer; /* [REDIS_BUFFER_SIZE]: received, not yet parsed */
  size_t begin, end;
  struct redis_reply *target; /* what is read now; NULL between replies */
  struct redis_reply *parents[REDIS_DEPTH_MAX];
  int next[REDIS_DEPTH_MAX]; /* item of that parent that comes next */
  int depth;
  bool in_body; /* of the target, a BULK: body_got of size + 2 bytes are there */
  size_t body_got, body_capacity;
  size_t bytes_left; /* of bulks and items until the reply is refused */
};

void redis_reader_init(struct redis_reader *reader);
void redis_reader_fini(struct redis_reader *reader);

/* A reply of at most `bytes_max` comes next, into *reply (a NIL). */
void redis_reader_expect(struct redis_reader *reader, struct redis_reply *reply, size_t bytes_max);
/* Where the next bytes should be received to, at least 1. */
void redis_reader_room(struct redis_reader *reader, void **at, size_t *size);
void redis_reader_received(struct redis_reader *reader, size_t size);
/* Takes what was received; *is_complete when the whole reply is there. Errors: IO, not the protocol or more
   than expected; NO_MEMORY. The reader is of no more use then, but fini. */
int redis_reader_parse(struct redis_reader *reader, bool *is_complete, struct err *err);
bool redis_reader_is_empty(const struct redis_reader *reader); /* nothing received is left */

#endif
