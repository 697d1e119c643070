/* The redis stores against servers that answer anything: clear errors, no crash, no waiting, bounded memory.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "common/base/memory.h"
#include "storage/store.h"
#include "tests/support/common/own_port.h"
#include "tests/support/common/patience.h"
#include "tests/support/storage/redis_fake.h"
#include "tests/support/storage/redis_nonsense.h"

extern const struct store_def store_redis;

/* LONGEST_MS: the most that a url may say, which outlasts the patience of tests. */
enum { OPERATIONS = 8, TIMEOUT_MS = 500, LONGEST_MS = 600000 };
static const char key_of_nothing[] = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
static struct err err;

static int take_key(void *user, const char *key, uint64_t size_bytes) {
  (void)user;
  (void)key;
  (void)size_bytes;
  return 0;
}

/* One of the backend's calls. */
static int operate(struct store *store, int operation) {
  const char *key = key_of_nothing;
  struct store_block block = {.parts = {{"x", 1}}, .n_parts = 1};
  struct store_names names = {0};
  struct store_read read = {.key = key};
  void *data = NULL;
  size_t size;
  bool has;
  int rc = 0;
  err = ERR_NONE;
  memcpy(block.sha256, key, sizeof block.sha256);
  if (operation == 0)
    rc = store_redis.put_blocks(store, &block, 1, &err);
  else if (operation == 1)
    rc = store_redis.has_blocks(store, &key, 1, &has, &err);
  else if (operation == 2)
    rc = store_redis.get_blocks(store, &read, 1, &err);
  else if (operation == 3)
    rc = store_redis.delete_blocks(store, &key, 1, &err);
  else if (operation == 4)
    rc = store_redis.list_blocks(store, take_key, NULL, &err);
  else if (operation == 5)
    rc = store_redis.write_record(store, &(struct store_record){"a", "x", 1, NULL}, &err);
  else if (operation == 6)
    rc = store_redis.get_record(store, "a", &data, &size, &err);
  else
    rc = store_redis.list_records(store, "", &names, &err);
  for (int i = 0; i < names.count; i++)
    free(names.items[i]);
  free(names.items);
  free(read.data);
  free(data);
  return rc;
}

/* Only one that never answers is waited for in vain. */
static int timeout_ms_for(const struct fake *fake) {
  bool is_silent = (fake->answer && !*fake->answer) || (fake->ping && !*fake->ping);
  return is_silent || fake->manner == FAKE_DRIPS ? TIMEOUT_MS : LONGEST_MS;
}

static int open_fake(const struct fake *fake, const char *scheme, const char *path, struct store **store) {
  char *url = mem_printf("%s://:hunter2@127.0.0.1:%d%s?timeout_ms=%d", scheme, fake->port, path,
                         timeout_ms_for(fake));
  int rc;
  err = ERR_NONE;
  rc = store_redis.open(url, store, &err);
  assert_null(strstr(err.text, "hunter2"));
  free(url);
  return rc;
}

/* Opens a store on the fake and does one operation. */
static int operate_on(struct fake *fake, int operation) {
  struct store *store;
  int rc;
  fake_start(fake);
  do /* on a busy machine what is short for a silent server may be too short for one that speaks */
    rc = open_fake(fake, fake->cluster ? "redis+cluster" : "redis", "", &store);
  while (rc == ERR_TIMEOUT);
  if (rc)
    fail_msg("open: %s", err.text);
  patience_begin();
  rc = operate(store, operation);
  patience_end();
  if (rc && (!strstr(err.text, "store: ") || strstr(err.text, "hunter2")))
    fail_msg("%s", err.text);
  store_redis.close(store);
  fake_stop(fake);
  return rc;
}

static void expect(struct fake fake, int operation, int code) {
  int rc = operate_on(&fake, operation);
  if (rc != code)
    fail_msg("operation %d, answer '%s': %s '%s', expected %s", operation, fake.answer, err_name(rc),
             err.text, err_name(code));
}

static void nonsense_is_an_io_error_for_every_operation(void **state) {
  (void)state;
  for (int operation = 0; operation < OPERATIONS; operation++)
    for (size_t i = 0; i < REDIS_NONSENSE; i++)
      expect((struct fake){.answer = redis_nonsense[i]}, operation, ERR_IO);
}

