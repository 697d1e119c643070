/* How groups of every collective come and go: opened by all or by none, aborted, and left by members that
   close or die; whoever waits for another is let go. The collectives are those of collective_test. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "collective_group.h"
#include "common/agree/float_setting.h"

static void groups_that_cannot_be_are_invalid(void **state) {
  const struct collective_def *def = *state;
  const struct collective_options wrong[] = {
      {.name = "", .size = 1},
      {.name = "../../etc", .size = 1},
      {.name = "a b", .size = 1},
      {.name = "a", .size = 0},
      {.name = "a", .size = 65},
      {.name = "a", .size = 2, .rank = 2},
      {.name = "a", .size = 2, .rank = -1},
  };
  struct collective *group;
  struct err err;
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    assert_int_equal(def->open(&wrong[i], &group, &err), ERR_INVALID);
}

/* Opens as a member that is short of time; stage 1: opened, 2: not. */
static void *open_shortly(void *arg) {
  struct member *m = arg;
  struct collective_options options = member_options(m);
  struct err err = ERR_NONE;
  options.timeout_ms = m->stage;
  m->stage = m->def->open(&options, &m->group, &err) ? 2 : 1;
  if (m->stage == 2 && err.code != ERR_UNAVAILABLE)
    member_fail(m, "%s", err.text);
  return NULL;
}

/* members of them come, each with a time limit of its own; returns how many have opened the group. */
static int opened_of(const struct collective_def *def, int size, int members, const int *timeouts_ms) {
  struct member all[COLLECTIVE_SIZE_MAX];
  pthread_t threads[COLLECTIVE_SIZE_MAX];
  char name[COLLECTIVE_NAME_MAX + 1];
  int opened = 0;
  group_name(name);
  for (int i = 0; i < members; i++) {
    all[i] = (struct member){.def = def, .rank = i, .size = size, .stage = timeouts_ms[i]};
    strcpy(all[i].name, name);
    pthread_create(&threads[i], NULL, open_shortly, &all[i]);
  }
  for (int i = 0; i < members; i++) {
    pthread_join(threads[i], NULL);
    assert_string_equal(all[i].wrong, "");
    opened += all[i].stage == 1;
  }
  for (int i = 0; i < members; i++)
    if (all[i].stage == 1)
      def->close(all[i].group);
  return opened;
}

static void a_group_that_not_all_open_is_opened_by_none(void **state) {
  group_needs_devices(2);
  assert_int_equal(opened_of(*state, 3, 2, (const int[]){150, 200}), 0);
  assert_int_equal(opened_of(*state, 2, 1, (const int[]){100}), 0);
}

static void members_short_of_time_open_it_all_or_none(void **state) {
  int n_opened = 0;
  group_needs_devices(3);
  for (int i = 0; i < 60; i++) {
    int opened = opened_of(*state, 3, 3, (const int[]){i % 7 * 4, i % 5 * 4, (i % 3 + i / 6) * 4});
    assert_true(opened == 0 || opened == 3);
    n_opened += opened == 3;
  }
  print_message("%d of 60 were opened\n", n_opened);
}

static void *open_and_abort(void *arg) {
  struct member *m = arg;
  struct collective_options options = member_options(m);
  struct err err = ERR_NONE;
  if (m->def->open(&options, &m->group, &err))
    member_fail(m, "%s", err.text);
  else
    m->def->abort(m->group);
  return NULL;
}

/* Some are told that it is open when it is aborted already. */
static void a_group_that_one_has_opened_is_opened_by_all(void **state) {
  enum { MEMBERS = 4, TIMES = 50 };
  struct member all[MEMBERS];
  pthread_t threads[MEMBERS];
  char name[COLLECTIVE_NAME_MAX + 1];
  group_needs_devices(MEMBERS);
  for (int time = 0; time < TIMES; time++) {
    group_name(name);
    for (int i = 0; i < MEMBERS; i++) {
      all[i] = (struct member){.def = *state, .rank = i, .size = MEMBERS};
      strcpy(all[i].name, name);
      pthread_create(&threads[i], NULL, open_and_abort, &all[i]);
    }
    for (int i = 0; i < MEMBERS; i++)
      pthread_join(threads[i], NULL);
    for (int i = 0; i < MEMBERS; i++) {
      assert_string_equal(all[i].wrong, "");
      assert_true(all[i].def->is_aborted(all[i].group));
      all[i].def->close(all[i].group);
    }
  }
}

static bool is_asked(void *user) {
  return ++*(int *)user >= 3;
}

static void opening_can_be_cancelled(void **state) {
  const struct collective_def *def = *state;
  for (int rank = 0; rank < 2; rank++) {
    struct member m = {.rank = rank, .size = 2};
    struct collective_options options = member_options(&m);
    struct collective *group;
    struct err err;
    int asked = 0;
    group_name(m.name);
    options.is_cancelled = is_asked;
    options.user = &asked;
    assert_int_equal(def->open(&options, &group, &err), ERR_CANCELLED);
  }
}

