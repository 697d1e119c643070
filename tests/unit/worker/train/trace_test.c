/* The file of a timeline, line by line, and rings that threads fill faster than they are emptied. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/agree/float_setting.h"
#include "common/base/clock.h"
#include "common/base/memory.h"
#include "common/trace/capture.h"
#include "common/trace/trace_file.h"

enum { THREADS = 4, SPANS = 10000 };

static char path[] = "/tmp/weir-trace-XXXXXX";

static struct trace_file *open_file(void) {
  struct err err = ERR_NONE;
  struct trace_file *file;
  unlink(path);
  file = trace_file_open(path, &err);
  assert_non_null(file);
  return file;
}

/* How many lines of the file hold the text. */
static int lines_with(const char *text) {
  char line[1024];
  int n = 0;
  FILE *file = fopen(path, "r");
  while (fgets(line, sizeof line, file))
    n += strstr(line, text) != NULL;
  fclose(file);
  return n;
}

static struct trace_record span_of(enum trace_row row, const char *name, uint64_t begin_ns, uint64_t end_ns) {
  struct trace_record span = {
      .row = row, .category = "test", .begin_ns = begin_ns, .end_ns = end_ns, .step = 7, .index = -1};
  snprintf(span.name, sizeof span.name, "%s", name);
  return span;
}

static void names_become_json_strings(void **state) {
  static const struct {
    const char *name, *json;
  } cases[] = {
      {"conv1", "\"conv1\""},
      {"say \"hi\" \\ /", "\"say \\u0022hi\\u0022 \\u005c /\""},
      {"a\nb\x7f\x01", "\"a\\u000ab\\u007f\\u0001\""},
      {"caf\xc3\xa9 \xf0\x9f\x98\x80", "\"caf\xc3\xa9 \xf0\x9f\x98\x80\""},
      {"\xff\xc3.\xc3", "\"?\?.?\""},
      {"\xed\xa0\x80", "\"???\""},                       /* half of a pair */
      {"\xe0\x80\xaf \xf4\x90\x80\x80", "\"??? ????\""}, /* longer than need be; too large */
  };
  struct trace_file *file = open_file();
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct trace_record span = span_of(TRACE_THREAD, cases[i].name, 1, 2);
    trace_file_span(file, 1, &span);
  }
  trace_file_close(file);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    if (lines_with(cases[i].json) != 1)
      fail_msg("%s is not there once", cases[i].json);
}

static void times_are_microseconds_and_an_index_is_shown_where_there_is_one(void **state) {
  struct trace_file *file = open_file();
  struct trace_record span = span_of(TRACE_THREAD, "s", 1234567, 1236068);
  (void)state;
  trace_file_span(file, 3, &span);
  span.index = 5;
  trace_file_span(file, 4, &span);
  span.end_ns = 1; /* before its begin */
  trace_file_span(file, 5, &span);
  trace_file_close(file);
  assert_int_equal(lines_with("\"tid\":3,\"cat\":\"test\",\"name\":\"s\",\"ts\":1234.567,\"dur\":1.501,"
                              "\"args\":{\"step\":7}}"),
                   1);
  assert_int_equal(lines_with("\"tid\":4,\"cat\":\"test\",\"name\":\"s\",\"ts\":1234.567,\"dur\":1.501,"
                              "\"args\":{\"step\":7,\"index\":5}}"),
                   1);
  assert_int_equal(lines_with("\"tid\":5,\"cat\":\"test\",\"name\":\"s\",\"ts\":1234.567,\"dur\":0.000,"), 1);
}

static void spans_that_overlap_on_a_shared_row_get_lanes(void **state) {
  static const uint64_t times[][2] = {{10, 20}, {15, 25}, {20, 30}, {5, 40}, {26, 50}, {31, 32}};
  static const int lanes[] = {0, 1, 0, 2, 1, 0};
  struct trace_file *file = open_file();
  char text[64];
  (void)state;
  for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
    struct trace_record span;
    snprintf(text, sizeof text, "span%d", (int)i);
    span = span_of(TRACE_SENDS, text, times[i][0], times[i][1]);
    trace_file_span(file, 1, &span);
  }
  trace_file_close(file);
  for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
    snprintf(text, sizeof text, "\"tid\":%d,\"cat\":\"test\",\"name\":\"span%d\"", 100000 + lanes[i], (int)i);
    assert_int_equal(lines_with(text), 1);
  }
  assert_int_equal(lines_with("thread_name"), 3);
}

