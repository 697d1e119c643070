/* One server, and the connection to it. */
#include "storage/redis/redis_link.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/memory.h"

enum { WORD_HEAD_MAX = 32, PROGRESS_BYTES = 64 * 1024 };
static const char empty_word[] = "$0\r\n\r\n";
static const uint64_t ms = 1000000, backoff_least_ms = 50, backoff_most_ms = 5000;
static const size_t exchange_bytes_max = (size_t)1 << 30; /* of all replies together */

/* Commands as bytes to send: their text, and between it blocks. */
struct frame {
  char *text, *end;
  struct iovec *parts;
  int *replies; /* [n_parts]: how many are there before the part is sent */
  int n_parts, sent_parts;
};

/* An exchange on its way. */
struct exchange {
  struct redis_link *link;
  struct redis_command *const *commands;
  int n, n_done;
  struct frame frame;
  size_t bytes_left, progress_bytes;
  uint64_t deadline_ns;
};

static int link_greet(struct redis_link *link, struct err *err);
static int check_greeting(struct redis_link *link, struct redis_command *const *commands, int n,
                          struct err *err);
static void connect_failed(struct redis_link *link, uint64_t began_ns, const struct err *err);
static void explain_end(const struct exchange *exchange, struct err *err);
static int exchange_step(struct exchange *exchange, struct err *err);
static int send_some(struct exchange *exchange, bool *has_moved, struct err *err);
static int count_due_parts(const struct exchange *exchange);
static int receive_some(struct exchange *exchange, bool *has_moved, struct err *err);
static void expect_next(struct exchange *exchange);
static void exchange_moved(struct exchange *exchange, size_t bytes);
static int frame_init(struct frame *frame, struct redis_command *const *commands, int n, struct err *err);
static int frame_add(struct frame *frame, const struct redis_command *command, int nth, struct err *err);
static void frame_add_block(struct frame *frame, const struct redis_command *command, int nth);
static void frame_add_part(struct frame *frame, const struct iovec *part, int replies);
static void frame_fini(struct frame *frame);

void redis_command_add(struct redis_command *command, const void *data, size_t size) {
  CHECK(command->n_words < REDIS_WORDS_MAX);
  command->words[command->n_words] = data ? data : "";
  command->sizes[command->n_words++] = size;
}

void redis_command_add_text(struct redis_command *command, const char *text) {
  redis_command_add(command, text, strlen(text));
}

void redis_commands_fini(struct redis_command *commands, int n) {
  for (int i = 0; i < n; i++) {
    freeReplyObject(commands[i].reply);
    commands[i].reply = NULL;
  }
}

void redis_link_init(struct redis_link *link, const struct redis_config *config,
                     const struct redis_endpoint *endpoint, enum redis_role role) {
  *link = (struct redis_link){
      .config = config, .endpoint = *endpoint, .role = role, .has_auth = role != REDIS_ROLE_SENTINEL};
}

void redis_link_fini(struct redis_link *link) {
  redis_link_close(link);
}

void redis_link_close(struct redis_link *link) {
  redis_socket_close(link->socket);
  link->socket = NULL;
  redis_reader_fini(&link->reader);
}

/* Nothing is due, so an end, an error and any byte mean that the connection is of no more use. */
bool redis_link_is_up(struct redis_link *link) {
  struct err ignored;
  char byte;
  if (!link->socket)
    return false;
  if (redis_reader_is_empty(&link->reader) && redis_socket_receive(link->socket, &byte, 1, &ignored) == 0)
    return true;
  redis_link_close(link);
  return false;
}

int redis_link_connect(struct redis_link *link, struct err *err) {
  uint64_t began_ns = clock_now_ns();
  int rc;
  *err = ERR_NONE;
  if (redis_link_is_up(link))
    return 0;
  if (began_ns < link->retry_at_ns) {
    *err = link->failure;
    return err->code;
  }
  rc = redis_socket_open(&link->endpoint, link->config, &link->socket, err);
  if (rc)
    redis_link_err(link, err);
  else {
    redis_reader_init(&link->reader);
    rc = link_greet(link, err);
  }
  if (!rc && link->role != REDIS_ROLE_SENTINEL)
    rc = redis_link_check_eviction(link, err);
  if (rc) {
    redis_link_close(link);
    connect_failed(link, began_ns, err);
    return rc;
  }
  link->failures = 0;
  return 0;
}

