/* Replies of the Redis protocol (RESP 2) as they come in. */
#include "storage/redis/redis_reply.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"

enum { LINE_MAX = 16 * 1024, BODY_FIRST = 1024 * 1024 };

static int parse_line(struct redis_reader *reader, bool *is_value, bool *needs_more, struct err *err);
static int parse_value(struct redis_reader *reader, char type, const char *line, size_t length,
                       bool *is_value, struct err *err);
static int begin_array(struct redis_reader *reader, int64_t n, bool *is_value, struct err *err);
static int begin_body(struct redis_reader *reader, int64_t size, bool *is_value, struct err *err);
static int take_body(struct redis_reader *reader, bool *is_value, struct err *err);
static int grow_body(struct redis_reader *reader, struct err *err);
static void value_done(struct redis_reader *reader);
static bool parse_integer(const char *line, size_t length, int64_t *out);
static int refuse(struct err *err, const char *what);

void redis_reply_fini(struct redis_reply *reply) {
  for (int i = 0; i < reply->n_items; i++)
    redis_reply_fini(&reply->items[i]);
  free(reply->items);
  free(reply->text);
  *reply = (struct redis_reply){0};
}

const char *redis_reply_text(const struct redis_reply *reply) {
  return reply->type == REDIS_STATUS || reply->type == REDIS_BULK ? reply->text : NULL;
}

void redis_reader_init(struct redis_reader *reader) {
  *reader = (struct redis_reader){.buffer = mem_new(REDIS_BUFFER_SIZE)};
}

void redis_reader_fini(struct redis_reader *reader) {
  free(reader->buffer);
  *reader = (struct redis_reader){0};
}

void redis_reader_expect(struct redis_reader *reader, struct redis_reply *reply, size_t bytes_max) {
  reader->target = reply;
  reader->depth = 0;
  reader->in_body = false;
  reader->bytes_left = bytes_max;
}