/* Member 0 has come to where the members meet, and is then long in starting NCCL. */
struct slow_meeting {
  char name[COLLECTIVE_NAME_MAX + 1];
  bool is_formed, is_over; /* atomic */
  bool was_left_in_time;
};

static void *be_slow(void *arg) {
  struct slow_meeting *meeting = arg;
  struct collective_options options = {.name = meeting->name, .size = 2, .timeout_ms = OPEN_MS};
  struct err err = ERR_NONE;
  const struct collective_def *shm = collective_find("shm");
  struct collective *group = NULL;
  if (shm->open(&options, &group, &err))
    return NULL;
  __atomic_store_n(&meeting->is_formed, true, __ATOMIC_SEQ_CST);
  for (int ms = 0; ms < OPEN_MS && !meeting->was_left_in_time; ms++) {
    usleep(1000);
    meeting->was_left_in_time = __atomic_load_n(&meeting->is_over, __ATOMIC_SEQ_CST);
  }
  shm->close(group);
  return NULL;
}

static bool is_formed(void *user) {
  return __atomic_load_n(&((struct slow_meeting *)user)->is_formed, __ATOMIC_SEQ_CST);
}

static void opening_can_be_cancelled_while_another_member_is_slow(void **state) {
  const struct collective_def *def = *state;
  struct slow_meeting meeting = {.is_over = false};
  struct member m = {.rank = 1, .size = 2};
  struct collective_options options = member_options(&m);
  struct collective *group = NULL;
  struct err err = ERR_NONE;
  pthread_t thread;
  if (strcmp(def->name, "nccl") != 0)
    skip(); /* it has no more to start */
  group_name(meeting.name);
  options.name = meeting.name;
  options.device = 0;
  options.timeout_ms = 2 * OPEN_MS;
  options.is_cancelled = is_formed;
  options.user = &meeting;
  assert_int_equal(pthread_create(&thread, NULL, be_slow, &meeting), 0);
  assert_int_equal(def->open(&options, &group, &err), ERR_CANCELLED);
  __atomic_store_n(&meeting.is_over, true, __ATOMIC_SEQ_CST);
  pthread_join(thread, NULL);
  assert_true(meeting.was_left_in_time);
}

static const char *must_be_cancelled(struct member *m, const char *what, int code, const struct err *err) {
  return code == ERR_CANCELLED ? NULL : member_fail(m, "%s: %d %s", what, code, code ? err->text : "");
}

/* An all-reduce in which not all take part, ended by an abort; so is what is started later. */
static const char *wait_for_abort(struct member *m) {
  float x[3] = {1, 2, 3};
  struct collective_call call = {.kind = COLLECTIVE_ALL_REDUCE, .in = x, .out = x, .elems = 3};
  struct collective_work *work;
  struct err err = ERR_NONE;
  const char *wrong;
  if (m->def->start(m->group, &call, &work, &err))
    return member_fail(m, "%s", err.text);
  if (m->def->is_done(work))
    return member_fail(m, "done before all have come");
  member_reach(m, 1);
  wrong = must_be_cancelled(m, "wait", m->def->wait(work, &err), &err);
  return wrong ? wrong : must_be_cancelled(m, "start", m->def->start(m->group, &call, &work, &err), &err);
}

/* Until the members before this one wait for an abort. */
static const char *await_others(struct member *m) {
  for (int i = 0; i < m->rank; i++)
    if (!member_await(&m->all[i], 1))
      return member_fail(m, "member %d does not come", i);
  return NULL;
}

static const char *last_aborts(struct member *m) {
  const char *wrong;
  if (m->rank < m->size - 1)
    return wait_for_abort(m);
  if ((wrong = await_others(m)))
    return wrong;
  m->def->abort(m->group);
  m->def->abort(m->group);
  return NULL;
}

static void an_abort_ends_the_waits_of_all(void **state) {
  group_run(*state, AS_THREADS, 3, last_aborts);
  group_run(*state, AS_PROCESSES, 3, last_aborts);
}

static void *abort_when_waiting(void *arg) {
  struct member *m = arg;
  if (member_await(m, 1))
    m->def->abort(m->group);
  return NULL;
}

static const char *other_thread_aborts(struct member *m) {
  const char *wrong = NULL;
  pthread_t thread;
  if (m->rank == 0) {
    pthread_create(&thread, NULL, abort_when_waiting, m);
    wrong = wait_for_abort(m);
    pthread_join(thread, NULL);
    member_reach(m, 2);
  }
  return member_await(&m->all[0], 2) ? wrong : member_fail(m, "member 0 hangs");
}

static void another_thread_may_abort(void **state) {
  group_run(*state, AS_THREADS, 2, other_thread_aborts);
}