static int link_greet(struct redis_link *link, struct err *err) {
  const struct redis_config *config = link->config;
  bool wants_role = link->role == REDIS_ROLE_MASTER;
  struct redis_command commands[3] = {0}, *list[3] = {&commands[0], &commands[1], &commands[2]};
  char db[16];
  int n = 0, rc;
  if (config->password && link->has_auth) {
    redis_command_add_text(&commands[n], "AUTH");
    if (config->user)
      redis_command_add_text(&commands[n], config->user);
    redis_command_add_text(&commands[n++], config->password);
  }
  if (config->db && link->role != REDIS_ROLE_SENTINEL) {
    snprintf(db, sizeof db, "%d", config->db);
    redis_command_add_text(&commands[n], "SELECT");
    redis_command_add_text(&commands[n++], db);
  }
  commands[n].expects = REDIS_EXPECTS(wants_role ? REDIS_REPLY_ARRAY : REDIS_REPLY_STATUS);
  redis_command_add_text(&commands[n++], wants_role ? "ROLE" : "PING");
  rc = redis_link_exchange(link, list, n, err);
  if (rc == ERR_IO) {
    err_set(err, ERR_INVALID, "does not speak the Redis protocol%s",
            config->has_tls ? "" : " (is it a port for TLS? then rediss://)");
    return redis_link_err(link, err);
  }
  if (!rc)
    rc = check_greeting(link, list, n, err);
  redis_commands_fini(commands, n);
  return rc;
}

static int check_greeting(struct redis_link *link, struct redis_command *const *commands, int n,
                          struct err *err) {
  const redisReply *last = commands[n - 1]->reply;
  const char *role;
  int rc;
  if (!link->has_auth && link->config->password && redis_reply_is_error(last, "NOAUTH")) {
    link->has_auth = true;
    return link_greet(link, err);
  }
  rc = redis_link_check(link, commands, n, err);
  if (rc || link->role != REDIS_ROLE_MASTER)
    return rc;
  role = last->elements > 0 ? redis_reply_text(last->element[0]) : NULL;
  if (role && strcmp(role, "master") == 0)
    return 0;
  err_set(err, ERR_UNAVAILABLE, "is no master yet, or no more (a failover goes on, or sentinels are behind)");
  return redis_link_err(link, err);
}

/* A server that is gone costs at most half of the callers' time. */
static void connect_failed(struct redis_link *link, uint64_t began_ns, const struct err *err) {
  uint64_t now_ns = clock_now_ns();
  uint64_t pause_ns = (backoff_least_ms << (link->failures < 5 ? link->failures : 5)) * ms;
  if (pause_ns < now_ns - began_ns)
    pause_ns = now_ns - began_ns;
  if (pause_ns > backoff_most_ms * ms)
    pause_ns = backoff_most_ms * ms;
  link->failures++;
  link->retry_at_ns = now_ns + pause_ns;
  link->failure = *err;
}

int redis_link_exchange(struct redis_link *link, struct redis_command *const *commands, int n,
                        struct err *err) {
  struct exchange exchange = {.link = link, .commands = commands, .n = n, .bytes_left = exchange_bytes_max};
  int rc = frame_init(&exchange.frame, commands, n, err);
  expect_next(&exchange);
  exchange.deadline_ns = clock_now_ns() + (uint64_t)link->config->timeout_ms * ms;
  while (!rc && exchange.n_done < n)
    rc = exchange_step(&exchange, err);
  frame_fini(&exchange.frame);
  if (!rc)
    return 0;
  redis_link_close(link);
  explain_end(&exchange, err);
  for (int i = 0; i < n; i++)
    redis_commands_fini(commands[i], 1);
  return err->code;
}