void redis_reader_room(struct redis_reader *reader, void **at, size_t *size) {
  if (reader->in_body && reader->begin == reader->end) {
    *at = reader->target->text + reader->body_got;
    *size = reader->body_capacity - reader->body_got;
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
  if (reader->in_body && reader->begin == reader->end)
    reader->body_got += size;
  else
    reader->end += size;
}

int redis_reader_parse(struct redis_reader *reader, bool *is_complete, struct err *err) {
  while (reader->target) {
    bool is_value = false, needs_more = false;
    int rc =
        reader->in_body ? take_body(reader, &is_value, err) : parse_line(reader, &is_value, &needs_more, err);
    if (rc)
      return rc;
    if (is_value)
      value_done(reader);
    else if (needs_more || (reader->in_body && reader->begin == reader->end))
      break;
  }
  *is_complete = !reader->target;
  return 0;
}

bool redis_reader_is_empty(const struct redis_reader *reader) {
  return reader->begin == reader->end;
}

static int parse_line(struct redis_reader *reader, bool *is_value, bool *needs_more, struct err *err) {
  char *line = reader->buffer + reader->begin;
  size_t there = reader->end - reader->begin;
  char *end = there ? memchr(line, '\n', there) : NULL;
  if (there && !memchr("+-:$*", line[0], 5))
    return refuse(err, "a reply begins with none of + - : $ *");
  if (!end) {
    *needs_more = true;
    return there > LINE_MAX ? refuse(err, "a line does not end") : 0;
  }
  if (end - line > LINE_MAX || end == line || end[-1] != '\r')
    return refuse(err, "a line does not end as it should");
  reader->begin += (size_t)(end - line) + 1;
  return parse_value(reader, line[0], line + 1, (size_t)(end - line) - 2, is_value, err);
}

static int parse_value(struct redis_reader *reader, char type, const char *line, size_t length,
                       bool *is_value, struct err *err) {
  struct redis_reply *target = reader->target;
  int64_t number;
  if (type == '+' || type == '-') {
    if (length >= reader->bytes_left)
      return refuse(err, "a reply is longer than it can be");
    reader->bytes_left -= length;
    target->text = malloc(length + 1);
    if (!target->text)
      return err_set(err, ERR_NO_MEMORY, "no memory for a reply");
    memcpy(target->text, line, length);
    target->text[length] = 0;
    target->size = length;
    target->type = type == '+' ? REDIS_STATUS : REDIS_ERROR;
    *is_value = true;
    return 0;
  }
  if (!parse_integer(line, length, &number))
    return refuse(err, "a number is none");
  if (type == '$')
    return begin_body(reader, number, is_value, err);
  if (type == '*')
    return begin_array(reader, number, is_value, err);
  target->type = REDIS_INTEGER;
  target->integer = number;
  *is_value = true;
  return 0;
}

static int begin_array(struct redis_reader *reader, int64_t n, bool *is_value, struct err *err) {
  struct redis_reply *target = reader->target;
  *is_value = n <= 0;
  if (n == -1)
    return 0;
  if (n < 0 || (uint64_t)n > reader->bytes_left / sizeof *target || reader->depth == REDIS_DEPTH_MAX)
    return refuse(err, "an array is longer or deeper than it can be");
  target->type = REDIS_ARRAY;
  if (n == 0)
    return 0;
  reader->bytes_left -= (size_t)n * sizeof *target;
  target->items = calloc((size_t)n, sizeof *target);
  if (!target->items)
    return err_set(err, ERR_NO_MEMORY, "no memory for a reply of %lld items", (long long)n);
  target->n_items = (int)n;
  reader->parents[reader->depth] = target;
  reader->next[reader->depth++] = 1;
  reader->target = &target->items[0];
  return 0;
}

static int begin_body(struct redis_reader *reader, int64_t size, bool *is_value, struct err *err) {
  struct redis_reply *target = reader->target;
  *is_value = size == -1;
  if (size == -1)
    return 0;
  if (size < 0 || (uint64_t)size >= reader->bytes_left)
    return refuse(err, "a value is longer than it can be");
  reader->bytes_left -= (size_t)size;
  target->type = REDIS_BULK;
  target->size = (size_t)size;
  reader->in_body = true;
  reader->body_got = reader->body_capacity = 0;
  return grow_body(reader, err);
}

/* Moves what the buffer has of the body; the rest is received in place. */
static int take_body(struct redis_reader *reader, bool *is_value, struct err *err) {
  struct redis_reply *target = reader->target;
  size_t whole = target->size + 2;
  while (reader->body_got < whole) {
    size_t n = reader->end - reader->begin;
    if (reader->body_got == reader->body_capacity && grow_body(reader, err))
      return err->code;
    if (n == 0)
      return 0;
    if (n > reader->body_capacity - reader->body_got)
      n = reader->body_capacity - reader->body_got;
    memcpy(target->text + reader->body_got, reader->buffer + reader->begin, n);
    reader->begin += n;
    reader->body_got += n;
  }
  if (target->text[target->size] != '\r' || target->text[target->size + 1] != '\n')
    return refuse(err, "a value does not end where it said");
  target->text[target->size] = 0;
  reader->in_body = false;
  *is_value = true;
  return 0;
}

/* Doubles, so that a length alone costs the server's peer nothing. */
static int grow_body(struct redis_reader *reader, struct err *err) {
  struct redis_reply *target = reader->target;
  size_t whole = target->size + 2, capacity = reader->body_capacity ? reader->body_capacity * 2 : BODY_FIRST;
  char *grown = realloc(target->text, capacity < whole ? capacity : whole);
  if (!grown)
    return err_set(err, ERR_NO_MEMORY, "no memory for a value of %zu bytes", target->size);
  target->text = grown;
  reader->body_capacity = capacity < whole ? capacity : whole;
  return 0;
}

/* On to the next item that is still to be read. */
static void value_done(struct redis_reader *reader) {
  while (reader->depth > 0) {
    struct redis_reply *parent = reader->parents[reader->depth - 1];
    if (reader->next[reader->depth - 1] < parent->n_items) {
      reader->target = &parent->items[reader->next[reader->depth - 1]++];
      return;
    }
    reader->depth--;
  }
  reader->target = NULL;
}

static bool parse_integer(const char *line, size_t length, int64_t *out) {
  bool is_negative = length > 0 && line[0] == '-';
  int64_t value = 0;
  if (length <= (size_t)is_negative || length > 18 + (size_t)is_negative)
    return false;
  for (size_t i = is_negative; i < length; i++) {
    if (line[i] < '0' || line[i] > '9')
      return false;
    value = value * 10 + (line[i] - '0');
  }
  *out = is_negative ? -value : value;
  return true;
}

static int refuse(struct err *err, const char *what) {
  return err_set(err, ERR_IO, "answers nonsense: %s", what);
}
