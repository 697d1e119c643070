/* What the shared-memory collective leaves in /dev/shm, which is nothing, and what it makes of what others
   left there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/agree/float_setting.h"
#include "tests/support/common/patience.h"
#include "worker/collective/shm_segment.h"

extern const struct collective_def collective_shm;

static char name[64], path[128];

static int setup(void **state) {
  static int n;
  (void)state;
  snprintf(name, sizeof name, "unit-%d-%d", (int)getpid(), n++);
  snprintf(path, sizeof path, "/dev/shm/weir-group-%s", name);
  return 0;
}

static int teardown(void **state) {
  struct stat status;
  bool is_left = lstat(path, &status) == 0;
  (void)state;
  remove(path);
  return is_left;
}

static int open_as(int rank, int size, int timeout_ms, struct collective **out, struct err *err) {
  struct collective_options options = {.name = name, .rank = rank, .size = size, .timeout_ms = timeout_ms};
  return collective_shm.open(&options, out, err);
}

static void *join_as_1(void *arg) {
  struct err err = ERR_NONE;
  struct collective *group = NULL;
  (void)arg;
  if (open_as(1, 2, patience_ms(), &group, &err))
    print_error("%s\n", err.text);
  return group;
}

/* Two members find each other by the name. */
static void assert_opens(void) {
  struct collective *group = NULL;
  struct err err = ERR_NONE;
  pthread_t thread;
  void *other;
  pthread_create(&thread, NULL, join_as_1, NULL);
  if (open_as(0, 2, patience_ms(), &group, &err))
    print_error("%s\n", err.text);
  pthread_join(thread, &other);
  assert_true(group && other);
  assert_int_equal(access(path, F_OK), -1);
  collective_shm.close(group);
  collective_shm.close(other);
}

static void assert_fails(int rank, enum err_code code, const char *says) {
  struct collective *group;
  struct err err = ERR_NONE;
  assert_int_equal(open_as(rank, 2, 60, &group, &err), code);
  if (!strstr(err.text, says))
    fail_msg("'%s' does not say '%s'", err.text, says);
}

static int put_file(size_t size) {
  char garbage[4096];
  int fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
  assert_true(fd >= 0);
  memset(garbage, 0xa5, sizeof garbage);
  assert_int_equal(ftruncate(fd, (off_t)size), 0);
  assert_true(pwrite(fd, garbage, size < sizeof garbage ? size : sizeof garbage, 0) >= 0);
  return fd;
}

static void lock_file(int fd) {
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  assert_int_equal(fcntl(fd, F_OFD_SETLK, &lock), 0);
}

static void what_nobody_holds_is_swept_whatever_it_contains(void **state) {
  const size_t sizes[] = {0, 10, 4096, shm_layout_of(2).total_bytes};
  (void)state;
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    close(put_file(sizes[i]));
    assert_fails(1, ERR_UNAVAILABLE, "member 0 has not opened it");
    close(put_file(sizes[i]));
    assert_opens();
  }
}

static void garbage_that_is_held_is_refused(void **state) {
  const size_t sizes[] = {0, 10, shm_layout_of(2).total_bytes};
  (void)state;
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    int fd = put_file(sizes[i]);
    lock_file(fd);
    assert_fails(1, ERR_INVALID, name);
    assert_fails(0, ERR_UNAVAILABLE, "another group of this name");
    assert_int_equal(unlink(path), 0);
    close(fd);
  }
}

static void what_is_not_a_file_is_refused_and_left_alone(void **state) {
  (void)state;
  assert_int_equal(mkdir(path, 0700), 0);
  for (int rank = 0; rank < 2; rank++)
    assert_fails(rank, ERR_UNAVAILABLE, path);
  assert_int_equal(rmdir(path), 0);
  assert_int_equal(symlink("/etc/hostname", path), 0);
  for (int rank = 0; rank < 2; rank++)
    assert_fails(rank, ERR_UNAVAILABLE, path);
  assert_int_equal(unlink(path), 0);
  assert_int_equal(mkfifo(path, 0600), 0);
  for (int rank = 0; rank < 2; rank++)
    assert_fails(rank, ERR_UNAVAILABLE, path);
  assert_int_equal(unlink(path), 0);
}

static void another_users_file_is_refused_and_left_alone(void **state) {
  (void)state;
  if (geteuid() != 0)
    skip(); /* only root can make one */
  close(put_file(4096));
  assert_int_equal(chown(path, 12345, 12345), 0);
  for (int rank = 0; rank < 2; rank++)
    assert_fails(rank, ERR_UNAVAILABLE, "remove it");
  assert_int_equal(unlink(path), 0);
}

static void what_a_killed_member_0_has_left_is_small_and_swept(void **state) {
  struct stat status;
  struct err err = ERR_NONE;
  struct collective *group;
  pid_t pid = fork();
  (void)state;
  assert_true(pid >= 0);
  if (pid == 0) {
    open_as(0, 2, patience_ms(), &group, &err);
    _exit(1);
  }
  for (int ms = 0; ms < patience_ms() && stat(path, &status); ms++)
    usleep(1000);
  assert_int_equal(stat(path, &status), 0);
  assert_int_equal(status.st_mode & 0777, 0600);
  assert_int_equal(kill(pid, SIGKILL), 0);
  assert_int_equal(waitpid(pid, NULL, 0), pid);
  assert_int_equal(stat(path, &status), 0);
  assert_true(status.st_blocks * 512 <= 32 << 10);
  assert_opens();
}

