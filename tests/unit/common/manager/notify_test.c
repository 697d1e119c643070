/* What a service manager is told, at a socket of either kind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/manager/notify.h"

/* Listens at an address, of which `size` bytes count. */
static int listen_at(const char *path, size_t size) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
  memcpy(address.sun_path, path, size);
  assert_true(fd >= 0);
  assert_int_equal(
      bind(fd, (struct sockaddr *)&address, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + size)), 0);
  return fd;
}

static void expect(int fd, const char *wanted) {
  char got[256];
  ssize_t n = recv(fd, got, sizeof got - 1, MSG_DONTWAIT);
  got[n > 0 ? n : 0] = '\0';
  assert_string_equal(got, wanted);
}

static void a_manager_is_told_at_a_path(void **state) {
  char folder[] = "/tmp/weir-notify-XXXXXX", path[64];
  int fd;
  (void)state;
  assert_non_null(mkdtemp(folder));
  snprintf(path, sizeof path, "%s/socket", folder);
  fd = listen_at(path, strlen(path));
  setenv("NOTIFY_SOCKET", path, 1);
  notify_manager("READY=1\nSTATUS=serves at %s", "127.0.0.1:7070");
  notify_manager("STOPPING=1");
  expect(fd, "READY=1\nSTATUS=serves at 127.0.0.1:7070");
  expect(fd, "STOPPING=1");
  close(fd);
  unlink(path);
  notify_manager("READY=1"); /* nobody listens there */
  rmdir(folder);
}

/* At a name of Linux's that is no file, which NOTIFY_SOCKET then says. */
static int listen_without_file(void) {
  char name[64];
  snprintf(name, sizeof name, "@weir-notify-%d", (int)getpid());
  setenv("NOTIFY_SOCKET", name, 1);
  name[0] = '\0';
  return listen_at(name, 1 + strlen(name + 1));
}

static void a_manager_is_told_at_a_name_that_is_no_file(void **state) {
  int fd = listen_without_file();
  (void)state;
  notify_manager("READY=1");
  expect(fd, "READY=1");
  close(fd);
}

static void where_nobody_wants_to_know_nothing_is_sent(void **state) {
  static const char *const names[] = {"", "@", "/", "relative", "vsock:2:3"};
  char longer[256];
  (void)state;
  unsetenv("NOTIFY_SOCKET");
  notify_manager("READY=1");
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    setenv("NOTIFY_SOCKET", names[i], 1);
    notify_manager("READY=1");
  }
  memset(longer, '/', sizeof longer - 1);
  longer[sizeof longer - 1] = '\0';
  setenv("NOTIFY_SOCKET", longer, 1);
  notify_manager("READY=1");
}

static void a_manager_that_does_not_read_is_not_waited_for(void **state) {
  int fd = listen_without_file();
  (void)state;
  for (int i = 0; i < 10000; i++)
    notify_manager("STATUS=%d", i);
  expect(fd, "STATUS=0");
  close(fd);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_manager_is_told_at_a_path),
      cmocka_unit_test(a_manager_is_told_at_a_name_that_is_no_file),
      cmocka_unit_test(where_nobody_wants_to_know_nothing_is_sent),
      cmocka_unit_test(a_manager_that_does_not_read_is_not_waited_for),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
