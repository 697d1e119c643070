/* Conformance of the store's backends: every test runs on each row of stores[]. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/memory.h"
#include "common/sha256.h"
#include "storage/store.h"

/* A backend under test: where it lives and how a test damages one of its blocks. */
struct backend {
  const char *scheme;
  char *(*make_place)(void); /* a fresh URL, freed by the caller */
  void (*remove_place)(const char *url);
  void (*damage)(const char *url, const char *sha256, bool cut);
  long (*version)(const char *url, const char *sha256); /* changes when the block is written again */
};

static const struct backend backends[];
static const struct backend *backend;
static char *url;
static struct store *store;

static int setup(void **state) {
  struct err err = ERR_NONE;
  backend = *state;
  url = backend->make_place();
  return store_open(url, &store, &err);
}

static int teardown(void **state) {
  (void)state;
  store_close(store);
  backend->remove_place(url);
  free(url);
  return 0;
}

static void the_same_content_is_written_once(void **state) {
  struct err err = ERR_NONE;
  char key[65], again[65];
  long version;
  (void)state;
  assert_int_equal(store_put(store, "once", 4, key, &err), 0);
  version = backend->version(url, key);
  assert_int_equal(store_put(store, "once", 4, again, &err), 0);
  assert_string_equal(key, again);
  assert_int_equal(backend->version(url, key), version);
}

static void a_corrupt_block_is_refused_by_key(void **state) {
  struct err err = ERR_NONE;
  char key[65];
  void *data;
  size_t size;
  (void)state;
  assert_int_equal(store_put(store, "precious bytes", 14, key, &err), 0);
  backend->damage(url, key, false);
  assert_int_equal(store_get(store, key, &data, &size, &err), ERR_CORRUPT);
  assert_non_null(strstr(err.text, key));
  assert_null(data);
}

static void a_block_cut_short_is_refused(void **state) {
  struct err err = ERR_NONE;
  char key[65];
  void *data;
  size_t size;
  (void)state;
  assert_int_equal(store_put(store, "precious bytes", 14, key, &err), 0);
  backend->damage(url, key, true);
  assert_int_equal(store_get(store, key, &data, &size, &err), ERR_CORRUPT);
}

/* A password never reaches a log or another user's list of processes. */
static void a_password_in_a_url_is_seen_and_left_out(void **state) {
  static const struct {
    const char *url, *redacted;
    bool has_password;
  } cases[] = {
      {"redis://host:6379/0", "redis://host:6379/0", false},
      {"redis://user@host", "redis://user@host", false},
      {"redis://user:secret@host/1?replicas=1", "redis://user:***@host/1?replicas=1", true},
      {"rediss://:se@cr:et@host:1", "rediss://:***@host:1", true},
      {"redis+sentinel://:secret@a:1,b:2/main", "redis+sentinel://:***@a:1,b:2/main", true},
      {"file:///srv/a:b@c", "file:///srv/a:b@c", false},
      {"nonsense", "nonsense", false},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char *redacted = store_url_redacted(cases[i].url);
    assert_string_equal(redacted, cases[i].redacted);
    assert_int_equal(store_url_has_password(cases[i].url), cases[i].has_password);
    free(redacted);
  }
}

/* The rests of a writer that died, and nothing else. */
static void a_sweep_removes_files_that_never_got_their_name(void **state) {
  char *left = mem_printf("%s/tmp/abc123", url + strlen("file://"));
  struct err err = ERR_NONE;
  FILE *file = fopen(left, "w");
  (void)state;
  assert_non_null(file);
  fclose(file);
  assert_int_equal(store_sweep(store, 60, &err), 0);
  assert_int_equal(access(left, F_OK), 0);
  assert_int_equal(store_sweep(store, 0, &err), 0);
  assert_int_equal(access(left, F_OK), -1);
  free(left);
}

static void an_unknown_scheme_names_the_known_ones(void **state) {
  struct err err = ERR_NONE;
  struct store *none;
  (void)state;
  assert_int_equal(store_open("ftp://somewhere", &none, &err), ERR_INVALID);
  assert_non_null(strstr(err.text, "file://"));
  assert_int_equal(store_open("file://relative/dir", &none, &err), ERR_INVALID);
  assert_int_equal(store_open("", &none, &err), ERR_INVALID);
}

static void a_directory_that_cannot_be_made_is_named_with_its_reason(void **state) {
  struct err err = ERR_NONE;
  struct store *none;
  (void)state;
  assert_int_equal(store_open("file:///dev/null/store", &none, &err), ERR_IO);
  assert_non_null(strstr(err.text, "/dev/null"));
  assert_non_null(strstr(err.text, "Not a directory"));
}

static void a_directory_that_is_not_writable_is_refused(void **state) {
  struct err err = ERR_NONE;
  struct store *none;
  char *dir = strdup(url + strlen("file://"));
  (void)state;
  if (geteuid() == 0) {
    print_message("skipped: root may write anywhere\n");
    free(dir);
    skip();
  }
  assert_int_equal(chmod(dir, 0555), 0);
  assert_int_equal(store_open(url, &none, &err), ERR_IO);
  assert_int_equal(chmod(dir, 0755), 0);
  assert_non_null(strstr(err.text, dir));
  free(dir);
}

static char *file_make_place(void) {
  char dir[] = "/tmp/weir-store-XXXXXX";
  assert_non_null(mkdtemp(dir));
  return mem_printf("file://%s", dir);
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *at) {
  (void)status, (void)kind, (void)at;
  return remove(path);
}

static void file_remove_place(const char *place) {
  nftw(place + strlen("file://"), remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static char *file_block_path(const char *place, const char *sha256) {
  return mem_printf("%s/blocks/%.2s/%s", place + strlen("file://"), sha256, sha256 + 2);
}

static void file_damage(const char *place, const char *sha256, bool cut) {
  char *path = file_block_path(place, sha256);
  int fd = open(path, O_WRONLY);
  assert_true(fd >= 0);
  if (cut)
    assert_int_equal(ftruncate(fd, 5), 0);
  else
    assert_int_equal(pwrite(fd, "X", 1, 3), 1);
  close(fd);
  free(path);
}

static long file_version(const char *place, const char *sha256) {
  char *path = file_block_path(place, sha256);
  struct stat status;
  assert_int_equal(stat(path, &status), 0);
  free(path);
  return (long)status.st_ino;
}

static const struct backend backends[] = {
    {"file", file_make_place, file_remove_place, file_damage, file_version},
};

int main(void) {
  int failed = 0;
  for (size_t i = 0; i < sizeof backends / sizeof *backends; i++) {
    void *row = (void *)&backends[i];
#define ON(test)                                                                                             \
  { #test, test, setup, teardown, row }
    const struct CMUnitTest tests[] = {
        ON(the_same_content_is_written_once),
        ON(a_corrupt_block_is_refused_by_key),
        ON(a_block_cut_short_is_refused),
        ON(a_password_in_a_url_is_seen_and_left_out),
        ON(a_sweep_removes_files_that_never_got_their_name),
        ON(an_unknown_scheme_names_the_known_ones),
        ON(a_directory_that_cannot_be_made_is_named_with_its_reason),
        ON(a_directory_that_is_not_writable_is_refused),
    };
#undef ON
    failed += cmocka_run_group_tests_name(backends[i].scheme, tests, NULL, NULL);
  }
  return failed;
}
