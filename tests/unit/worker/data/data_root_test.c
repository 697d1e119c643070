/* What a spec names is opened below the data root, and nowhere else. */
#include "worker/data/data_root.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/memory.h"

static char top[64];        /* data/ is the data root, out/ lies beside it */
static const char *tenants; /* what the run's tenant has of it */

static char *path_of(const char *name) {
  static char path[8][PATH_MAX];
  static int n;
  char *out = path[n++ % 8];
  snprintf(out, PATH_MAX, "%s/%s", top, name);
  return out;
}

static void make(const char *name, const char *text) {
  FILE *file = fopen(path_of(name), "w");
  assert_non_null(file);
  fputs(text, file);
  fclose(file);
}

static void make_link(const char *target, const char *name) {
  assert_int_equal(symlink(target, path_of(name)), 0);
}

static int setup(void **state) {
  static const char *const folders[] = {"data", "data/set", "data/set/in", "out", "out/certs"};
  (void)state;
  tenants = NULL;
  strcpy(top, "/tmp/weir-root-XXXXXX");
  assert_non_null(mkdtemp(top));
  for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
    assert_int_equal(mkdir(path_of(folders[i]), 0700), 0);
  make("data/set/a", "a");
  make("data/other", "o");
  make("out/secret", "s");
  return 0;
}

static int teardown(void **state) {
  char *command = mem_printf("rm -r %s", top);
  int code = system(command);
  (void)state;
  free(command);
  return code;
}

/* What a file that a spec with this data.root names holds; a word of the error where it is refused. */
static void expect(const char *spec_root, const char *file, bool follows_links, const char *wanted) {
  struct data_root root = {.path = path_of("data"), .follows_links = follows_links, .tenants = tenants};
  struct data_folder *folder;
  struct err err = ERR_NONE;
  char path[PATH_MAX], content[2] = "";
  int fd =
      data_folder_open(&root, spec_root, &folder, &err) ? -1 : data_folder_file(folder, file, path, &err);
  if (fd >= 0) {
    assert_int_equal(read(fd, content, 1), 1);
    close(fd);
  }
  if (fd >= 0 ? strcmp(content, wanted) != 0 : !err.code || !strstr(err.text, wanted))
    fail_msg("%s, %s: '%s' '%s' is not '%s'", spec_root, file, content, err.text, wanted);
  data_folder_put(folder);
}

static void files_are_found_below_the_root(void **state) {
  (void)state;
  expect("set", "a", false, "a");
  expect("./set//", "in/../a", false, "names no file below");
  expect("./set/.", "./a", false, "a");
  expect(path_of("data/set"), "a", false, "a");
  expect(path_of("data"), "set/a", false, "a");
  expect("", "other", false, "o");
  expect("set/..", "other", false, "o");
  expect("set", "none", false, "No such file");
  expect("none", "a", false, "there is no folder");
  expect("other", "a", false, "is not a folder");
  expect("", "set", false, "is not a file");
}

static void names_that_lead_out_are_refused(void **state) {
  static const bool links[] = {false, true};
  (void)state;
  for (int i = 0; i < 2; i++) {
    expect("..", "out/secret", links[i], "outside");
    expect("set/../../out", "secret", links[i], "outside");
    expect(path_of("out"), "secret", links[i], "outside");
    expect(path_of("data/../out"), "secret", links[i], "outside");
    expect("/", "etc/passwd", links[i], "outside");
    expect("set", "../../out/secret", links[i], "names no file below");
    expect("set", path_of("out/secret"), links[i], "names no file below");
    expect("set", "/etc/passwd", links[i], "names no file below");
  }
  make("data2", "2");
  expect(path_of("data2"), "x", false, "outside");
}

static void links_that_lead_out_are_followed_only_where_the_worker_says_so(void **state) {
  (void)state;
  make_link("../../out/secret", "data/set/up");
  make_link(path_of("out/secret"), "data/set/absolute");
  make_link(path_of("out"), "data/folder");
  make_link("../other", "data/set/within");
  make_link("set", "data/inner");
  expect("set", "within", false, "o");
  expect("inner", "a", false, "a");
  expect("set", "up", false, "--follow-links");
  expect("set", "absolute", false, "--follow-links");
  expect("folder", "secret", false, "--follow-links");
  expect("", "folder/secret", false, "--follow-links");
  expect("set", "up", true, "s");
  expect("set", "absolute", true, "s");
  expect("folder", "secret", true, "s");
  expect("", "folder/secret", true, "s");
}

