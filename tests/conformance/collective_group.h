/* Groups for the tests of collectives: members that are threads or processes, each of which runs one function
   and says what went wrong. */
#ifndef WEIR_TESTS_CONFORMANCE_COLLECTIVE_GROUP_H
#define WEIR_TESTS_CONFORMANCE_COLLECTIVE_GROUP_H

#include <pthread.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/err.h"
#include "harness.h"
#include "worker/backend/plugin.h"

enum { OPEN_MS = 120000 };
enum how { AS_THREADS, AS_PROCESSES };

static bool groups_are_fast;
static int size_max = COLLECTIVE_SIZE_MAX; /* of a group: a device can be in it once */
static int n_groups_run;                   /* by the present test */

struct member {
  const struct collective_def *def;
  int rank, size;
  bool is_fast;
  char name[COLLECTIVE_NAME_MAX + 1];
  struct collective *group;
  struct member *all;                         /* of the group, in memory that processes share, too */
  int stage;                                  /* atomic: how far the body has come */
  pid_t pid;                                  /* AS_PROCESSES */
  const char *(*body)(struct member *member); /* NULL, or what went wrong */
  char wrong[300];
  bool has_ended;
};

static const char *member_fail(struct member *m, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(m->wrong, sizeof m->wrong, format, args);
  va_end(args);
  return m->wrong;
}

static inline struct collective_options member_options(const struct member *m) {
  return (struct collective_options){.name = m->name,
                                     .rank = m->rank,
                                     .size = m->size,
                                     .device = m->rank,
                                     .is_fast = m->is_fast,
                                     .timeout_ms = OPEN_MS};
}

static inline void member_reach(struct member *m, int stage) {
  __atomic_store_n(&m->stage, stage, __ATOMIC_SEQ_CST);
}

/* False after OPEN_MS. */
static inline bool member_await(struct member *m, int stage) {
  for (int ms = 0; ms < OPEN_MS && __atomic_load_n(&m->stage, __ATOMIC_SEQ_CST) < stage; ms++)
    usleep(1000);
  return __atomic_load_n(&m->stage, __ATOMIC_SEQ_CST) >= stage;
}

static void *member_main(void *arg) {
  struct member *m = arg;
  struct collective_options options = member_options(m);
  struct err err = ERR_NONE;
  if (m->def->open(&options, &m->group, &err))
    member_fail(m, "open: %s", err.text);
  else {
    m->body(m);
    m->def->close(m->group);
  }
  m->has_ended = true;
  return NULL;
}

/* Where there are fewer, the test is skipped. */
static inline void group_needs_devices(int n) {
  if (n <= size_max)
    return;
  print_message("a group of %d needs as many devices\n", n);
  skip();
}

/* A name that no other test uses at the same time. */
static void group_name(char *name) {
  static int n;
  snprintf(name, COLLECTIVE_NAME_MAX + 1, "test-%d-%d", (int)getpid(), n++);
}

static inline void group_start_member(struct member *m, enum how how, pthread_t *thread) {
  pid_t pid;
  if (how == AS_THREADS) {
    CHECK(pthread_create(thread, NULL, member_main, m) == 0);
    return;
  }
  fflush(NULL);
  pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    member_main(m);
    _exit(0);
  }
  m->pid = pid;
}

static inline bool member_report(const struct member *m, enum how how) {
  if (m->has_ended && !m->wrong[0])
    return true;
  print_error("%s, member %d of %d %s: %s\n", m->def->name, m->rank, m->size,
              how == AS_THREADS ? "threads" : "processes", m->wrong[0] ? m->wrong : "died");
  return false;
}

/* What ends a member while the others run. */
struct death {
  void (*cause)(struct member *all); /* returns when the victim has ended */
  int victim;
};

/* True if all went well. death: NULL if every member lives. */
static inline bool group_run_members(struct member *all, enum how how, const struct death *death) {
  pthread_t threads[COLLECTIVE_SIZE_MAX];
  bool is_right = true;
  int size = all->size, victim = death ? death->victim : -1;
  for (int i = 0; i < size; i++)
    group_start_member(&all[i], how, &threads[i]);
  if (death)
    death->cause(all);
  for (int i = 0; i < size; i++) {
    if (how == AS_THREADS)
      pthread_join(threads[i], NULL);
    else if (i != victim)
      waitpid(all[i].pid, NULL, 0);
    if (i != victim)
      is_right = member_report(&all[i], how) && is_right;
  }
  return is_right;
}

