/* Sockets in the file system: whose folders they may be in, and what becomes of those that are there. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/memory.h"
#include "common/door/unix_socket.h"
#include "common/rpc/address.h"
#include "common/rpc/client.h"
#include "common/rpc/server.h"
#include "tests/support/common/patience.h"

struct fixture {
  char folder[32], path[64], address[96];
};

static int setup(void **state) {
  struct fixture *f = mem_new(sizeof *f);
  snprintf(f->folder, sizeof f->folder, "/tmp/weir-unix-XXXXXX");
  if (!mkdtemp(f->folder))
    return -1;
  snprintf(f->path, sizeof f->path, "%s/socket", f->folder);
  snprintf(f->address, sizeof f->address, "unix:%s", f->path);
  *state = f;
  return 0;
}

static int teardown(void **state) {
  struct fixture *f = *state;
  unlink(f->path);
  rmdir(f->folder);
  free(f);
  return 0;
}

static void only_absolute_paths_are_addresses(void **state) {
  static const char *const bad[] = {"unix:",           "unix:socket",     "unix:./socket", "unix:../s",
                                    "unix:/tmp/",      "unix:/",          "unix:/a b",     "unix:/a,b",
                                    "unix:/a\nb",      "unix-abstract:x", "unix://",       "unix:localhost:1",
                                    "UNIX:/tmp/socket"};
  char longest[] = "unix:/"
                   "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
                   "xxxxxxxxxxxxxxxxxxx";
  struct err err = ERR_NONE;
  (void)state;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    if (rpc_address_check(bad[i], &err) != ERR_INVALID || rpc_address_is_loopback(bad[i]))
      fail_msg("%s", bad[i]);
    if (unix_socket_is(bad[i]))
      assert_int_equal(unix_socket_trust(bad[i], &err), ERR_INVALID);
  }
  assert_true(strlen(longest) > 5 + 107);
  assert_int_equal(rpc_address_check(longest, &err), ERR_INVALID);
  longest[5 + 107] = '\0';
  err = ERR_NONE;
  assert_int_equal(rpc_address_check(longest, &err), 0);
  assert_true(rpc_address_is_loopback(longest));
  assert_int_equal(rpc_addresses_check("unix:/a/b,127.0.0.1:1,unix:/c:d", &err), 0);
}

static int refused(const struct fixture *f, const char *says) {
  static const struct rpc_security security = {.is_insecure = true};
  struct rpc_server *server = NULL;
  struct err err = ERR_NONE, checked = ERR_NONE;
  int code = rpc_server_start(&(struct rpc_server_options){.listen = f->address}, &server, &err);
  if (!code || !strstr(err.text, says) || !strstr(err.text, f->address))
    fail_msg("%d: '%s' does not say '%s'", code, err.text, says);
  if (code == ERR_INVALID && !strstr(says, "no socket"))
    assert_int_equal(rpc_security_check(&security, f->address, &checked), ERR_INVALID);
  return code;
}

static void a_folder_that_others_may_enter_is_refused_on_both_ends(void **state) {
  struct fixture *f = *state;
  static const mode_t modes[] = {0755, 0711, 0770, 0701, 0720, 01777};
  for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
    assert_int_equal(chmod(f->folder, modes[i]), 0);
    assert_int_equal(refused(f, "chmod 700"), ERR_INVALID);
  }
  chmod(f->folder, 0700);
  rmdir(f->folder);
  assert_int_equal(refused(f, "mkdir -m 700"), ERR_INVALID);
  close(open(f->folder, O_CREAT | O_WRONLY, 0600));
  assert_int_equal(refused(f, "cannot be opened"), ERR_INVALID);
  unlink(f->folder);
}

static void a_folder_of_another_user_is_refused_on_both_ends(void **state) {
  struct fixture *f = *state;
  if (chown(f->folder, 1, 1))
    skip(); /* only root can */
  assert_int_equal(refused(f, "belongs to user 1"), ERR_INVALID);
}

static bool serves(const char *address) {
  struct rpc_client *client = rpc_client_new(1, NULL);
  struct rpc_channel *channel = rpc_channel_open(client, address, PEER_ANY);
  bool is_serving = false;
  struct err err = ERR_NONE;
  if (rpc_health_probe(channel, patience_ms(), &is_serving, &err))
    fail_msg("%s", err.text);
  rpc_channel_close(channel);
  rpc_client_free(client);
  return is_serving;
}

static struct rpc_server *serve(const struct fixture *f) {
  struct rpc_server *server;
  struct err err = ERR_NONE;
  if (rpc_server_start(&(struct rpc_server_options){.listen = f->address}, &server, &err))
    fail_msg("%s", err.text);
  return server;
}

static void a_socket_is_served_and_a_second_process_is_refused_by_the_name_of_the_first(void **state) {
  struct fixture *f = *state;
  struct rpc_server *server = serve(f);
  char who[64];
  assert_true(serves(f->address));
  snprintf(who, sizeof who, "process %d, unix_socket", (int)getpid());
  assert_int_equal(refused(f, who), ERR_UNAVAILABLE);
  assert_true(serves(f->address));
  rpc_server_stop(server);
  assert_int_equal(access(f->path, F_OK), -1);
}

static void the_socket_of_a_process_that_has_ended_is_replaced(void **state) {
  struct fixture *f = *state;
  struct sockaddr_un name = {.sun_family = AF_UNIX};
  int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  snprintf(name.sun_path, sizeof name.sun_path, "%s", f->path);
  assert_int_equal(bind(fd, (struct sockaddr *)&name, sizeof name), 0);
  assert_int_equal(listen(fd, 1), 0);
  assert_int_equal(refused(f, "listens there"), ERR_UNAVAILABLE);
  close(fd);
  assert_int_equal(access(f->path, F_OK), 0);
  rpc_server_stop(serve(f));
}

static void a_file_that_is_no_socket_is_kept(void **state) {
  struct fixture *f = *state;
  close(open(f->path, O_CREAT | O_WRONLY, 0600));
  assert_int_equal(refused(f, "no socket"), ERR_INVALID);
  assert_int_equal(access(f->path, F_OK), 0);
}

static void one_process_at_a_time_claims_a_socket(void **state) {
  struct fixture *f = *state;
  struct err err = ERR_NONE;
  int claim, folder = open(f->folder, O_RDONLY | O_DIRECTORY);
  assert_int_equal(unix_socket_claim(f->address, &claim, &err), 0);
  assert_int_equal(flock(folder, LOCK_EX | LOCK_NB), -1);
  unix_socket_release(claim);
  assert_int_equal(flock(folder, LOCK_EX | LOCK_NB), 0);
  close(folder);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
  const struct CMUnitTest tests[] = {
      TEST(only_absolute_paths_are_addresses),
      TEST(a_folder_that_others_may_enter_is_refused_on_both_ends),
      TEST(a_folder_of_another_user_is_refused_on_both_ends),
      TEST(a_socket_is_served_and_a_second_process_is_refused_by_the_name_of_the_first),
      TEST(the_socket_of_a_process_that_has_ended_is_replaced),
      TEST(a_file_that_is_no_socket_is_kept),
      TEST(one_process_at_a_time_claims_a_socket),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