/* "set" is the tenant's, by its path from the data root, by an absolute one, and by a link. */
static void a_tenants_files_lie_below_its_own_root(void **state) {
  char absolute[PATH_MAX];
  const char *const ways[] = {"set", "./set//", absolute, "inner"};
  (void)state;
  strcpy(absolute, path_of("data/set"));
  make("data/set/in/b", "b");
  make_link("set", "data/inner");
  for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
    tenants = ways[i];
    expect("", "a", false, "a");
    expect(".", "in/b", true, "b");
    expect("in", "b", false, "b");
    expect(path_of("data/set/in"), "b", false, "b");
    expect("none", "b", false, "there is no folder");
    expect("set", "a", false, "there is no folder");
  }
}

static void nothing_leads_out_of_a_tenants_root(void **state) {
  static const char outside[] = "the data_root of the run's tenant";
  (void)state;
  make("data/set2", "2");
  make_link("../other", "data/set/up");
  make_link(path_of("data/other"), "data/set/absolute");
  make_link("..", "data/set/folder");
  make_link("a", "data/set/within");
  tenants = "set";
  for (int i = 0; i < 2; i++) {
    bool follows_links = i > 0;
    expect("", "within", follows_links, "a");
    expect("..", "other", follows_links, outside);
    expect("in/../..", "other", follows_links, outside);
    expect("in/..", "a", follows_links, outside);
    expect(path_of("data"), "other", follows_links, outside);
    expect(path_of("data/set/../../data"), "other", follows_links, outside);
    expect(path_of("data/set2"), "2", follows_links, outside);
    expect("/", "etc/passwd", follows_links, outside);
    expect("", "../other", follows_links, "names no file below");
    expect("", path_of("data/other"), follows_links, "names no file below");
    expect("", "up", follows_links, outside);
    expect("", "absolute", follows_links, outside);
    expect("folder", "other", follows_links, outside);
    expect("", "folder/other", follows_links, outside);
  }
}

static void a_tenants_root_lies_below_that_of_the_worker(void **state) {
  (void)state;
  make_link("../out", "data/way");
  make_link("/proc/self/root", "data/root");
  tenants = "../out";
  expect("", "secret", false, "data_root of the run's tenant: ../out lies outside this worker's --data-root");
  tenants = path_of("out");
  expect("", "secret", true, "lies outside this worker's --data-root");
  tenants = "none";
  expect("", "a", false, "data_root of the run's tenant: there is no folder");
  tenants = "other";
  expect("", "a", false, "Not a directory");
  tenants = "root/tmp";
  expect("", "a", true, "Too many levels");
  tenants = "way"; /* whoever administers the worker may have put the link there */
  expect("", "secret", false, "--follow-links");
  expect("", "secret", true, "s");
}

static void links_that_the_kernel_makes_up_are_never_followed(void **state) {
  struct data_root root = {.path = "/"};
  struct data_folder *folder;
  struct err err = ERR_NONE;
  char path[PATH_MAX];
  (void)state;
  assert_int_equal(data_folder_open(&root, "/proc/self/root/tmp", &folder, &err), ERR_NOT_FOUND);
  err = ERR_NONE;
  assert_int_equal(data_folder_open(&root, "/proc/self", &folder, &err), 0);
  assert_int_equal(data_folder_file(folder, "exe", path, &err), -1);
  err = ERR_NONE;
  assert_int_equal(data_folder_file(folder, "fd/0", path, &err), -1);
  data_folder_put(folder);
  make_link("/proc/self/root", "data/root");
  expect("root", "etc/passwd", true, "Too many levels");
}

static void listing_and_looking_follow_the_same_rules(void **state) {
  struct data_root root = {.path = path_of("data")};
  struct data_folder *folder;
  struct stat status;
  struct err err = ERR_NONE;
  DIR *dir;
  (void)state;
  make_link("../../out", "data/set/up");
  assert_int_equal(data_folder_open(&root, "set", &folder, &err), 0);
  dir = data_folder_list(folder, "in", &err);
  assert_non_null(dir);
  closedir(dir);
  assert_null(data_folder_list(folder, "up", &err));
  assert_non_null(strstr(err.text, "--follow-links"));
  err = ERR_NONE;
  assert_int_equal(data_folder_stat(folder, "up/secret", &status, &err), ERR_INVALID);
  err = ERR_NONE;
  assert_int_equal(data_folder_stat(folder, "a", &status, &err), 0);
  assert_int_equal(status.st_size, 1);
  data_folder_put(folder);
}

