#include "tests/support/storage/redis_fake.h"

#include <errno.h>
#include <hiredis/hiredis.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static bool fake_send(int fd, const char *text, size_t size) {
  return size == 0 || send(fd, text, size, MSG_NOSIGNAL) >= 0;
}

/* False: the connection is closed. */
static bool fake_repeats(struct fake *fake, int fd, const char *text, size_t size) {
  for (size_t at = 0; !fake->is_over; at = (at + 1) % size) {
    if (fake->manner == FAKE_DRIPS ? !fake_send(fd, text + at, 1) : !fake_send(fd, text, size))
      return false;
    if (fake->manner == FAKE_DRIPS)
      usleep(5000);
  }
  return false;
}

static bool fake_replies(struct fake *fake, int fd, const redisReply *command) {
  const struct {
    const char *name, *usual, *other;
  } rows[] = {{"PING", "+PONG\r\n", fake->ping},
              {"INFO", "$13\r\nmaxmemory:0\r\n\r\n", fake->info},
              {"EXISTS", ":0\r\n", fake->exists},
              {"AUTH", "+OK\r\n", fake->auth},
              {"CLUSTER", NULL, fake->cluster}};
  const char *name = command->elements > 0 ? command->element[0]->str : NULL;
  size_t size;
  bool is_block = command->elements > 1 && command->element[1]->len > 64;
  for (size_t i = 0; name && !is_block && i < sizeof rows / sizeof *rows; i++) {
    const char *text = rows[i].other ? rows[i].other : rows[i].usual;
    if (strcmp(name, rows[i].name) == 0 && text)
      return fake_send(fd, text, strlen(text));
  }
  if (fake->closes_first > 0) {
    fake->closes_first--;
    return false;
  }
  size = fake->answer_size ? fake->answer_size : strlen(fake->answer);
  if (fake->manner == FAKE_DRIPS || fake->manner == FAKE_STREAMS)
    return fake_repeats(fake, fd, fake->answer, size);
  return fake_send(fd, fake->answer, size) && fake->manner != FAKE_CLOSES;
}

/* The next command; NULL: the client has closed, or what it says is no command. */
static redisReply *fake_receives(struct fake *fake, int fd, redisReader *reader) {
  char bytes[64 * 1024];
  void *command = NULL;
  while (!fake->is_over) {
    ssize_t n;
    if (redisReaderGetReply(reader, &command) != REDIS_OK) {
      fake_send(fd, "-ERR Protocol error\r\n", 21);
      return NULL;
    }
    if (command)
      return command;
    n = recv(fd, bytes, sizeof bytes, 0);
    if (n == 0 || (n < 0 && errno != EAGAIN))
      return NULL;
    redisReaderFeed(reader, bytes, n > 0 ? (size_t)n : 0);
  }
  return NULL;
}

static void fake_patience(int fd) {
  struct timeval patience = {.tv_usec = 2000};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
}

static void *fake_main(void *user) {
  struct fake *fake = user;
  while (!fake->is_over) {
    int fd = accept(fake->listener, NULL, NULL);
    redisReader *reader;
    redisReply *command;
    bool is_open = true;
    if (fd < 0)
      continue;
    fake_patience(fd);
    reader = redisReaderCreate();
    while (is_open && (command = fake_receives(fake, fd, reader))) {
      is_open = fake_replies(fake, fd, command);
      freeReplyObject(command);
    }
    redisReaderFree(reader);
    close(fd);
  }
  return NULL;
}

void fake_listen(struct fake *fake) {
  struct sockaddr_in address = {.sin_family = AF_INET,
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                .sin_port = htons((uint16_t)fake->port)};
  socklen_t size = sizeof address;
  fake->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  fake_patience(fake->listener);
  assert_int_equal(bind(fake->listener, (struct sockaddr *)&address, sizeof address), 0);
  assert_int_equal(listen(fake->listener, 16), 0);
  getsockname(fake->listener, (struct sockaddr *)&address, &size);
  fake->port = ntohs(address.sin_port);
}

void fake_start(struct fake *fake) {
  if (!fake->listener)
    fake_listen(fake);
  assert_int_equal(pthread_create(&fake->thread, NULL, fake_main, fake), 0);
}

void fake_stop(struct fake *fake) {
  fake->is_over = true;
  pthread_join(fake->thread, NULL);
  close(fake->listener);
}
