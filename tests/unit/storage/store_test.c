/* What is the file: store's alone, and URLs. What every store does is in tests/conformance/store_*_test.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/memory.h"
#include "storage/file/file_io.h"
#include "storage/store.h"

static char dir[64], *url;
static struct store *store;

static int setup(void **state) {
  struct err err = ERR_NONE;
  (void)state;
  strcpy(dir, "/tmp/weir-store-XXXXXX");
  assert_non_null(mkdtemp(dir));
  url = mem_printf("file://%s", dir);
  return store_open(url, &store, &err);
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *at) {
  (void)status, (void)kind, (void)at;
  return remove(path);
}

static void remove_dir(void) {
  nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static int teardown(void **state) {
  (void)state;
  store_close(store);
  remove_dir();
  free(url);
  return 0;
}

static char *block_path(const char *sha256) {
  return mem_printf("%s/blocks/%.2s/%s", dir, sha256, sha256 + 2);
}

static ino_t block_inode(const char *sha256) {
  char *path = block_path(sha256);
  struct stat status;
  assert_int_equal(stat(path, &status), 0);
  free(path);
  return status.st_ino;
}

static void damage(const char *sha256, bool cuts) {
  char *path = block_path(sha256);
  int fd = open(path, O_WRONLY);
  assert_true(fd >= 0);
  if (cuts)
    assert_int_equal(ftruncate(fd, 5), 0);
  else
    assert_int_equal(pwrite(fd, "X", 1, 3), 1);
  close(fd);
  free(path);
}

/* A file of that name, with a text. */
static void make_file(const char *below, const char *name, const char *text) {
  char *path = mem_printf("%s/%s/%s", dir, below, name);
  int fd = open(path, O_WRONLY | O_CREAT, 0644);
  assert_true(fd >= 0);
  assert_int_equal(write(fd, text, strlen(text)), strlen(text));
  close(fd);
  free(path);
}

static bool is_there(const char *name) {
  char *path = mem_printf("%s/%s", dir, name);
  bool answer = access(path, F_OK) == 0;
  free(path);
  return answer;
}

/* No file is left of a write that failed. */
static void assert_no_rests(void) {
  char *tmp = mem_printf("%s/tmp", dir);
  assert_int_equal(rmdir(tmp), 0); /* empty */
  assert_int_equal(mkdir(tmp, 0755), 0);
  free(tmp);
}

static void the_same_content_is_written_once(void **state) {
  struct err err = ERR_NONE;
  char key[STORE_KEY_SIZE], again[STORE_KEY_SIZE];
  ino_t inode;
  (void)state;
  assert_int_equal(store_put(store, "once", 4, key, &err), 0);
  inode = block_inode(key);
  assert_int_equal(store_put(store, "once", 4, again, &err), 0);
  assert_string_equal(key, again);
  assert_int_equal(block_inode(key), inode);
}

static void a_damaged_block_is_refused_by_key(void **state) {
  struct err err = ERR_NONE;
  char key[STORE_KEY_SIZE];
  void *data;
  size_t size;
  (void)state;
  for (int cuts = 0; cuts < 2; cuts++) {
    assert_int_equal(store_put(store, "precious bytes", 14, key, &err), 0);
    damage(key, cuts);
    assert_int_equal(store_get(store, key, &data, &size, &err), ERR_CORRUPT);
    assert_non_null(strstr(err.text, key));
    assert_null(data);
  }
}

static void a_block_cut_short_is_written_again(void **state) {
  enum { N = 6 };
  struct store_block blocks[N];
  char text[N][32];
  struct err err = ERR_NONE;
  void *data;
  size_t size;
  (void)state;
  for (int n = 1; n <= N; n += N - 1) { /* alone, and in a batch */
    for (int i = 0; i < n; i++) {
      snprintf(text[i], sizeof text[i], "precious bytes %d of %d", i, n);
      blocks[i] = (struct store_block){.parts = {{text[i], strlen(text[i])}}, .n_parts = 1};
    }
    assert_int_equal(store_put_blocks(store, blocks, n, NULL, &err), 0);
    damage(blocks[n - 1].sha256, true);
    assert_int_equal(store_put_blocks(store, blocks, n, NULL, &err), 0);
    assert_int_equal(store_get(store, blocks[n - 1].sha256, &data, &size, &err), 0);
    free(data);
  }
}

