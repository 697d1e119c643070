/* Replies of a Redis as they come in. */
#include "storage/redis/redis_reply.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"

enum { LINE_MAX = 16 * 1024, BLOCK_FIRST = 1024 * 1024, BULK_END = 2 };

static int read_line(struct redis_reader *reader, struct err *err);
static int check_line(struct redis_reader *reader, const char *line, size_t size, struct err *err);
static bool line_announces(const char *line, size_t *announced);
static int read_bulk(struct redis_reader *reader, struct err *err);
static int feed_parser(struct redis_reader *reader, size_t size, struct err *err);
static int begin_block(struct redis_reader *reader, struct err *err);
static int read_block(struct redis_reader *reader, struct err *err);
static int grow_block(struct redis_reader *reader, struct err *err);
static int refuse_reply(struct err *err, const char *what);

const char *redis_reply_text(const redisReply *reply) {
  return reply->type == REDIS_REPLY_STATUS || reply->type == REDIS_REPLY_STRING ? reply->str : NULL;
}

void redis_reader_init(struct redis_reader *reader) {
  *reader = (struct redis_reader){.parser = redisReaderCreate(), .buffer = mem_new(REDIS_BUFFER_SIZE)};
  CHECK(reader->parser);
}

void redis_reader_fini(struct redis_reader *reader) {
  redisReaderFree(reader->parser);
  freeReplyObject(reader->block);
  free(reader->buffer);
  *reader = (struct redis_reader){0};
}

void redis_reader_expect(struct redis_reader *reader, redisReply **target, size_t bytes_max,
                         bool wants_block) {
  reader->target = target;
  reader->bytes_left = bytes_max;
  reader->wants_block = wants_block;
}

void redis_reader_room(struct redis_reader *reader, void **at, size_t *size) {
  if (reader->block && reader->begin == reader->end) {
    *at = reader->block->str + reader->block_got;
    *size = reader->block_capacity - reader->block_got;
    return;
  }
  if (reader->begin > 0) {
    memmove(reader->buffer, reader->buffer + reader->begin, reader->end - reader->begin);
    reader->end -= reader->begin;
    reader->begin = 0;
  }
  *at = reader->buffer + reader->end;
  *size = REDIS_BUFFER_SIZE - reader->end;
}

void redis_reader_received(struct redis_reader *reader, size_t size) {
  if (reader->block && reader->begin == reader->end)
    reader->block_got += size;
  else
    reader->end += size;
}

int redis_reader_parse(struct redis_reader *reader, bool *is_complete, struct err *err) {
  bool has_moved = true;
  while (reader->target && has_moved) {
    size_t before = reader->begin;
    int rc = reader->block           ? read_block(reader, err)
             : reader->bulk_left > 0 ? read_bulk(reader, err)
                                     : read_line(reader, err);
    if (rc)
      return rc;
    has_moved = reader->begin != before;
  }
  *is_complete = !reader->target;
  return 0;
}

bool redis_reader_is_empty(const struct redis_reader *reader) {
  return reader->begin == reader->end;
}

static int read_line(struct redis_reader *reader, struct err *err) {
  char *line = reader->buffer + reader->begin;
  size_t there = reader->end - reader->begin;
  char *end = there ? memchr(line, '\n', there) : NULL;
  if (there && !memchr("+-:$*", line[0], 5))
    return refuse_reply(err, "a reply begins with none of + - : $ *");
  if (!end)
    return there > LINE_MAX ? refuse_reply(err, "a line does not end") : 0;
  if (end - line > LINE_MAX || end[-1] != '\r')
    return refuse_reply(err, "a line does not end as it should");
  return check_line(reader, line, (size_t)(end - line) + 1, err);
}

/* Gives the parser a line whose announcement is within bounds; a bulk's or an array's content follows it. */
static int check_line(struct redis_reader *reader, const char *line, size_t size, struct err *err) {
  size_t announced, cost = size;
  bool has_bulk = line[0] == '$' && line_announces(line, &announced);
  if (has_bulk) {
    if (announced >= reader->bytes_left)
      return refuse_reply(err, "a value is longer than it can be");
    cost = announced;
  } else if (line[0] == '*' && line_announces(line, &announced)) {
    if (announced > reader->bytes_left / sizeof(redisReply) || reader->parser->ridx == REDIS_DEPTH_MAX)
      return refuse_reply(err, "an array is longer or deeper than it can be");
    cost = announced * sizeof(redisReply);
  } else if (size >= reader->bytes_left)
    return refuse_reply(err, "a reply is longer than it can be");
  reader->bytes_left -= cost;
  if (!has_bulk)
    return feed_parser(reader, size, err);
  reader->bulk_left = announced + BULK_END;
  if (!reader->wants_block || reader->parser->ridx >= 0)
    return feed_parser(reader, size, err);
  reader->begin += size;
  return begin_block(reader, err);
}

