/* The redis stores without a Redis: URLs, slots, replies as they come in. With a URL as its argument this
   program is the hand of tests/integration/test_store.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/memory.h"
#include "storage/redis/redis_reply.h"
#include "storage/redis/redis_session.h"
#include "storage/redis/redis_url.h"
#include "storage/store.h"
#include "tests/support/storage/redis_drive.h"
#include "tests/support/storage/redis_nonsense.h"

static struct redis_config config;
static struct err err;

static int parse(const char *url) {
  redis_config_fini(&config);
  err = ERR_NONE;
  return redis_config_init(&config, url, &err);
}

static void a_url_says_where_and_how(void **state) {
  (void)state;
  assert_int_equal(parse("redis://h"), 0);
  assert_int_equal(config.kind, REDIS_SINGLE);
  assert_string_equal(config.endpoints[0].host, "h");
  assert_int_equal(config.endpoints[0].port, 6379);
  assert_string_equal(config.prefix, "weir");
  assert_int_equal(config.timeout_ms, 5000);
  assert_null(config.password);
  assert_int_equal(
      parse("rediss://me:se%40c@[::1]:7000/3?prefix=a.b:c&replicas=2&timeout_ms=70&ca=/x%26y&name=s.w"), 0);
  assert_true(config.has_tls);
  assert_string_equal(config.user, "me");
  assert_string_equal(config.password, "se@c");
  assert_string_equal(config.endpoints[0].host, "::1");
  assert_int_equal(config.endpoints[0].port, 7000);
  assert_int_equal(config.db, 3);
  assert_string_equal(config.prefix, "a.b:c");
  assert_int_equal(config.replicas, 2);
  assert_int_equal(config.timeout_ms, 70);
  assert_string_equal(config.ca, "/x&y");
  assert_string_equal(config.name, "s.w");
  assert_int_equal(parse("redis+unix:///run/a@b.sock?db=4"), 0);
  assert_string_equal(config.endpoints[0].host, "/run/a@b.sock");
  assert_int_equal(config.endpoints[0].port, 0);
  assert_int_equal(config.db, 4);
  assert_int_equal(parse("redis+sentinel://:p@a,b:1,c/main/5"), 0);
  assert_int_equal(config.n_endpoints, 3);
  assert_int_equal(config.endpoints[0].port, 26379);
  assert_int_equal(config.endpoints[1].port, 1);
  assert_string_equal(config.master, "main");
  assert_int_equal(config.db, 5);
  assert_int_equal(parse("rediss+cluster://a,b"), 0);
  assert_int_equal(config.kind, REDIS_CLUSTER);
  assert_int_equal(config.n_endpoints, 2);
}

static void a_password_comes_from_the_url_then_a_file_then_the_environment(void **state) {
  char path[] = "/tmp/weir-redis-test-XXXXXX";
  int fd = mkstemp(path);
  (void)state;
  assert_int_equal(write(fd, "from file\nmore\n", 15), 15);
  close(fd);
  setenv("WEIR_STORE_PASSWORD", "from environment", 1);
  assert_int_equal(parse("redis://h"), 0);
  assert_string_equal(config.password, "from environment");
  setenv("WEIR_STORE_PASSWORD_FILE", path, 1);
  assert_int_equal(parse("redis://me@h"), 0);
  assert_string_equal(config.user, "me");
  assert_string_equal(config.password, "from file");
  assert_int_equal(parse("redis://:from:url@h"), 0);
  assert_string_equal(config.password, "from:url");
  unlink(path);
  assert_int_equal(parse("redis://h"), ERR_INVALID);
  assert_non_null(strstr(err.text, path));
  unsetenv("WEIR_STORE_PASSWORD_FILE");
  unsetenv("WEIR_STORE_PASSWORD");
}

static void a_bad_url_is_refused_without_a_word_of_the_password(void **state) {
  static const char *const bad[] = {
      "redis://",
      "redis://:secret@",
      "redis://:secret@h:0",
      "redis://:secret@h:70000",
      "redis://:secret",
      "redis://:secret/secret@h:x",
      "redis://:secret?secret@h:x",
      "redis://:secret%zz@h",
      "redis://:secret%0@h",
      "redis://secret%00@h",
      "redis://:secret@h,i",
      "redis://:secret@h/x",
      "redis://:secret@h/70000",
      "redis://:secret@h?prefix={x}",
      "redis://:secret@h?prefix=a*",
      "redis://:secret@h?prefix=",
      "redis://:secret@h?timeout_ms=1",
      "redis://:secret@h?replicas=-1",
      "redis://:secret@h?other=1",
      "redis://:secret@h?replicas",
      "redis://:secret@h?ca=/x",
      "redis://:secret@h?name=x",
      "rediss://:secret@h?cert=/x",
      "redis://:secret@[::1",
      "redis+unix://relative",
      "redis+unix://:secret@relative",
      "redis+sentinel://:secret@h",
      "redis+sentinel://:secret@h/",
      "redis+cluster://:secret@h/1",
      "redis+cluster://:secret@h,,i",
  };
  (void)state;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    if (parse(bad[i]) != ERR_INVALID)
      fail_msg("accepted: %s", bad[i]);
    if (strstr(err.text, "secret"))
      fail_msg("%s shows the password: %s", bad[i], err.text);
  }
}

/* CRC16 of "123456789" is 31C3 in the specification of Redis Cluster. */
static void a_key_has_the_slot_of_the_specification(void **state) {
  (void)state;
  assert_int_equal(redis_key_slot("123456789", 9), 0x31c3);
  assert_int_equal(redis_key_slot("{123456789}.x", 13), 0x31c3);
  assert_int_equal(redis_key_slot("foo{}{bar}", 10), 8363);
  assert_int_equal(redis_key_slot("foo{{bar}}zap", 13), redis_key_slot("{bar", 4));
  assert_int_equal(redis_key_slot("foo{bar}{zap}", 13), redis_key_slot("bar", 3));
}