/* A worker that died, and died again. */
static void files_of_before_are_kept(void **state) {
  struct err err = ERR_NONE;
  struct trace_file *file;
  char *kept[] = {mem_printf("%s.1", path), mem_printf("%s.2", path), mem_printf("%s.3", path)};
  (void)state;
  trace_file_close(open_file());
  for (int i = 0; i < 2; i++) {
    char name[] = {(char)('a' + i), '\0'};
    struct trace_record span = span_of(TRACE_THREAD, name, 1, 2);
    assert_non_null(file = trace_file_open(path, &err));
    trace_file_span(file, 1, &span);
    trace_file_close(file);
  }
  assert_int_equal(lines_with("\"b\""), 1);
  assert_int_equal(rename(kept[1], path), 0);
  assert_int_equal(lines_with("\"a\""), 1);
  assert_int_equal(unlink(kept[0]), 0);
  assert_int_equal(access(kept[2], F_OK), -1);
  assert_int_equal(truncate(path, 0), 0);
  assert_non_null(file = trace_file_open(path, &err)); /* what is empty is not worth it */
  trace_file_close(file);
  assert_int_equal(access(kept[0], F_OK), -1);
  for (int i = 0; i < 3; i++)
    free(kept[i]);
}

static void nothing_is_traced_before_it_is_asked_for(void **state) {
  (void)state;
  assert_false(trace_is_on());
  assert_int_equal(trace_now_ns(), 0);
  trace_thread("nobody", 1);
  trace_span(
      &(struct trace_span){.category = "test", .name = "nothing", .begin_ns = 1, .end_ns = 2, .index = -1});
  trace_close();
}

static pthread_barrier_t all_have_begun;

/* Of two threads of one name the second would go on where the first has ended. */
static void *spans_main(void *name) {
  trace_thread(name, 1);
  pthread_barrier_wait(&all_have_begun);
  for (int i = 0; i < SPANS; i++)
    trace_span(&(struct trace_span){.category = "test",
                                    .name = name,
                                    .begin_ns = (uint64_t)i + 1,
                                    .end_ns = (uint64_t)i + 2,
                                    .step = (uint64_t)i,
                                    .index = -1});
  return NULL;
}

static void threads_that_are_faster_than_the_writer_lose_nothing(void **state) {
  static const char *const names[THREADS] = {"one", "two", "three", "three"};
  pthread_t threads[THREADS];
  struct err err = ERR_NONE;
  (void)state;
  unlink(path);
  pthread_barrier_init(&all_have_begun, NULL, THREADS);
  assert_int_equal(trace_open(path, &err), 0);
  assert_true(trace_is_on());
  for (int again = 0; again < 2; again++) { /* threads go on where those of their name have ended */
    for (int i = 0; i < THREADS; i++)
      assert_int_equal(pthread_create(&threads[i], NULL, spans_main, (void *)names[i]), 0);
    for (int i = 0; i < THREADS; i++)
      pthread_join(threads[i], NULL);
  }
  trace_span(&(struct trace_span){
      .category = "test", .name = "not begun while tracing was on", .begin_ns = 0, .end_ns = 2, .index = -1});
  pthread_barrier_destroy(&all_have_begun);
  trace_close();
  trace_span(
      &(struct trace_span){.category = "test", .name = "too late", .begin_ns = 1, .end_ns = 2, .index = -1});
  assert_int_equal(lines_with("\"cat\":\"test\",\"name\":\"one\""), 2 * SPANS);
  assert_int_equal(lines_with("\"cat\":\"test\",\"name\":\"two\""), 2 * SPANS);
  assert_int_equal(lines_with("\"cat\":\"test\",\"name\":\"three\""), 4 * SPANS);
  assert_int_equal(lines_with("thread_name"), THREADS);
  assert_int_equal(lines_with("not begun") + lines_with("too late"), 0);
}

/* A run's executor, which computes something. */
static void *executor_main(void *run) {
  trace_thread("executor 0", *(int *)run);
  trace_span(
      &(struct trace_span){.category = "test", .name = "task", .begin_ns = 1, .end_ns = 2, .index = -1});
  return NULL;
}

/* In a process of its own, as below. */
static void trace_executors(int runs[3]) {
  struct err err = ERR_NONE;
  int code = trace_open(path, &err);
  pthread_t thread;
  for (int i = 0; i < 3; i++) {
    code |= pthread_create(&thread, NULL, executor_main, &runs[i]);
    pthread_join(thread, NULL);
  }
  trace_close();
  _exit(code);
}

static void threads_of_runs_beside_each_other_have_names_apart(void **state) {
  int runs[] = {trace_run_begin("a"), trace_run_begin("b"), 0};
  pid_t pid;
  (void)state;
  trace_run_end(runs[0]);
  runs[2] = trace_run_begin("c");
  assert_int_equal(runs[2], runs[0]);
  trace_run_end(runs[1]);
  trace_run_end(runs[2]);
  unlink(path);
  fflush(NULL);
  pid = fork();
  if (pid == 0)
    trace_executors(runs);
  assert_int_equal(waitpid(pid, NULL, 0), pid);
  assert_int_equal(lines_with("\"name\":\"executor 0\""), 1);
  assert_int_equal(lines_with("\"name\":\"executor 0 (run 2)\""), 1);
}