static void the_root_itself_may_be_a_link(void **state) {
  struct data_root root = {.path = path_of("way")};
  const char *const ways[] = {"set", path_of("way/set"), path_of("data/set")};
  char path[PATH_MAX];
  (void)state;
  make_link("data", "way");
  for (int i = 0; i < 3; i++) {
    struct data_folder *folder;
    struct err err = ERR_NONE;
    int fd = data_folder_open(&root, ways[i], &folder, &err) ? -1 : data_folder_file(folder, "a", path, &err);
    if (fd < 0)
      fail_msg("%s", err.text);
    close(fd);
    data_folder_put(folder);
  }
}

static void files_of_stores_are_no_data(void **state) {
  (void)state;
  assert_int_equal(mkdir(path_of("data/set/store"), 0700), 0);
  assert_int_equal(mkdir(path_of("data/set/store/records"), 0700), 0);
  assert_int_equal(mkdir(path_of("data/set/store/tmp"), 0700), 0);
  make("data/set/store/records/run", "r");
  make_link("set/store/records/run", "data/harmless");
  expect("set/store", "records/run", false, "r"); /* no store: only folders of such names */
  make("data/set/store/lock", "");
  expect("set/store", "records/run", false, "belongs to the store");
  expect("set", "store/records/run", true, "belongs to the store");
  expect("", "harmless", false, "belongs to the store");
  expect("set", "a", false, "a");
}

static void the_folder_of_certificates_lies_elsewhere(void **state) {
  const struct {
    const char *root, *certificates;
    bool is_refused;
  } rows[] = {
      {"data", "out/certs", false},
      {"data", "certs", true},
      {"out", "out/certs", true},
      {"out/certs", "out/certs", true},
      {"out/certs/keys", "out/certs", true},
      {"data/set", "data/link", false},
      {"data", "data/link", true},
      {"out", "data/link", true},
      {"out", "data/link/", true},
      {"way", "out/certs", true},
  };
  (void)state;
  assert_int_equal(mkdir(path_of("data/certs"), 0700), 0);
  assert_int_equal(mkdir(path_of("out/certs/keys"), 0700), 0);
  make_link("../out/certs", "data/link");
  make_link("data/certs", "certs");
  make_link("out", "way");
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct data_root root = {.path = path_of(rows[i].root), .follows_links = true};
    struct err err = ERR_NONE;
    int code = data_root_check(&root, path_of(rows[i].certificates), &err);
    if (code != (rows[i].is_refused ? ERR_INVALID : 0) || (code && !strstr(err.text, "must lie apart")))
      fail_msg("%s, %s: %s", rows[i].root, rows[i].certificates, err.text);
  }
}

/* openat2 fails in this process from now on as where a kernel has none. */
static bool forbid_openat2(void) {
  struct sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat2, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static void a_kernel_without_openat2_is_told_and_nothing_is_opened(void **state) {
  int status;
  pid_t child = fork();
  (void)state;
  if (child == 0) {
    struct data_root root = {.path = path_of("data")};
    struct data_folder *folder;
    struct err err = ERR_NONE, later = ERR_NONE;
    if (!forbid_openat2())
      _exit(77);
    if (data_root_check(&root, NULL, &err) != ERR_UNSUPPORTED || !strstr(err.text, "openat2"))
      _exit(1);
    _exit(data_folder_open(&root, "set", &folder, &later) == ERR_UNSUPPORTED ? 0 : 2);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
    skip(); /* a sandbox in which no filter can be made */
  assert_int_equal(status, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
      TEST(files_are_found_below_the_root),
      TEST(names_that_lead_out_are_refused),
      TEST(links_that_lead_out_are_followed_only_where_the_worker_says_so),
      TEST(a_tenants_files_lie_below_its_own_root),
      TEST(nothing_leads_out_of_a_tenants_root),
      TEST(a_tenants_root_lies_below_that_of_the_worker),
      TEST(links_that_the_kernel_makes_up_are_never_followed),
      TEST(listing_and_looking_follow_the_same_rules),
      TEST(the_root_itself_may_be_a_link),
      TEST(files_of_stores_are_no_data),
      TEST(the_folder_of_certificates_lies_elsewhere),
      TEST(a_kernel_without_openat2_is_told_and_nothing_is_opened),
#undef TEST
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