/* What a server sends, and how much of it comes at a time. */
struct arrival {
  const char *bytes;
  size_t size, step;
};

static bool was_in_place; /* bytes of the newest reply were received past the reader's buffer */

/* Reads one reply of at most bytes_max. *reply stays NULL if it is not complete. */
static int read_reply(struct arrival from, size_t bytes_max, bool wants_block, redisReply **reply) {
  struct redis_reader reader;
  bool is_complete = false;
  int rc = 0;
  *reply = NULL;
  was_in_place = false;
  redis_reader_init(&reader);
  redis_reader_expect(&reader, reply, bytes_max, wants_block);
  while (from.size > 0 && !rc && !is_complete) {
    size_t room;
    void *at;
    redis_reader_room(&reader, &at, &room);
    assert_true(room > 0);
    was_in_place |= (char *)at < reader.buffer || (char *)at >= reader.buffer + REDIS_BUFFER_SIZE;
    room = room < from.step ? room : from.step;
    room = room < from.size ? room : from.size;
    memcpy(at, from.bytes, room);
    redis_reader_received(&reader, room);
    from.bytes += room;
    from.size -= room;
    rc = redis_reader_parse(&reader, &is_complete, &err);
  }
  assert_int_equal(is_complete, *reply != NULL);
  redis_reader_fini(&reader);
  return rc;
}