/* Good replies, to other commands; for some of the operations they are right. */
static void a_reply_of_another_kind_is_an_error_or_means_what_it_says(void **state) {
  static const char *const answers[] = {
      "+OK\r\n",
      ":1\r\n",
      ":-1\r\n",
      "$3\r\nabc\r\n",
      "$-1\r\n",
      "*0\r\n",
      "*-1\r\n",
      "*2\r\n$1\r\n0\r\n*0\r\n",
      "*2\r\n$1\r\n0\r\n$1\r\n0\r\n",
      "*2\r\n$1\r\n0\r\n*1\r\n:1\r\n",
      "*2\r\n*0\r\n*0\r\n",
      "*2\r\n$1\r\nx\r\n*0\r\n",
      "*2\r\n$30\r\n999999999999999999999999999999\r\n*0\r\n",
      "*2\r\n$1\r\nb\r\n$1\r\na\r\n",
      "*2\r\n$1\r\na\r\n$1\r\na\r\n",
      "-ERR who knows\r\n",
      "-\r\n",
  };
  (void)state;
  for (int operation = 0; operation < OPERATIONS; operation++)
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
      struct fake fake = {.answer = answers[i]};
      int rc = operate_on(&fake, operation);
      if (rc != 0 && rc != ERR_IO && rc != ERR_NOT_FOUND)
        fail_msg("operation %d, answer '%s': %s '%s'", operation, answers[i], err_name(rc), err.text);
    }
  expect((struct fake){.answer = "*2\r\n$1\r\nb\r\n$1\r\na\r\n"}, 7, ERR_IO);
  expect((struct fake){.answer = "*2\r\n$1\r\nx\r\n*0\r\n"}, 4, ERR_IO);
  expect((struct fake){.answer = ":0\r\n"}, 0, ERR_IO);
  expect((struct fake){.answer = ":7\r\n"}, 5, ERR_IO);
}

static void a_reply_that_is_cut_anywhere_says_that_the_server_went(void **state) {
  static const char *const answers[] = {
      "+OK\r\n", ":1\r\n",          "$5\r\nhello\r\n",  ":1\r\n", "*2\r\n$1\r\n0\r\n*0\r\n",
      ":0\r\n",  "$5\r\nhello\r\n", "*1\r\n$1\r\na\r\n"};
  (void)state;
  for (int operation = 0; operation < OPERATIONS; operation++)
    for (size_t cut = 1; cut < strlen(answers[operation]); cut++) {
      struct fake fake = {.answer = answers[operation], .answer_size = cut, .manner = FAKE_CLOSES};
      expect(fake, operation, ERR_UNAVAILABLE);
    }
}

static void a_server_that_never_answers_or_drips_costs_one_timeout(void **state) {
  (void)state;
  for (int operation = 0; operation < OPERATIONS; operation++) {
    expect((struct fake){.answer = ""}, operation, ERR_TIMEOUT);
    assert_non_null(strstr(err.text, "timeout_ms=500"));
  }
  expect((struct fake){.answer = "$900000\r\nxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", .manner = FAKE_DRIPS},
         2, ERR_TIMEOUT);
}