/* A server that refuses a client says why before it closes the connection. */
static void explain_end(const struct exchange *exchange, struct err *err) {
  const redisReply *last = exchange->n_done > 0 ? exchange->commands[exchange->n_done - 1]->reply : NULL;
  if (err->code != ERR_UNAVAILABLE || !last || last->type != REDIS_REPLY_ERROR)
    redis_link_err(exchange->link, err);
  else if (redis_link_refused(exchange->link, last, err) == ERR_IO)
    err->code = ERR_UNAVAILABLE;
}

static int exchange_step(struct exchange *exchange, struct err *err) {
  bool has_moved = false, has_to_send;
  int rc = send_some(exchange, &has_moved, err);
  struct err sending = *err;
  /* A server that refuses says why before it closes: read on when sending fails. */
  if (receive_some(exchange, &has_moved, err))
    return err->code;
  if (rc && !has_moved && exchange->n_done < exchange->n) {
    *err = sending;
    return rc;
  }
  if (has_moved || exchange->n_done == exchange->n)
    return 0;
  has_to_send = count_due_parts(exchange) > 0;
  if (redis_socket_wait(exchange->link->socket, has_to_send, exchange->deadline_ns))
    return 0;
  return err_set(err, ERR_TIMEOUT, "no answer within timeout_ms=%d", exchange->link->config->timeout_ms);
}

static int send_some(struct exchange *exchange, bool *has_moved, struct err *err) {
  struct frame *frame = &exchange->frame;
  int n_due = count_due_parts(exchange);
  ssize_t n;
  if (n_due == 0)
    return 0;
  n = redis_socket_send(exchange->link->socket, frame->parts + frame->sent_parts, n_due, err);
  if (n < 0)
    return err->code;
  *has_moved |= n > 0;
  exchange_moved(exchange, (size_t)n);
  while (frame->sent_parts < frame->n_parts) {
    struct iovec *part = &frame->parts[frame->sent_parts];
    size_t taken = (size_t)n < part->iov_len ? (size_t)n : part->iov_len;
    part->iov_base = (char *)part->iov_base + taken;
    part->iov_len -= taken;
    n -= (ssize_t)taken;
    if (part->iov_len > 0)
      break;
    frame->sent_parts++;
  }
  return 0;
}

static int count_due_parts(const struct exchange *exchange) {
  const struct frame *frame = &exchange->frame;
  int end = frame->sent_parts;
  while (end < frame->n_parts && frame->replies[end] <= exchange->n_done)
    end++;
  return end - frame->sent_parts;
}

static int receive_some(struct exchange *exchange, bool *has_moved, struct err *err) {
  struct redis_reader *reader = &exchange->link->reader;
  bool is_complete = false;
  size_t size;
  ssize_t n;
  void *at;
  redis_reader_room(reader, &at, &size);
  n = redis_socket_receive(exchange->link->socket, at, size, err);
  if (n < 0)
    return err->code;
  if (n == 0)
    return 0;
  *has_moved = true;
  redis_reader_received(reader, (size_t)n);
  exchange_moved(exchange, (size_t)n);
  do {
    if (redis_reader_parse(reader, &is_complete, err))
      return err->code;
    if (!is_complete)
      return 0;
    exchange->n_done++;
    exchange_moved(exchange, PROGRESS_BYTES);
    expect_next(exchange);
  } while (exchange->n_done < exchange->n && !redis_reader_is_empty(reader));
  return 0;
}

static void expect_next(struct exchange *exchange) {
  struct redis_reader *reader = &exchange->link->reader;
  struct redis_command *command;
  size_t most;
  if (exchange->n_done > 0) {
    const redisReply *done = exchange->commands[exchange->n_done - 1]->reply;
    exchange->bytes_left -= done->len < exchange->bytes_left ? done->len : exchange->bytes_left;
  }
  if (exchange->n_done == exchange->n)
    return;
  command = exchange->commands[exchange->n_done];
  most = command->reply_bytes_max ? command->reply_bytes_max : REDIS_REPLY_SMALL;
  redis_reader_expect(reader, &command->reply, most < exchange->bytes_left ? most : exchange->bytes_left,
                      command->wants_block);
}

