/* Replies of a Redis as they come in. hiredis parses them; this reader decides what hiredis gets.

   hiredis 0.14 waits for as many bytes as a server announces, allocates an array as large as the server says,
   and does not check how a bulk ends. The reader therefore passes on one line at a time, after it has
   compared the length that the line announces with what the caller expects, and no more of a bulk than was
   announced.

   Blocks go around hiredis, which would collect each one whole and copy it. The reader receives their bytes
   into the memory that the caller gets. That memory grows as they arrive. */
#ifndef WEIR_STORAGE_REDIS_REDIS_REPLY_H
#define WEIR_STORAGE_REDIS_REDIS_REPLY_H

#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stddef.h>

#include "common/base/err.h"

/* The text if the reply is a status or a bulk, else NULL. */
const char *redis_reply_text(const redisReply *reply);

enum { REDIS_DEPTH_MAX = 4, REDIS_BUFFER_SIZE = 64 * 1024 };

/* One reply being read. */
struct redis_reader {
  redisReader *parser;
  char *buffer; /* [REDIS_BUFFER_SIZE]: received, not yet parsed */
  size_t begin, end;
  redisReply **target; /* where the reply goes; NULL between replies */
  size_t bytes_left;   /* of lines, bulks and items until the reply is refused */
  size_t bulk_left;    /* of a bulk and its end, that the parser has not got yet */
  bool wants_block;
  redisReply *block; /* being received: block_got of len + 2 bytes are there; NULL: none is */
  size_t block_got, block_capacity;
};

void redis_reader_init(struct redis_reader *reader);
void redis_reader_fini(struct redis_reader *reader);

/* A reply of at most `bytes_max` comes next, into *target. wants_block: if it is a bulk, it is received in
   place; its str is malloc'd then, and a caller that takes it leaves NULL. */
void redis_reader_expect(struct redis_reader *reader, redisReply **target, size_t bytes_max,
                         bool wants_block);
/* Where the next bytes should be received to, at least 1. */
void redis_reader_room(struct redis_reader *reader, void **at, size_t *size);
void redis_reader_received(struct redis_reader *reader, size_t size);
/* Takes what was received; *is_complete when the whole reply is there. Errors: IO, not the protocol or more
   than expected; NO_MEMORY. The reader is of no more use then, but fini. */
int redis_reader_parse(struct redis_reader *reader, bool *is_complete, struct err *err);
bool redis_reader_is_empty(const struct redis_reader *reader); /* nothing received is left */

#endif