static long peak_kib(void) {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

static void a_server_that_sends_without_end_is_left(void **state) {
  static char line[60000], lengths[60000], nested[60000];
  long before = peak_kib();
  (void)state;
  memset(line, 'x', sizeof line - 1);
  line[0] = '+';
  memset(lengths, 'x', sizeof lengths - 1);
  memcpy(lengths, "$1048000\r\n", 10);
  for (size_t i = 0; i + 7 < sizeof nested; i += 7)
    memcpy(nested + i, "*1000\r\n", 7);
  for (int operation = 0; operation < OPERATIONS; operation++) {
    expect((struct fake){.answer = line, .manner = FAKE_STREAMS}, operation, ERR_IO);
    expect((struct fake){.answer = lengths, .manner = FAKE_STREAMS}, operation, ERR_IO);
    expect((struct fake){.answer = nested, .manner = FAKE_STREAMS}, operation, ERR_IO);
  }
  assert_true(peak_kib() - before < 256 * 1024);
}

static void a_length_alone_costs_no_memory(void **state) {
  long before = peak_kib();
  (void)state;
  for (int i = 0; i < 20; i++) {
    expect((struct fake){.answer = "$536000000\r\nx", .manner = FAKE_CLOSES}, 2, ERR_UNAVAILABLE);
    expect((struct fake){.answer = "$268000000\r\nx", .manner = FAKE_CLOSES}, 6, ERR_UNAVAILABLE);
  }
  assert_true(peak_kib() - before < 128 * 1024);
}

static void expect_open(struct fake fake, const char *scheme, const char *path, int code, const char *text) {
  struct store *store = NULL;
  int rc;
  fake_start(&fake);
  rc = open_fake(&fake, scheme, path, &store);
  fake_stop(&fake);
  if (!rc)
    store_redis.close(store);
  if (rc != code || (text && !strstr(err.text, text)))
    fail_msg("%s '%s', expected %s '%s'", err_name(rc), err.text, err_name(code), text ? text : "");
  assert_null(strstr(err.text, "hunter2"));
}

static void what_is_no_redis_is_not_opened(void **state) {
  (void)state;
  for (size_t i = 0; i < REDIS_NONSENSE; i++) {
    expect_open((struct fake){.auth = redis_nonsense[i]}, "redis", "", ERR_INVALID, "does not speak");
    expect_open((struct fake){.ping = redis_nonsense[i]}, "redis", "", ERR_INVALID, "does not speak");
    expect_open((struct fake){.info = redis_nonsense[i]}, "redis", "", ERR_IO, "127.0.0.1");
  }
  expect_open((struct fake){.auth = "", .ping = ""}, "redis", "", ERR_TIMEOUT, "127.0.0.1");
  expect_open((struct fake){.auth = "garbage\r\n"}, "rediss", "", ERR_INVALID, "TLS");
  expect_open((struct fake){.ping = "+PONG\r\n", .exists = "$1\r\na\r\n"}, "redis", "", ERR_IO, "EXISTS");
}

static void only_a_server_that_says_that_it_evicts_any_key_is_refused(void **state) {
  static const struct {
    const char *info;
    int code;
  } rows[] = {
      {"maxmemory:1\r\nmaxmemory_policy:allkeys-lru\r\n", ERR_UNAVAILABLE},
      {"# Memory\nmaxmemory_policy:allkeys-random\nused_memory:5\nmaxmemory:104857600", ERR_UNAVAILABLE},
      {"maxmemory:99999999999999999999999\r\nmaxmemory_policy:allkeys-\x1b[2J\r\n", ERR_UNAVAILABLE},
      {"maxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\n", 0}, /* all of the machine's memory */
      {"maxmemory:1\r\nmaxmemory_policy:volatile-lru\r\n", 0},
      {"maxmemory:1\r\nmaxmemory_policy:noeviction\r\n", 0},
      {"maxmemory:1\r\nthe_maxmemory_policy:allkeys-lru\r\n", 0},
      {"maxmemory_policy:allkeys-lru", 0},
      {"maxmemory:1", 0},
      {"maxmemory", 0},
      {"\n\n\n", 0},
      {"", 0},
  };
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char *info = mem_printf("$%zu\r\n%s\r\n", strlen(rows[i].info), rows[i].info);
    expect_open((struct fake){.info = info}, "redis", "", rows[i].code,
                rows[i].code ? "set maxmemory-policy noeviction" : NULL);
    assert_null(strchr(err.text, '\x1b'));
    free(info);
  }
  expect_open((struct fake){.info = "-NOPERM this user has no permissions\r\n"}, "redis", "", 0, NULL);
  expect_open((struct fake){.info = "-ERR unknown command 'INFO'\r\n"}, "redis", "", 0, NULL);
  expect_open((struct fake){.info = ":1\r\n"}, "redis", "", 0, NULL);
}