static void a_reply_is_read_however_it_is_cut(void **state) {
  static const char bytes[] =
      "*6\r\n+OK\r\n$5\r\nhe\r\no\r\n:-42\r\n$-1\r\n*2\r\n*0\r\n$0\r\n\r\n-ERR no\r\n";
  (void)state;
  for (size_t step = 1; step < sizeof bytes; step++) {
    redisReply *reply;
    assert_int_equal(read_reply((struct arrival){bytes, sizeof bytes - 1, step}, 4096, step % 2, &reply), 0);
    assert_int_equal(reply->elements, 6);
    assert_string_equal(redis_reply_text(reply->element[0]), "OK");
    assert_int_equal(reply->element[1]->len, 5);
    assert_memory_equal(reply->element[1]->str, "he\r\no", 6);
    assert_int_equal(reply->element[2]->integer, -42);
    assert_int_equal(reply->element[3]->type, REDIS_REPLY_NIL);
    assert_int_equal(reply->element[4]->element[0]->type, REDIS_REPLY_ARRAY);
    assert_int_equal(reply->element[4]->element[1]->len, 0);
    assert_true(redis_reply_is_error(reply->element[5], "ERR"));
    freeReplyObject(reply);
  }
}

static void a_long_value_is_read_in_place_and_by_hiredis(void **state) {
  size_t size = 5 * 1024 * 1024 + 7;
  char *bytes = drive_bytes(1, size + 64);
  int head = sprintf(bytes, "$%zu\r\n", size);
  (void)state;
  memcpy(bytes + head + size, "\r\n", 2);
  for (int wants_block = 0; wants_block < 2; wants_block++)
    for (size_t step = 1000; step < 3000000; step *= 7) {
      struct arrival from = {bytes, (size_t)head + size + 2, step};
      redisReply *reply;
      assert_int_equal(read_reply(from, 2 * size, wants_block, &reply), 0);
      assert_int_equal(was_in_place, wants_block);
      assert_int_equal(reply->len, size);
      assert_memory_equal(reply->str, bytes + head, size);
      freeReplyObject(reply);
    }
  free(bytes);
}

/* Blocks, and what stands in place of one, in one stream. */
static void a_block_beside_other_replies_is_received_in_place(void **state) {
  static const char bytes[] = "+OK\r\n$3\r\nabc\r\n$-1\r\n$0\r\n\r\n-ERR no\r\n$1\r\nx\r\n";
  static const int types[] = {REDIS_REPLY_STATUS, REDIS_REPLY_STRING, REDIS_REPLY_NIL,
                              REDIS_REPLY_STRING, REDIS_REPLY_ERROR,  REDIS_REPLY_STRING};
  static const char *const texts[] = {"OK", "abc", NULL, "", "ERR no", "x"};
  struct redis_reader reader;
  size_t room;
  void *at;
  (void)state;
  redis_reader_init(&reader);
  redis_reader_room(&reader, &at, &room);
  memcpy(at, bytes, sizeof bytes - 1);
  redis_reader_received(&reader, sizeof bytes - 1);
  for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
    redisReply *reply = NULL;
    bool is_complete;
    redis_reader_expect(&reader, &reply, 64, true);
    assert_int_equal(redis_reader_parse(&reader, &is_complete, &err), 0);
    assert_true(is_complete);
    assert_int_equal(reply->type, types[i]);
    if (texts[i])
      assert_string_equal(reply->str, texts[i]);
    freeReplyObject(reply);
  }
  assert_true(redis_reader_is_empty(&reader));
  redis_reader_fini(&reader);
}

static void nonsense_is_an_error_however_it_is_cut(void **state) {
  (void)state;
  for (size_t i = 0; i < REDIS_NONSENSE; i++)
    for (size_t step = 1; step < 8; step++)
      for (int wants_block = 0; wants_block < 2; wants_block++) {
        struct arrival from = {redis_nonsense[i], strlen(redis_nonsense[i]), step};
        redisReply *reply;
        if (read_reply(from, 1 << 20, wants_block, &reply) != ERR_IO)
          fail_msg("accepted: %s", redis_nonsense[i]);
        freeReplyObject(reply);
      }
}

static void a_line_that_does_not_end_is_an_error(void **state) {
  char *bytes = malloc(1 << 20);
  redisReply *reply;
  (void)state;
  memset(bytes, 'x', 1 << 20);
  bytes[0] = '+';
  assert_int_equal(read_reply((struct arrival){bytes, 1 << 20, 4096}, 1 << 24, false, &reply), ERR_IO);
  free(bytes);
}