/* A GPU gives memory back when it has done all that it was told. */
static int use_device(int device, struct err *err) {
  const struct plugin *plugin = plugin_load(err);
  const struct device_memory *memory = plugin ? plugin->backend->memory : NULL;
  void *bytes;
  if (!memory || memory->new (device, 1000, &bytes, err))
    return err->code;
  memory->free(device, bytes);
  return ERR_OK;
}

/* Member 0 comes when the other has used its device beside the operation. */
static const char *comes_late(struct member *m) {
  float x[4] = {1, 2, 3, 4};
  bool is_late = m->rank == 0;
  struct collective_call call = {.kind = is_late ? COLLECTIVE_SEND : COLLECTIVE_RECEIVE,
                                 .root = !m->rank,
                                 .in = is_late ? x : NULL,
                                 .out = is_late ? NULL : x,
                                 .elems = 4};
  struct collective_work *work;
  struct err err = ERR_NONE;
  if (is_late && !member_await(&m->all[1], 1))
    member_fail(m, "the other's device waits for this member");
  if (m->def->start(m->group, &call, &work, &err))
    return member_fail(m, "start: %s", err.text);
  for (int look = 0; !is_late && look < 50; look++) {
    if (m->def->is_done(work))
      member_fail(m, "it has what nobody sent");
    usleep(1000);
  }
  if (!is_late && strcmp(m->def->name, "nccl") == 0 && use_device(m->rank, &err))
    member_fail(m, "%s", err.text);
  member_reach(m, 1);
  if (m->def->wait(work, &err))
    return member_fail(m, "wait: %s", err.text);
  return m->wrong;
}

static void who_waits_for_another_member_leaves_its_device_to_others(void **state) {
  group_run(*state, AS_THREADS, 2, comes_late);
}

static const char *last_leaves(struct member *m) {
  if (m->rank < m->size - 1)
    return wait_for_abort(m);
  return await_others(m);
}

static void who_waits_for_a_member_that_has_closed_is_cancelled(void **state) {
  group_run(*state, AS_PROCESSES, 2, last_leaves);
  group_run(*state, AS_THREADS, 3, last_leaves);
}

/* Large operations without end; member 0 aborts when it learns (stage -1 of the dead one) of a death. */
static const char *until_death(struct member *m) {
  enum { ELEMS = 600001 };
  float *x = calloc(ELEMS, sizeof *x);
  struct collective_call call = {.kind = COLLECTIVE_ALL_REDUCE, .in = x, .out = x, .elems = ELEMS};
  struct collective_work *work;
  struct err err = ERR_NONE;
  int code = 0;
  for (int n = 1; !code; n++) {
    code = m->def->start(m->group, &call, &work, &err);
    while (!code && m->rank == 0 && !m->def->is_done(work)) {
      if (__atomic_load_n(&m->all[1].has_ended, __ATOMIC_SEQ_CST))
        m->def->abort(m->group);
      usleep(100);
    }
    code = code ? code : m->def->wait(work, &err);
    member_reach(m, n);
  }
  free(x);
  return must_be_cancelled(m, "after a death", code, &err);
}

static void kill_member_1(struct member *all) {
  assert_true(member_await(&all[1], 3));
  assert_true(all[1].pid > 0);
  assert_int_equal(kill(all[1].pid, SIGKILL), 0);
  assert_int_equal(waitpid(all[1].pid, NULL, 0), all[1].pid);
  __atomic_store_n(&all[1].has_ended, true, __ATOMIC_SEQ_CST);
}

static void the_death_of_a_member_leaves_nobody_waiting_once_one_aborts(void **state) {
  const struct death death = {.cause = kill_member_1, .victim = 1};
  group_run_with(*state, AS_PROCESSES, 3, until_death, &death);
}

int main(int argc, char **argv) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      GROUP_TEST(an_abort_ends_the_waits_of_all),
      GROUP_TEST(another_thread_may_abort),
      GROUP_TEST(who_waits_for_another_member_leaves_its_device_to_others),
      GROUP_TEST(who_waits_for_a_member_that_has_closed_is_cancelled),
      GROUP_TEST(the_death_of_a_member_leaves_nobody_waiting_once_one_aborts),
      /* In this process, which forks no member any more. */
      GROUP_TEST(groups_that_cannot_be_are_invalid),
      GROUP_TEST(a_group_that_not_all_open_is_opened_by_none),
      GROUP_TEST(members_short_of_time_open_it_all_or_none),
      GROUP_TEST(a_group_that_one_has_opened_is_opened_by_all),
      GROUP_TEST(opening_can_be_cancelled),
      GROUP_TEST(opening_can_be_cancelled_while_another_member_is_slow),
  };
  return group_tests_run(argc > 1 ? argv[1] : NULL, tests, sizeof tests / sizeof *tests);
}
