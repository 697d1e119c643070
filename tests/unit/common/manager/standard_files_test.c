/* Standard files that are closed, and output that cannot be written. Each case is a process of its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/manager/standard_files.h"

enum { FILE_FD = 3 };

/* The exit status of what runs in a process of its own. */
static int run_apart(int (*apart)(void)) {
  pid_t pid;
  int status = -1;
  fflush(NULL);
  pid = fork();
  if (pid == 0)
    _exit(apart());
  assert_true(pid > 0);
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_true(WIFEXITED(status));
  return WEXITSTATUS(status);
}

static int close_and_open(int first, int last) {
  for (int fd = first; fd <= last; fd++)
    close(fd);
  standard_files_open();
  for (int fd = first; fd <= last; fd++)
    if (fcntl(fd, F_GETFL) < 0)
      return 100 + fd;
  return open("/dev/zero", O_RDONLY);
}

static int without_any(void) {
  close(FILE_FD);
  return close_and_open(STDIN_FILENO, STDERR_FILENO);
}

static int without_output(void) {
  close(FILE_FD);
  return close_and_open(STDOUT_FILENO, STDOUT_FILENO);
}

static int with_all(void) {
  close(FILE_FD);
  standard_files_open();
  return open("/dev/zero", O_RDONLY);
}

static void files_never_take_the_numbers_of_standard_ones(void **state) {
  (void)state;
  assert_int_equal(run_apart(without_any), FILE_FD);
  assert_int_equal(run_apart(without_output), FILE_FD);
  assert_int_equal(run_apart(with_all), FILE_FD);
}

/* The exit status: what standard_output_finish answers. */
static int print_into(int fd) {
  struct err err = ERR_NONE;
  dup2(fd, STDOUT_FILENO);
  printf("printed\n");
  return standard_output_finish(&err);
}

static int into_full_disk(void) {
  return print_into(open("/dev/full", O_WRONLY));
}

/* It was found when it was flushed; by the end nothing is left to fail. */
static int into_full_disk_before(void) {
  struct err err = ERR_NONE;
  dup2(open("/dev/full", O_WRONLY), STDOUT_FILENO);
  printf("printed\n");
  fflush(stdout);
  return standard_output_finish(&err);
}

static int into_null(void) {
  return print_into(open("/dev/null", O_WRONLY));
}

static int into_pipe_without_reader(void) {
  int ends[2];
  signal(SIGPIPE, SIG_IGN);
  if (pipe(ends))
    return 100;
  close(ends[0]);
  return print_into(ends[1]);
}

static void output_that_is_lost_is_an_error(void **state) {
  (void)state;
  assert_int_equal(run_apart(into_full_disk), ERR_IO);
  assert_int_equal(run_apart(into_full_disk_before), ERR_IO);
  assert_int_equal(run_apart(into_null), ERR_OK);
}

static void a_reader_that_has_left_is_none(void **state) {
  (void)state;
  assert_int_equal(run_apart(into_pipe_without_reader), ERR_OK);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(files_never_take_the_numbers_of_standard_ones),
      cmocka_unit_test(output_that_is_lost_is_an_error),
      cmocka_unit_test(a_reader_that_has_left_is_none),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