static void a_sweep_removes_old_rests_and_empty_folders(void **state) {
  struct err err = ERR_NONE;
  char key[STORE_KEY_SIZE];
  (void)state;
  assert_int_equal(store_put(store, "block", 5, key, &err), 0);
  assert_int_equal(
      store_put_record(store, &(struct store_record){"runs/a/checkpoints/1", "x", 1, NULL}, &err), 0);
  assert_int_equal(store_put_record(store, &(struct store_record){"runs/b/run", "x", 1, NULL}, &err), 0);
  assert_int_equal(store_delete_record(store, "runs/a/checkpoints/1", NULL, &err), 0);
  make_file("tmp", "abcdef", "half a blo");
  assert_int_equal(store_sweep(store, 3600, &err), 0);
  assert_true(is_there("tmp/abcdef"));
  assert_false(is_there("records/runs/a"));
  assert_true(is_there("records/runs/b/run"));
  assert_int_equal(store_sweep(store, 0, &err), 0);
  assert_false(is_there("tmp/abcdef"));
  assert_true(block_inode(key) > 0);
  assert_int_equal(
      store_put_record(store, &(struct store_record){"runs/a/checkpoints/2", "x", 1, NULL}, &err), 0);
}

static int count_one(void *user, const char *key, uint64_t size_bytes) {
  (void)key, (void)size_bytes;
  ++*(int *)user;
  return 0;
}

static void files_of_others_are_no_blocks_and_no_records(void **state) {
  struct err err = ERR_NONE;
  struct store_names names;
  char key[STORE_KEY_SIZE];
  int n_blocks = 0;
  (void)state;
  assert_int_equal(store_put(store, "block", 5, key, &err), 0);
  assert_int_equal(store_put_record(store, &(struct store_record){"a", "x", 1, NULL}, &err), 0);
  make_file("blocks", "README", "what is this");
  make_file("records", ".a.swp", "an editor's");
  assert_int_equal(store_list_blocks(store, count_one, &n_blocks, &err), 0);
  assert_int_equal(n_blocks, 1);
  assert_int_equal(store_list_records(store, "", &names, &err), 0);
  assert_int_equal(names.count, 1);
  store_names_fini(&names);
}

static void a_directory_that_was_taken_away_is_made_anew(void **state) {
  struct store_record guard = {.name = "epoch", .data = "1", .size = 1};
  struct err err = ERR_NONE;
  char key[STORE_KEY_SIZE];
  void *data;
  size_t size;
  (void)state;
  assert_int_equal(store_put_record(store, &(struct store_record){"epoch", "1", 1, NULL}, &err), 0);
  remove_dir();
  assert_int_equal(store_get_record(store, "epoch", &data, &size, &err), ERR_NOT_FOUND);
  assert_int_equal(store_put_record(store, &(struct store_record){"a", "1", 1, &guard}, &err), ERR_STALE);
  assert_int_equal(store_put_record(store, &(struct store_record){"epoch", "1", 1, NULL}, &err), 0);
  remove_dir();
  assert_int_equal(store_put(store, "block", 5, key, &err), 0);
  assert_int_equal(store_get(store, key, &data, &size, &err), 0);
  free(data);
}

static void a_record_in_the_way_of_a_folder_is_an_error(void **state) {
  struct err err = ERR_NONE;
  void *data;
  size_t size;
  (void)state;
  assert_int_equal(store_put_record(store, &(struct store_record){"runs/a", "x", 1, NULL}, &err), 0);
  assert_int_equal(store_put_record(store, &(struct store_record){"runs/a/b", "x", 1, NULL}, &err), ERR_IO);
  assert_int_equal(store_put_record(store, &(struct store_record){"runs", "x", 1, NULL}, &err), ERR_IO);
  assert_no_rests();
  assert_int_equal(store_get_record(store, "runs/a", &data, &size, &err), 0);
  free(data);
}

enum { PROCESSES = 4, INCREMENTS = 15 };

static int add_one(void) {
  for (;;) {
    struct err err = ERR_NONE;
    struct store_record guard = {.name = "counter"};
    char text[32];
    void *data;
    size_t size;
    int rc = store_get_record(store, "counter", &data, &size, &err);
    if (rc && rc != ERR_NOT_FOUND)
      return rc;
    snprintf(text, sizeof text, "%.*s", (int)size, data ? (char *)data : "");
    if (data)
      guard = (struct store_record){.name = "counter", .data = data, .size = size};
    snprintf(text, sizeof text, "%d", atoi(text) + 1);
    rc = store_put_record(store, &(struct store_record){"counter", text, strlen(text), &guard}, &err);
    free(data);
    if (rc != ERR_STALE && rc != ERR_TIMEOUT) /* who has the lock may stand still */
      return rc;
  }
}