/* Bytes at random, and good replies with bytes changed: an error, a reply, or more is wanted. */
static void any_bytes_are_an_error_or_a_reply(void **state) {
  static const char good[] = "*4\r\n$3\r\nabc\r\n:17\r\n*2\r\n+x\r\n-ERR y\r\n$-1\r\n";
  (void)state;
  for (unsigned long seed = 1; seed < 20000; seed++) {
    char *random = drive_bytes(seed, 64), bytes[sizeof good];
    redisReply *reply;
    memcpy(bytes, good, sizeof good);
    for (int i = 0; i < 3; i++)
      bytes[(unsigned char)random[i] % (sizeof good - 1)] =
          seed % 2 ? random[8 + i] : "+-:$*\r\n0123456789"[(unsigned char)random[8 + i] % 17];
    read_reply((struct arrival){bytes, sizeof good - 1, 1 + (size_t)(seed % 9)}, 1 << 16, seed % 3, &reply);
    freeReplyObject(reply);
    free(random);
  }
}

/* Nobody is asked, and no name is resolved. */
static void plaintext_is_for_this_machine_alone_unless_it_is_allowed(void **state) {
  static const char *const here[] = {"redis://127.0.0.1",
                                     "redis://localhost:1/2",
                                     "redis://[::1]:7",
                                     "redis+unix:///run/x",
                                     "redis+cluster://127.0.0.1,127.0.0.2",
                                     "rediss://10.0.0.5",
                                     "rediss+sentinel://10.0.0.5/m"};
  static const char *const beyond[] = {"redis://10.0.0.5:1",
                                       "redis://redis",
                                       "redis://0.0.0.0",
                                       "redis://[::]:1",
                                       "redis://[fe80::1]",
                                       "redis+sentinel://localhost,s2:1/m",
                                       "redis+cluster://127.0.0.1,127.0.0.2,h:5"};
  struct store *store;
  (void)state;
  for (size_t i = 0; i < sizeof here / sizeof *here; i++)
    if (store_url_check(here[i], &err))
      fail_msg("%s: %s", here[i], err.text);
  for (size_t i = 0; i < sizeof beyond / sizeof *beyond; i++) {
    if (store_url_check(beyond[i], &err) != ERR_INVALID || !strstr(err.text, "rediss://") ||
        !strstr(err.text, "--insecure"))
      fail_msg("%s: %s", beyond[i], err.text);
    if (store_open(beyond[i], &store, &err) != ERR_INVALID || !strstr(err.text, "beyond this machine"))
      fail_msg("%s: %s", beyond[i], err.text);
  }
  assert_int_equal(store_open("redis+cluster://127.0.0.1,h:5", &store, &err), ERR_INVALID);
  assert_memory_equal(err.text, "store: h:5: plaintext", 21);
  store_allow_plaintext(); /* from here on, in this process */
  for (size_t i = 0; i < sizeof beyond / sizeof *beyond; i++)
    assert_int_equal(store_url_check(beyond[i], &err), 0);
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_url_says_where_and_how),
      cmocka_unit_test(a_password_comes_from_the_url_then_a_file_then_the_environment),
      cmocka_unit_test(a_bad_url_is_refused_without_a_word_of_the_password),
      cmocka_unit_test(a_key_has_the_slot_of_the_specification),
      cmocka_unit_test(a_reply_is_read_however_it_is_cut),
      cmocka_unit_test(a_long_value_is_read_in_place_and_by_hiredis),
      cmocka_unit_test(a_block_beside_other_replies_is_received_in_place),
      cmocka_unit_test(nonsense_is_an_error_however_it_is_cut),
      cmocka_unit_test(a_line_that_does_not_end_is_an_error),
      cmocka_unit_test(any_bytes_are_an_error_or_a_reply),
      cmocka_unit_test(plaintext_is_for_this_machine_alone_unless_it_is_allowed),
  };
  if (argc == 2)
    return drive_store(argv[1]);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