/* False for the -1 of a nil, and for what is no number, which the parser refuses. */
static bool line_announces(const char *line, size_t *announced) {
  char *end;
  if (!isdigit((unsigned char)line[1]))
    return false;
  *announced = strtoull(line + 1, &end, 10);
  return *end == '\r';
}

/* The end is looked at here, as the parser does not. */
static int read_bulk(struct redis_reader *reader, struct err *err) {
  size_t there = reader->end - reader->begin, size = BULK_END;
  if (reader->bulk_left > BULK_END)
    size = there < reader->bulk_left - BULK_END ? there : reader->bulk_left - BULK_END;
  else if (there < BULK_END)
    return 0;
  else if (memcmp(reader->buffer + reader->begin, "\r\n", BULK_END) != 0)
    return refuse_reply(err, "a value does not end where it said");
  reader->bulk_left -= size;
  return feed_parser(reader, size, err);
}

static int feed_parser(struct redis_reader *reader, size_t size, struct err *err) {
  void *reply = NULL;
  if (redisReaderFeed(reader->parser, reader->buffer + reader->begin, size) != REDIS_OK ||
      redisReaderGetReply(reader->parser, &reply) != REDIS_OK)
    return reader->parser->err == REDIS_ERR_OOM ? err_set(err, ERR_NO_MEMORY, "no memory for a reply")
                                                : refuse_reply(err, reader->parser->errstr);
  reader->begin += size;
  if (reply) {
    *reader->target = reply;
    reader->target = NULL;
  }
  return 0;
}

/* As hiredis makes a bulk, so that freeReplyObject frees it. */
static int begin_block(struct redis_reader *reader, struct err *err) {
  reader->block = calloc(1, sizeof *reader->block);
  if (!reader->block)
    return err_set(err, ERR_NO_MEMORY, "no memory for a reply");
  reader->block->type = REDIS_REPLY_STRING;
  reader->block->len = reader->bulk_left - BULK_END;
  reader->bulk_left = reader->block_got = reader->block_capacity = 0;
  return grow_block(reader, err);
}

/* Moves what the buffer has of the block; the rest is received in place. */
static int read_block(struct redis_reader *reader, struct err *err) {
  redisReply *block = reader->block;
  while (reader->block_got < block->len + BULK_END) {
    size_t n = reader->end - reader->begin;
    if (reader->block_got == reader->block_capacity && grow_block(reader, err))
      return err->code;
    if (n == 0)
      return 0;
    if (n > reader->block_capacity - reader->block_got)
      n = reader->block_capacity - reader->block_got;
    memcpy(block->str + reader->block_got, reader->buffer + reader->begin, n);
    reader->begin += n;
    reader->block_got += n;
  }
  if (memcmp(block->str + block->len, "\r\n", BULK_END) != 0)
    return refuse_reply(err, "a value does not end where it said");
  block->str[block->len] = 0;
  *reader->target = block;
  reader->target = NULL;
  reader->block = NULL;
  return 0;
}

/* Doubles, so that a length alone costs the server's peer nothing. */
static int grow_block(struct redis_reader *reader, struct err *err) {
  redisReply *block = reader->block;
  size_t whole = block->len + BULK_END,
         capacity = reader->block_capacity ? reader->block_capacity * 2 : BLOCK_FIRST;
  char *grown = realloc(block->str, capacity < whole ? capacity : whole);
  if (!grown)
    return err_set(err, ERR_NO_MEMORY, "no memory for a value of %zu bytes", block->len);
  block->str = grown;
  reader->block_capacity = capacity < whole ? capacity : whole;
  return 0;
}

static int refuse_reply(struct err *err, const char *what) {
  return err_set(err, ERR_IO, "answers nonsense: %s", what);
}