static void refusals_have_codes_and_say_what_to_do(void **state) {
  static const struct {
    const char *answer;
    int code;
    const char *text;
  } rows[] = {
      {"-OOM command not allowed when used memory > 'maxmemory'.\r\n", ERR_UNAVAILABLE, "maxmemory"},
      {"-ERR Error running script (call to f_1): @user_script:1: @user_script: 1: -OOM command not "
       "allowed\r\n",
       ERR_UNAVAILABLE, "maxmemory"},
      {"-READONLY You can't write against a read only replica.\r\n", ERR_UNAVAILABLE, "read-only"},
      {"-LOADING Redis is loading the dataset in memory\r\n", ERR_UNAVAILABLE, "loading"},
      {"-MASTERDOWN Link with MASTER is down\r\n", ERR_UNAVAILABLE, "master"},
      {"-CLUSTERDOWN Hash slot not served\r\n", ERR_UNAVAILABLE, "cluster"},
      {"-NOREPLICAS Not enough good replicas to write.\r\n", ERR_UNAVAILABLE, "replicas"},
      {"-MISCONF Redis is configured to save RDB snapshots\r\n", ERR_UNAVAILABLE, "disk"},
      {"-NOPERM this user has no permissions\r\n", ERR_INVALID, "ACL"},
      {"-MOVED 1 127.0.0.1:1\r\n", ERR_INVALID, "redis+cluster"},
      {"-WRONGTYPE Operation against a key\r\n", ERR_IO, "prefix="},
      {"-WHAT \x1b[2J\x07 hunter2\r\n", ERR_IO, "not shown"},
      {"-WHAT \x1b[2J\x07\r\n", ERR_IO, "'WHAT ?[2J?'"},
  };
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    for (int operation = 0; operation < OPERATIONS; operation++) {
      expect((struct fake){.answer = rows[i].answer}, operation, rows[i].code);
      if (!strstr(err.text, rows[i].text) || !strstr(err.text, "127.0.0.1:"))
        fail_msg("%s", err.text);
    }
  expect_open((struct fake){.auth = "-WRONGPASS invalid username-password pair\r\n"}, "redis", "",
              ERR_INVALID, "password");
  expect_open((struct fake){.auth = "-ERR unknown command 'AUTH', with args beginning with: 'hunter2'\r\n"},
              "redis", "", ERR_INVALID, NULL);
  expect_open((struct fake){.auth = "-ERR max number of clients reached\r\n"}, "redis", "", ERR_UNAVAILABLE,
              "maxclients");
}

static void a_lost_answer_to_a_write_is_found_out(void **state) {
  (void)state;
  expect((struct fake){.answer = ":0\r\n", .closes_first = 1}, 5, 0);
  expect((struct fake){.answer = ":1\r\n", .closes_first = 1}, 5, ERR_UNAVAILABLE);
  assert_non_null(strstr(err.text, "may or may not"));
  expect((struct fake){.answer = "+OK\r\n", .closes_first = 1}, 0, 0);
  expect((struct fake){.answer = "+OK\r\n", .closes_first = 2}, 0, ERR_UNAVAILABLE);
}

/* A cluster of one node that is at a port. */
static char *map_of(int port) {
  return mem_printf("*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n$0\r\n\r\n:%d\r\n$1\r\nx\r\n", port);
}

static void a_cluster_that_sends_us_around_is_left(void **state) {
  static const char *const answers[] = {"-MOVED 1 :%d\r\n", "-ASK 1 127.0.0.1:%d\r\n", "-TRYAGAIN %d\r\n",
                                        "-MOVED 1 ?:%d\r\n"};
  (void)state;
  for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
    struct fake fake = {.exists = ":0\r\n"};
    char *map, *answer;
    fake_listen(&fake);
    fake.cluster = map = map_of(fake.port);
    answer = malloc(100);
    snprintf(answer, 100, answers[i], fake.port);
    fake.answer = answer;
    if (operate_on(&fake, 0) != ERR_UNAVAILABLE)
      fail_msg("%s: %s", answer, err.text);
    free(map);
    free(answer);
  }
}