/* Each time in a process of its own, which opens one timeline. */
static void a_timeline_that_is_closed_at_once_has_what_came_before(void **state) {
  (void)state;
  for (int time = 0; time < 50; time++) {
    pid_t pid;
    unlink(path);
    fflush(NULL);
    pid = fork();
    if (pid == 0) {
      struct err err = ERR_NONE;
      int code = trace_open(path, &err);
      trace_span(
          &(struct trace_span){.category = "test", .name = "short", .begin_ns = 1, .end_ns = 2, .index = -1});
      trace_close();
      _exit(code);
    }
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(lines_with("\"name\":\"short\""), 1);
  }
}

static void note(const char *name, int run) {
  trace_span(&(struct trace_span){.category = "test",
                                  .name = name,
                                  .begin_ns = trace_now_ns(),
                                  .end_ns = trace_now_ns(),
                                  .index = -1,
                                  .run = run});
}

/* A thread of the run that began before the capture, and goes on behind it. */
static void *note_as_thread(void *run) {
  trace_thread("executor 0", *(int *)run);
  note("early", 0);
  trace_capture_begin("mine-abcdef");
  note("own", 0);
  note("of another", *(int *)run + 1);
  return NULL;
}

static void a_capture_has_what_is_done_for_one_run_from_then_on(void **state) {
  int run = trace_run_begin("mine-abcdef"), other = trace_run_begin("other-abcdef");
  pthread_t thread;
  size_t size;
  char *text;
  (void)state;
  assert_int_equal(other, run + 1);
  assert_null(trace_capture_end(&size));
  trace_thread("main", 0);
  for (int time = 0; time < 2; time++) { /* a second one has nothing of the first */
    assert_false(trace_is_on());
    assert_int_equal(pthread_create(&thread, NULL, note_as_thread, &run), 0);
    pthread_join(thread, NULL);
    note("sent", run);
    note("of none", 0);
    text = trace_capture_end(&size);
    assert_non_null(text);
    assert_int_equal(strlen(text), size);
    assert_memory_equal(text + size - 3, "}},\n" + 1, 3);
    assert_non_null(strstr(text, "\"thread_name\",\"args\":{\"name\":\"executor 0\"}"));
    assert_non_null(strstr(text, "\"name\":\"own\""));
    assert_non_null(strstr(text, "\"name\":\"sent\""));
    assert_null(strstr(strstr(text, "\"own\"") + 1, "\"own\""));
    assert_null(strstr(text, "early"));
    assert_null(strstr(text, "\"of "));
    free(text);
  }
  trace_run_become(run, "heir-abcdef");
  trace_capture_begin("heir-abcdef");
  trace_run_end(other);
  note("inherited", run);
  text = trace_capture_end(&size);
  assert_non_null(strstr(text, "inherited"));
  free(text);
  trace_run_end(run);
}

static struct { int spans, threads; } told;

static bool sink_is_on(void) {
  return true;
}

static void sink_thread(const char *name, int run) {
  told.threads += strcmp(name, "here") == 0 && run == 3;
}

static void sink_span(const struct trace_span *span) {
  told.spans += span->row == TRACE_UP && strcmp(span->category, "test") == 0 &&
                strcmp(span->name, "copy") == 0 && span->begin_ns == 1 && span->end_ns == 2 &&
                span->step == 3 && span->index == 4;
}

/* The last test: there is no way back. */
static void a_plugin_hands_on_what_it_is_told(void **state) {
  static const struct trace_sink sink = {sink_is_on, sink_thread, sink_span};
  uint64_t before_ns = clock_now_ns();
  (void)state;
  trace_redirect(&sink);
  assert_true(trace_is_on());
  assert_true(trace_now_ns() >= before_ns);
  trace_thread("here", 3);
  trace_span(&(struct trace_span){.row = TRACE_UP,
                                  .category = "test",
                                  .name = "copy",
                                  .begin_ns = 1,
                                  .end_ns = 2,
                                  .step = 3,
                                  .index = 4});
  assert_int_equal(told.threads, 1);
  assert_int_equal(told.spans, 1);
}

static int setup(void **state) {
  (void)state;
  return mkstemp(path) < 0;
}

static int teardown(void **state) {
  (void)state;
  return unlink(path);
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(names_become_json_strings),
      cmocka_unit_test(times_are_microseconds_and_an_index_is_shown_where_there_is_one),
      cmocka_unit_test(spans_that_overlap_on_a_shared_row_get_lanes),
      cmocka_unit_test(files_of_before_are_kept),
      cmocka_unit_test(nothing_is_traced_before_it_is_asked_for),
      cmocka_unit_test(a_capture_has_what_is_done_for_one_run_from_then_on),
      cmocka_unit_test(threads_of_runs_beside_each_other_have_names_apart),
      cmocka_unit_test(a_timeline_that_is_closed_at_once_has_what_came_before),
      cmocka_unit_test(threads_that_are_faster_than_the_writer_lose_nothing),
      cmocka_unit_test(a_plugin_hands_on_what_it_is_told),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