/* A server that drips single bytes does not prolong its time. */
static void exchange_moved(struct exchange *exchange, size_t bytes) {
  exchange->progress_bytes += bytes;
  if (exchange->progress_bytes < PROGRESS_BYTES)
    return;
  exchange->progress_bytes = 0;
  exchange->deadline_ns = clock_now_ns() + (uint64_t)exchange->link->config->timeout_ms * ms;
}

static int frame_init(struct frame *frame, struct redis_command *const *commands, int n, struct err *err) {
  size_t text_size = 0, parts_max = 1;
  int rc = 0;
  for (int i = 0; i < n; i++) {
    text_size += WORD_HEAD_MAX * (size_t)(commands[i]->n_words + 2);
    parts_max += (size_t)commands[i]->n_value + 1;
    for (int w = 0; w < commands[i]->n_words; w++)
      text_size += commands[i]->sizes[w];
  }
  *frame = (struct frame){.text = malloc(text_size),
                          .parts = mem_new(parts_max * sizeof *frame->parts),
                          .replies = mem_new(parts_max * sizeof *frame->replies)};
  if (!frame->text)
    return err_set(err, ERR_NO_MEMORY, "no memory for commands of %zu bytes", text_size);
  frame->end = frame->text;
  frame->parts[frame->n_parts++] = (struct iovec){frame->text, 0}; /* the text since the last block */
  for (int i = 0; i < n && !rc; i++)
    rc = frame_add(frame, commands[i], i, err);
  return rc;
}

static int frame_add(struct frame *frame, const struct redis_command *command, int nth, struct err *err) {
  char *text;
  int size = redisFormatCommandArgv(&text, command->n_words, (const char **)command->words, command->sizes);
  if (size < 0)
    return err_set(err, ERR_NO_MEMORY, "no memory for a command");
  frame->end = mempcpy(frame->end, text, (size_t)size);
  frame->parts[frame->n_parts - 1].iov_len += (size_t)size;
  explicit_bzero(text, (size_t)size);
  redisFreeCommand(text);
  if (command->n_value > 0)
    frame_add_block(frame, command, nth);
  return 0;
}

/* Puts a block in place of the empty word that ends the command. The block waits for the replies to all
   commands before its own. A Redis that knows a value's length receives it in the place where it will stay,
   but whatever it receives together with other bytes it copies, 512 KiB at a time. So no block is on its way
   together with the one before it. The command's text is, so that the length is known when the block comes.
 */
static void frame_add_block(struct frame *frame, const struct redis_command *command, int nth) {
  struct iovec *text = &frame->parts[frame->n_parts - 1];
  size_t size = 0;
  for (int i = 0; i < command->n_value; i++)
    size += command->value[i].iov_len;
  frame->end -= strlen(empty_word);
  frame->end += sprintf(frame->end, "$%zu\r\n", size);
  text->iov_len = (size_t)(frame->end - (char *)text->iov_base);
  for (int i = 0; i < command->n_value; i++)
    frame_add_part(frame, &command->value[i], nth);
  frame_add_part(frame, &(struct iovec){frame->end, strlen("\r\n")}, nth);
  frame->end = mempcpy(frame->end, "\r\n", strlen("\r\n"));
}

static void frame_add_part(struct frame *frame, const struct iovec *part, int replies) {
  frame->replies[frame->n_parts] = replies;
  frame->parts[frame->n_parts++] = *part;
}

/* The text may hold a password. */
static void frame_fini(struct frame *frame) {
  if (frame->text)
    explicit_bzero(frame->text, (size_t)(frame->end - frame->text));
  free(frame->text);
  free(frame->parts);
  free(frame->replies);
}