static void a_map_of_slots_that_is_none_is_refused(void **state) {
  static const char *const maps[] = {
      ":1\r\n",
      "*1\r\n:1\r\n",
      "*1\r\n*3\r\n:0\r\n:16384\r\n*2\r\n$1\r\nh\r\n:1\r\n",
      "*1\r\n*3\r\n:-1\r\n:5\r\n*2\r\n$1\r\nh\r\n:1\r\n",
      "*1\r\n*3\r\n:0\r\n:5\r\n*2\r\n$1\r\nh\r\n:0\r\n",
      "*1\r\n*3\r\n:0\r\n:5\r\n*2\r\n$1\r\nh\r\n:99999\r\n",
      "*1\r\n*3\r\n:0\r\n:5\r\n*2\r\n$2\r\na/\r\n:1\r\n",
      "*1\r\n*3\r\n:0\r\n:5\r\n*0\r\n",
      "*1\r\n*2\r\n:0\r\n:5\r\n",
      "*1\r\n*3\r\n$1\r\n0\r\n:5\r\n*2\r\n$1\r\nh\r\n:1\r\n",
  };
  (void)state;
  for (size_t i = 0; i < sizeof maps / sizeof *maps; i++)
    expect_open((struct fake){.cluster = maps[i]}, "redis+cluster", "", ERR_IO, "CLUSTER");
  expect_open((struct fake){.cluster = "*0\r\n"}, "redis+cluster", "", ERR_UNAVAILABLE, "no master");
  expect_open((struct fake){.cluster = "-ERR This instance has cluster support disabled\r\n"},
              "redis+cluster", "", ERR_INVALID, "redis://");
}

static void a_sentinels_answer_that_is_no_address_is_refused(void **state) {
  static const char *const answers[] = {":1\r\n",
                                        "*0\r\n",
                                        "*1\r\n$1\r\nh\r\n",
                                        "*2\r\n$1\r\nh\r\n$5\r\n99999\r\n",
                                        "*2\r\n$0\r\n\r\n$1\r\n1\r\n",
                                        "*2\r\n:1\r\n:2\r\n"};
  (void)state;
  for (size_t i = 0; i < sizeof answers / sizeof *answers; i++)
    expect_open((struct fake){.answer = answers[i]}, "redis+sentinel", "/m", ERR_IO, NULL);
  expect_open((struct fake){.answer = "*-1\r\n"}, "redis+sentinel", "/nobody", ERR_INVALID, "nobody");
}

static void who_names_a_server_on_another_machine_leads_no_plaintext_there(void **state) {
  static const char map[] = "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$8\r\n10.1.2.3\r\n:6379\r\n";
  (void)state;
  expect_open((struct fake){.answer = "*2\r\n$8\r\n10.1.2.3\r\n$4\r\n6379\r\n"}, "redis+sentinel", "/m",
              ERR_INVALID, "10.1.2.3:6379: plaintext would lead beyond this machine");
  expect_open((struct fake){.cluster = map}, "redis+cluster", "", ERR_INVALID,
              "10.1.2.3:6379: plaintext would lead beyond this machine");
}

static void a_dead_server_costs_each_call_little(void **state) {
  struct fake fake = {.answer = "+OK\r\n", .port = own_port()}; /* where nobody comes to listen then */
  struct store *store;
  (void)state;
  fake_start(&fake);
  assert_int_equal(open_fake(&fake, "redis", "", &store), 0);
  assert_int_equal(operate(store, 0), 0);
  fake_stop(&fake);
  for (int i = 0; i < 1000; i++) { /* none waits for an answer, which may take ten minutes */
    patience_begin();
    assert_int_equal(operate(store, 0), ERR_UNAVAILABLE);
    patience_end();
  }
  store_redis.close(store);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(nonsense_is_an_io_error_for_every_operation),
      cmocka_unit_test(a_reply_of_another_kind_is_an_error_or_means_what_it_says),
      cmocka_unit_test(a_reply_that_is_cut_anywhere_says_that_the_server_went),
      cmocka_unit_test(a_server_that_never_answers_or_drips_costs_one_timeout),
      cmocka_unit_test(a_server_that_sends_without_end_is_left),
      cmocka_unit_test(a_length_alone_costs_no_memory),
      cmocka_unit_test(what_is_no_redis_is_not_opened),
      cmocka_unit_test(only_a_server_that_says_that_it_evicts_any_key_is_refused),
      cmocka_unit_test(refusals_have_codes_and_say_what_to_do),
      cmocka_unit_test(a_lost_answer_to_a_write_is_found_out),
      cmocka_unit_test(a_cluster_that_sends_us_around_is_left),
      cmocka_unit_test(a_map_of_slots_that_is_none_is_refused),
      cmocka_unit_test(a_sentinels_answer_that_is_no_address_is_refused),
      cmocka_unit_test(who_names_a_server_on_another_machine_leads_no_plaintext_there),
      cmocka_unit_test(a_dead_server_costs_each_call_little),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
