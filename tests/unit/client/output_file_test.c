/* Where results are written, and where they are not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/files/output_file.h"

static char before[4096];

static int enter_folder(void **state) {
  char folder[] = "/tmp/weir-output-XXXXXX";
  (void)state;
  return !getcwd(before, sizeof before) || !mkdtemp(folder) || chdir(folder);
}

static int leave_folder(void **state) {
  char folder[4096];
  (void)state;
  return !getcwd(folder, sizeof folder) || chdir(before) || rmdir(folder);
}

static void expect_content(const char *path, const char *wanted) {
  char got[64] = "";
  int fd = open(path, O_RDONLY);
  assert_true(fd >= 0);
  assert_int_equal(read(fd, got, sizeof got - 1), strlen(wanted));
  assert_string_equal(got, wanted);
  close(fd);
}

static int save(const char *path, const char *text, struct err *err) {
  *err = ERR_NONE;
  return output_file_save(path, text, strlen(text), err);
}

static void a_file_is_made_and_replaced(void **state) {
  struct err err;
  (void)state;
  assert_int_equal(save("new", "one", &err), ERR_OK);
  expect_content("new", "one");
  assert_int_equal(save("new", "another", &err), ERR_OK);
  expect_content("new", "another");
  unlink("new");
  assert_int_equal(save("no/folder", "x", &err), ERR_IO);
  assert_string_equal(err.text, "no/folder: No such file or directory");
}

/* Anybody may make a link in /tmp, and know the name. */
static void the_file_that_is_written_is_no_link(void **state) {
  char temporary[64];
  struct err err;
  (void)state;
  snprintf(temporary, sizeof temporary, "new.%d.tmp", (int)getpid());
  assert_int_equal(save("other", "kept", &err), ERR_OK);
  assert_int_equal(symlink("other", temporary), 0);
  assert_int_equal(save("new", "one", &err), ERR_OK);
  expect_content("new", "one");
  expect_content("other", "kept");
  unlink("new");
  unlink("other");
}

static void what_a_link_leads_to_is_replaced_and_not_the_link(void **state) {
  struct stat status;
  struct err err;
  (void)state;
  assert_int_equal(mkdir("apart", 0700), 0);
  assert_int_equal(save("apart/file", "old", &err), ERR_OK);
  assert_int_equal(symlink("apart/file", "link"), 0);
  assert_int_equal(save("link", "newer", &err), ERR_OK);
  assert_true(lstat("link", &status) == 0 && S_ISLNK(status.st_mode));
  expect_content("apart/file", "newer");
  unlink("apart/file");
  assert_int_equal(save("link", "lost", &err), ERR_IO);
  assert_string_equal(err.text, "link, a link: No such file or directory");
  unlink("link");
  rmdir("apart");
}

static void nothing_but_a_file_is_replaced(void **state) {
  static const struct {
    const char *path, *text;
  } cases[] = {{"-", "'-' is no file: name one, for what is written gets its name when it is whole"},
               {"folder", "folder: is not a file but a folder"},
               {"pipe", "pipe: is not a file but a pipe or a device"},
               {"to-pipe", "to-pipe: is not a file but a pipe or a device"},
               {"to-null", "to-null: is not a file but a pipe or a device"}};
  struct stat status;
  struct err err;
  (void)state;
  assert_int_equal(mkdir("folder", 0700), 0);
  assert_int_equal(mkfifo("pipe", 0600), 0);
  assert_int_equal(symlink("pipe", "to-pipe"), 0);
  assert_int_equal(symlink("/dev/null", "to-null"), 0);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    assert_int_equal(save(cases[i].path, "x", &err), ERR_INVALID);
    assert_string_equal(err.text, cases[i].text);
  }
  assert_true(lstat("pipe", &status) == 0 && S_ISFIFO(status.st_mode));
  assert_true(lstat("to-pipe", &status) == 0 && S_ISLNK(status.st_mode));
  assert_true(lstat("to-null", &status) == 0 && S_ISLNK(status.st_mode));
  unlink("to-null");
  unlink("to-pipe");
  unlink("pipe");
  rmdir("folder");
}

static void standard_output_is_not_replaced(void **state) {
  int was = dup(STDOUT_FILENO);
  struct err err;
  (void)state;
  fflush(stdout);
  assert_int_equal(dup2(open("printed", O_CREAT | O_WRONLY, 0600), STDOUT_FILENO), STDOUT_FILENO);
  assert_int_equal(save("printed", "x", &err), ERR_INVALID);
  assert_int_equal(save("/dev/stdout", "x", &err), ERR_INVALID);
  fflush(stdout);
  dup2(was, STDOUT_FILENO);
  close(was);
  assert_string_equal(err.text,
                      "/dev/stdout: is open already, as standard input, output or error: name another file");
  expect_content("printed", "");
  unlink("printed");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_file_is_made_and_replaced),
      cmocka_unit_test(the_file_that_is_written_is_no_link),
      cmocka_unit_test(what_a_link_leads_to_is_replaced_and_not_the_link),
      cmocka_unit_test(nothing_but_a_file_is_replaced),
      cmocka_unit_test(standard_output_is_not_replaced),
  };
  return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