static void no_increment_of_several_processes_is_lost(void **state) {
  struct err err = ERR_NONE;
  pid_t children[PROCESSES];
  void *data;
  size_t size;
  int status;
  (void)state;
  for (int p = 0; p < PROCESSES; p++)
    if ((children[p] = fork()) == 0) {
      int failures = store_open(url, &store, &err) != 0;
      for (int i = 0; i < INCREMENTS && !failures; i++)
        failures += add_one() != 0;
      _exit(failures);
    }
  for (int p = 0; p < PROCESSES; p++) {
    assert_int_equal(waitpid(children[p], &status, 0), children[p]);
    assert_int_equal(status, 0);
  }
  assert_int_equal(store_get_record(store, "counter", &data, &size, &err), 0);
  assert_int_equal(size, 2);
  assert_memory_equal(data, "60", 2);
  free(data);
}

static void a_process_that_dies_with_the_lock_loses_it(void **state) {
  struct err err = ERR_NONE;
  int ready[2], status;
  char byte;
  pid_t child;
  (void)state;
  assert_int_equal(pipe(ready), 0);
  child = fork();
  if (child == 0) {
    char *path = mem_printf("%s/lock", dir);
    int fd = open(path, O_RDWR | O_CREAT, 0644);
    if (fd < 0 || flock(fd, LOCK_EX) || write(ready[1], "x", 1) != 1)
      _exit(1);
    pause();
  }
  assert_int_equal(read(ready[0], &byte, 1), 1);
  kill(child, SIGKILL);
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(store_put_record(store, &(struct store_record){"a", "x", 1, NULL}, &err), 0);
  close(ready[0]);
  close(ready[1]);
}

/* In a process of its own, for a limit of its own: no file may grow beyond 64 KiB. */
static void a_write_that_fails_halfway_leaves_what_was(void **state) {
  struct err err = ERR_NONE;
  int status, n_blocks = 0;
  pid_t child;
  void *data;
  size_t size;
  (void)state;
  assert_int_equal(store_put_record(store, &(struct store_record){"a", "old", 3, NULL}, &err), 0);
  child = fork();
  if (child == 0) {
    struct rlimit limit = {65536, 65536};
    char *big = mem_new(100000), key[STORE_KEY_SIZE];
    signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_FSIZE, &limit) ||
        store_put_record(store, &(struct store_record){"a", big, 100000, NULL}, &err) != ERR_IO)
      _exit(1);
    _exit(store_put(store, big, 100000, key, &err) != ERR_IO || !strstr(err.text, "File too large"));
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  assert_int_equal(store_get_record(store, "a", &data, &size, &err), 0);
  assert_int_equal(size, 3);
  free(data);
  assert_int_equal(store_list_blocks(store, count_one, &n_blocks, &err), 0);
  assert_int_equal(n_blocks, 0);
  assert_no_rests();
}

static void a_full_file_system_is_worth_another_try(void **state) {
  struct err err = ERR_NONE;
  (void)state;
  assert_int_equal(file_failed(&err, ENOSPC, "write ", "/a"), ERR_UNAVAILABLE);
  assert_string_equal(err.text, "store: write /a: No space left on device");
  assert_int_equal(file_failed(&err, EROFS, "", "/a"), ERR_UNAVAILABLE);
  assert_int_equal(file_failed(&err, ENOTDIR, "", "/a"), ERR_IO);
}

static void an_unknown_scheme_names_the_known_ones(void **state) {
  struct err err = ERR_NONE;
  struct store *none;
  (void)state;
  assert_int_equal(store_open("ftp://somewhere", &none, &err), ERR_INVALID);
  assert_non_null(strstr(err.text, "file://"));
  assert_non_null(strstr(err.text, "rediss://"));
  assert_int_equal(store_open("redi://somewhere", &none, &err), ERR_INVALID);
  assert_int_equal(store_open("ftp://user:secret@somewhere", &none, &err), ERR_INVALID);
  assert_null(strstr(err.text, "secret"));
  assert_int_equal(store_open("file://relative/dir", &none, &err), ERR_INVALID);
  assert_int_equal(store_open("", &none, &err), ERR_INVALID);
}

static void a_url_shows_no_password(void **state) {
  static const struct {
    const char *url, *redacted;
  } cases[] = {
      {"redis://:secret@host:1/2", "redis://:***@host:1/2"},
      {"redis+sentinel://user:se:cr@et/?@a,b/main?x=1", "redis+sentinel://user:***@a,b/main?x=1"},
      {"redis://user@host:6379/0", NULL},
      {"redis://host:6379", NULL},
      {"file:///a:b@c", NULL},
      {"redis+unix:///run/a:b@c", NULL},
      {"nothing:at@all", NULL},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char *redacted = store_url_redacted(cases[i].url);
    assert_string_equal(redacted, cases[i].redacted ? cases[i].redacted : cases[i].url);
    assert_int_equal(store_url_has_password(cases[i].url), cases[i].redacted != NULL);
    free(redacted);
  }
}