/* Member 1 has joined and waits for a third; member 0 dies; member 1 waits for the next member 0. */
static void a_member_whose_member_0_dies_waits_for_another(void **state) {
  struct collective *group;
  struct err err = ERR_NONE;
  pthread_t thread;
  void *other;
  pid_t pid = fork();
  (void)state;
  assert_true(pid >= 0);
  if (pid == 0) { /* a member 0 that dies as soon as another has joined */
    int fd = open("/dev/shm", O_TMPFILE | O_RDWR, 0600);
    struct shm_segment segment;
    char unnamed[64];
    lock_file(fd);
    snprintf(unnamed, sizeof unnamed, "/proc/self/fd/%d", fd);
    if (ftruncate(fd, (off_t)shm_layout_of(2).total_bytes))
      _exit(1);
    if (shm_segment_map(&segment, fd, 2, &err))
      _exit(1);
    shm_segment_init(&segment);
    if (linkat(AT_FDCWD, unnamed, AT_FDCWD, path, AT_SYMLINK_FOLLOW))
      _exit(1);
    while (!__atomic_load_n(&segment.header->n_joined, __ATOMIC_SEQ_CST))
      usleep(1000);
    _exit(0);
  }
  while (access(path, F_OK))
    usleep(1000);
  pthread_create(&thread, NULL, join_as_1, NULL);
  assert_int_equal(waitpid(pid, NULL, 0), pid);
  assert_int_equal(open_as(0, 2, patience_ms(), &group, &err), 0);
  pthread_join(thread, &other);
  assert_non_null(other);
  collective_shm.close(group);
  collective_shm.close(other);
}

static void members_that_disagree_about_the_size_are_told(void **state) {
  struct collective *group;
  struct err err = ERR_NONE;
  pid_t pid = fork();
  (void)state;
  assert_true(pid >= 0);
  if (pid == 0) {
    open_as(0, 3, patience_ms(), &group, &err);
    _exit(1);
  }
  for (int ms = 0; ms < patience_ms() && access(path, F_OK); ms++)
    usleep(1000);
  assert_fails(1, ERR_INVALID, "another number of members");
  kill(pid, SIGKILL);
  waitpid(pid, NULL, 0);
  assert_opens();
}

static void leftovers_of_other_names_are_swept_too(void **state) {
  struct stat status;
  char other[160];
  int fd;
  (void)state;
  snprintf(other, sizeof other, "%s-other", path);
  fd = open(other, O_RDWR | O_CREAT, 0600);
  close(fd);
  assert_opens();
  assert_int_equal(stat(other, &status), -1);
  assert_int_equal(errno, ENOENT);
}

/* A limit on files stands for a /dev/shm that is full: the bytes are asked for before any is touched. */
static void too_little_room_is_an_error(void **state) {
  pid_t pid;
  int status;
  (void)state;
  fflush(NULL);
  pid = fork();
  if (pid == 0) {
    struct rlimit limit = {1 << 20, 1 << 20};
    struct collective *group;
    struct err err = ERR_NONE;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &limit);
    _exit(open_as(0, 1, 1000, &group, &err) == ERR_NO_MEMORY && strstr(err.text, "--shm-size") ? 0 : 1);
  }
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
}

static void no_group_needs_more_than_a_container_has(void **state) {
  (void)state;
  for (int size = 1; size <= COLLECTIVE_SIZE_MAX; size++) {
    struct shm_layout layout = shm_layout_of(size);
    assert_true(layout.total_bytes <= 16 << 20);
    assert_true(layout.slot_bytes >= 16 << 10);
    assert_true(layout.ring_bytes >= 64 << 10);
    assert_int_equal(layout.pairs_at % SHM_LINE, 0);
    assert_int_equal(layout.rings_at % SHM_LINE, 0);
  }
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(what_nobody_holds_is_swept_whatever_it_contains, setup, teardown),
      cmocka_unit_test_setup_teardown(garbage_that_is_held_is_refused, setup, teardown),
      cmocka_unit_test_setup_teardown(what_is_not_a_file_is_refused_and_left_alone, setup, teardown),
      cmocka_unit_test_setup_teardown(another_users_file_is_refused_and_left_alone, setup, teardown),
      cmocka_unit_test_setup_teardown(what_a_killed_member_0_has_left_is_small_and_swept, setup, teardown),
      cmocka_unit_test_setup_teardown(a_member_whose_member_0_dies_waits_for_another, setup, teardown),
      cmocka_unit_test_setup_teardown(members_that_disagree_about_the_size_are_told, setup, teardown),
      cmocka_unit_test_setup_teardown(leftovers_of_other_names_are_swept_too, setup, teardown),
      cmocka_unit_test_setup_teardown(too_little_room_is_an_error, setup, teardown),
      cmocka_unit_test(no_group_needs_more_than_a_container_has),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
