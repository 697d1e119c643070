/* How blocks go to a Redis: each by itself, its command's text ahead of it. */
#include <errno.h>
#include <hiredis/hiredis.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "storage/store.h"
#include "tests/support/storage/redis_fake.h"

/* Commands and blocks are small: what is sent in one go arrives in one go. */
enum { BLOCKS = 5, BLOCK_BYTES = 1000, PARTS = 2, LONGEST_MS = 600000 };

/* A Redis for one client. It notes how many bytes of the SETs are there when one block is, all of it. */
struct server {
  struct fake fake; /* its port alone */
  pthread_t thread;
  size_t text_bytes; /* of a SET, up to its block */
  size_t there[BLOCKS];
  int n_set;
};

/* The listener has little patience, and so have its connections. */
static size_t receive(int fd, char *bytes, size_t size) {
  ssize_t n;
  do
    n = recv(fd, bytes, size, 0);
  while (n < 0 && errno == EAGAIN);
  return n > 0 ? (size_t)n : 0;
}

static void answer(int fd, const char *text) {
  send(fd, text, strlen(text), MSG_NOSIGNAL);
}

/* The greeting, what a store asks when it is opened, and for the blocks. */
static void serve_questions(int fd, redisReader *reader) {
  for (int n_exists = 0; n_exists < 1 + BLOCKS;) {
    char bytes[4096];
    size_t n = receive(fd, bytes, sizeof bytes);
    void *command = NULL;
    if (n == 0)
      return;
    redisReaderFeed(reader, bytes, n);
    while (redisReaderGetReply(reader, &command) == REDIS_OK && command) {
      bool is_exists = strcmp(((redisReply *)command)->element[0]->str, "EXISTS") == 0;
      n_exists += is_exists;
      answer(fd, is_exists ? ":0\r\n" : "+PONG\r\n");
      freeReplyObject(command);
    }
  }
}

static void serve_blocks(struct server *server, int fd) {
  char bytes[BLOCKS * (BLOCK_BYTES + 256)];
  size_t there = 0, whole = 0;
  for (int b = 0; b < BLOCKS; b++) {
    size_t next = b + 1 < BLOCKS ? server->text_bytes : 0;
    whole += server->text_bytes + BLOCK_BYTES + strlen("\r\n");
    while (there < whole + next) {
      size_t n = receive(fd, bytes + there, sizeof bytes - there);
      if (n == 0)
        return;
      there += n;
    }
    server->there[b] = there;
    server->n_set++;
    answer(fd, "+OK\r\n");
  }
}

static void *serve(void *user) {
  struct server *server = user;
  redisReader *reader = redisReaderCreate();
  int fd;
  do
    fd = accept(server->fake.listener, NULL, NULL);
  while (fd < 0);
  serve_questions(fd, reader);
  serve_blocks(server, fd);
  redisReaderFree(reader);
  close(fd);
  return NULL;
}

static void put(const char *url) {
  static unsigned char content[BLOCKS][BLOCK_BYTES];
  struct store_block blocks[BLOCKS] = {0};
  struct store *store;
  struct err err = ERR_NONE;
  if (store_open(url, &store, &err))
    fail_msg("%s", err.text);
  for (int b = 0; b < BLOCKS; b++) {
    memset(content[b], b, BLOCK_BYTES);
    blocks[b].n_parts = PARTS;
    for (int p = 0; p < PARTS; p++)
      blocks[b].parts[p] =
          (struct iovec){content[b] + p * (BLOCK_BYTES / PARTS), (size_t)(BLOCK_BYTES / PARTS)};
  }
  if (store_put_blocks(store, blocks, BLOCKS, NULL, &err))
    fail_msg("%s", err.text);
  store_close(store);
}

static void a_block_is_sent_when_the_one_before_it_is_answered(void **state) {
  struct server server = {0};
  char url[64], text[256];
  (void)state;
  server.text_bytes = (size_t)snprintf(text, sizeof text, "*3\r\n$3\r\nSET\r\n$%d\r\nweir:b:%064d\r\n$%d\r\n",
                                       7 + STORE_KEY_SIZE - 1, 0, BLOCK_BYTES);
  fake_listen(&server.fake);
  snprintf(url, sizeof url, "redis://127.0.0.1:%d?timeout_ms=%d", server.fake.port, LONGEST_MS);
  assert_int_equal(pthread_create(&server.thread, NULL, serve, &server), 0);
  put(url);
  pthread_join(server.thread, NULL);
  close(server.fake.listener);
  assert_int_equal(server.n_set, BLOCKS);
  for (int b = 0; b < BLOCKS; b++) {
    size_t texts = (size_t)(b + 1 < BLOCKS ? b + 2 : BLOCKS);
    assert_int_equal(server.there[b], texts * server.text_bytes + (size_t)(b + 1) * (BLOCK_BYTES + 2));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_block_is_sent_when_the_one_before_it_is_answered),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