static void a_directory_that_cannot_be_made_is_named_with_its_reason(void **state) {
  struct err err = ERR_NONE;
  struct store *none;
  (void)state;
  assert_int_equal(store_open("file:///dev/null/store", &none, &err), ERR_IO);
  assert_non_null(strstr(err.text, "/dev/null"));
  assert_non_null(strstr(err.text, "Not a directory"));
}

static int check_private(const char *path, const struct stat *status, int kind, struct FTW *at) {
  (void)at;
  if ((status->st_mode & 0777) != (kind == FTW_D || kind == FTW_DP ? 0700u : 0600u))
    fail_msg("%s has mode %o", path, (unsigned)status->st_mode);
  return 0;
}

static void only_the_owner_may_enter_a_store_and_read_its_files(void **state) {
  mode_t former = umask(0);
  char *below = mem_printf("%s/new/store", dir), *below_url = mem_printf("file://%s", below);
  struct store *made = NULL;
  struct err err = ERR_NONE;
  char sha256[STORE_KEY_SIZE];
  struct store_record record = {.name = "a/b", .data = "x", .size = 1};
  (void)state;
  assert_int_equal(store_open(below_url, &made, &err), 0);
  assert_int_equal(store_put(made, "abc", 3, sha256, &err), 0);
  assert_int_equal(store_put_record(made, &record, &err), 0);
  umask(former);
  assert_int_equal(nftw(below, check_private, 8, FTW_PHYS), 0);
  store_close(made);
  free(below);
  free(below_url);
}

static void a_store_that_let_others_in_is_shut_when_it_is_opened(void **state) {
  struct store *again = NULL;
  struct stat status;
  struct err err = ERR_NONE;
  (void)state;
  assert_int_equal(chmod(dir, 0755), 0);
  assert_int_equal(store_open(url, &again, &err), 0);
  assert_int_equal(stat(dir, &status), 0);
  assert_int_equal(status.st_mode & 0777, 0700);
  store_close(again);
}

static void a_directory_that_others_use_as_well_is_no_store_and_keeps_its_mode(void **state) {
  struct store *again = NULL;
  struct stat status;
  struct err err = ERR_NONE;
  (void)state;
  make_file("", "letter", "text");
  assert_int_equal(chmod(dir, 0777), 0);
  assert_int_equal(store_open(url, &again, &err), ERR_INVALID);
  assert_non_null(strstr(err.text, "has mode 777"));
  assert_non_null(strstr(err.text, "chmod 700"));
  assert_int_equal(stat(dir, &status), 0);
  assert_int_equal(status.st_mode & 0777, 0777);
  assert_int_equal(chmod(dir, 0700), 0);
  assert_int_equal(store_open(url, &again, &err), 0);
  store_close(again);
}

static void a_directory_that_is_not_writable_is_refused(void **state) {
  struct err err = ERR_NONE;
  struct store *none;
  (void)state;
  if (geteuid() == 0) {
    print_message("skipped: root may write anywhere\n");
    skip();
  }
  assert_int_equal(chmod(dir, 0555), 0);
  assert_int_equal(store_open(url, &none, &err), ERR_IO);
  assert_int_equal(chmod(dir, 0755), 0);
  assert_non_null(strstr(err.text, dir));
}

int main(void) {
#define ON(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
  const struct CMUnitTest tests[] = {
      ON(the_same_content_is_written_once),
      ON(a_damaged_block_is_refused_by_key),
      ON(a_block_cut_short_is_written_again),
      ON(a_sweep_removes_old_rests_and_empty_folders),
      ON(files_of_others_are_no_blocks_and_no_records),
      ON(a_directory_that_was_taken_away_is_made_anew),
      ON(a_record_in_the_way_of_a_folder_is_an_error),
      ON(no_increment_of_several_processes_is_lost),
      ON(a_process_that_dies_with_the_lock_loses_it),
      ON(a_write_that_fails_halfway_leaves_what_was),
      ON(a_full_file_system_is_worth_another_try),
      ON(an_unknown_scheme_names_the_known_ones),
      ON(a_url_shows_no_password),
      ON(a_directory_that_cannot_be_made_is_named_with_its_reason),
      ON(only_the_owner_may_enter_a_store_and_read_its_files),
      ON(a_store_that_let_others_in_is_shut_when_it_is_opened),
      ON(a_directory_that_others_use_as_well_is_no_store_and_keeps_its_mode),
      ON(a_directory_that_is_not_writable_is_refused),
  };
#undef ON
  return cmocka_run_group_tests(tests, NULL, NULL);
}