/* Each member opens the group, runs body and closes. death: NULL if every member lives. All of it is in a
   process of its own: one whose threads have used CUDA cannot fork members that do. */
static inline void group_run_with(const struct collective_def *def, enum how how, int size,
                                  const char *(*body)(struct member *member), const struct death *death) {
  size_t bytes = (size_t)size * sizeof(struct member);
  struct member *all;
  char name[COLLECTIVE_NAME_MAX + 1];
  int status = 1;
  pid_t pid;
  if (n_groups_run > 0 && size > size_max)
    return;
  group_needs_devices(size);
  all = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(all != MAP_FAILED);
  n_groups_run++;
  group_name(name);
  for (int i = 0; i < size; i++) {
    all[i] = (struct member){
        .def = def, .rank = i, .size = size, .is_fast = groups_are_fast, .body = body, .all = all};
    strcpy(all[i].name, name);
  }
  fflush(NULL);
  pid = fork();
  if (pid == 0)
    _exit(group_run_members(all, how, death) ? 0 : 1);
  waitpid(pid, &status, 0);
  munmap(all, bytes);
  assert_int_equal(status, 0);
}

static inline void group_run_fast(const struct collective_def *def, enum how how, int size,
                                  const char *(*body)(struct member *member)) {
  groups_are_fast = true;
  group_run_with(def, how, size, body, NULL);
  groups_are_fast = false;
}

static inline void group_run(const struct collective_def *def, enum how how, int size,
                             const char *(*body)(struct member *member)) {
  group_run_with(def, how, size, body, NULL);
}

static inline int group_test_begin(void **state) {
  (void)state;
  n_groups_run = 0;
  return 0;
}

/* Its smallest group comes first: where there are not even devices for that, it is skipped. */
#define GROUP_TEST(test)                                                                                     \
  { #test, test, group_test_begin, NULL, NULL }

/* In a process of its own: one that has used CUDA cannot fork members that do. 0 with an error. */
static inline int devices_count(struct err *err) {
  struct err *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  int status = 0;
  pid_t pid;
  fflush(NULL);
  pid = fork();
  if (pid == 0) {
    const struct plugin *plugin = plugin_load(shared);
    int n = plugin ? plugin->devices(NULL, 0, shared) : 0;
    _exit(n > 0 ? n : 0);
  }
  waitpid(pid, &status, 0);
  *err = *shared;
  munmap(shared, sizeof *shared);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

static inline int group_tests_run_on(const struct collective_def *def, const struct CMUnitTest *tests,
                                     size_t n_tests) {
  struct CMUnitTest *own = calloc(n_tests, sizeof *own);
  int failed;
  for (size_t t = 0; t < n_tests; t++) {
    char *name = malloc(200);
    snprintf(name, 200, "%s: %s", def->name, tests[t].name);
    own[t] = tests[t];
    own[t].name = name;
    own[t].initial_state = (void *)def;
  }
  failed = _cmocka_run_group_tests("collective", own, n_tests, NULL, NULL);
  for (size_t t = 0; t < n_tests; t++)
    free((char *)own[t].name);
  free(own);
  return failed;
}

/* Runs the tests on every collective, or on the one that is named. */
static inline int group_tests_run(const char *only, const struct CMUnitTest *tests, size_t n_tests) {
  struct err err = ERR_NONE;
  int failed = 0, devices;
  for (int i = 0; collective_at(i); i++)
    if (!only || strcmp(only, collective_at(i)->name) == 0)
      failed += group_tests_run_on(collective_at(i), tests, n_tests);
  if (only && strcmp(only, "nccl") != 0)
    return failed;
  suite_name_plugin();
  devices = devices_count(&err);
  if (devices == 0) {
    printf("1..1\nok 1 - nccl # SKIP %s\n", err.text);
    return failed;
  }
  size_max = devices;
  return failed + group_tests_run_on(plugin_load(&err)->collective, tests, n_tests);
}

#endif
