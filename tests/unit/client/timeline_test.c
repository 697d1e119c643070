/* Timelines of a run: what members have captured, on one clock, with pushes joined to updates. Perfetto's own
   reader reads them in tests/integration/test_cluster_trace.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <jansson.h>

#include "client/files/timeline.h"

#define SPAN(cat, ts)                                                                                        \
  "{\"ph\":\"X\",\"tid\":1,\"cat\":\"" cat "\",\"name\":\"block 7\",\"ts\":" #ts                             \
  ",\"dur\":9,\"args\":{\"step\":4,\"index\":7}},\n"
#define OF_ROW(tid, cat, name, ts, dur)                                                                      \
  "{\"ph\":\"X\",\"tid\":" #tid ",\"cat\":\"" cat "\",\"name\":\"" name "\",\"ts\":" #ts ",\"dur\":" #dur    \
  ",\"args\":{\"step\":4,\"index\":0}},\n"
enum { AHEAD_US = 1000 }; /* the worker's clock before the coordinator's */

static void add(struct timeline *timeline, const char *member, int64_t ahead_us, const char *events) {
  Weir__TraceChunk chunk = WEIR__TRACE_CHUNK__INIT;
  struct err err = ERR_NONE;
  chunk.member = (char *)member;
  chunk.host = (char *)"here";
  chunk.ahead_ns = ahead_us * 1000;
  chunk.first = 4;
  chunk.end = 5;
  chunk.events.data = (uint8_t *)events;
  chunk.events.len = strlen(events);
  assert_int_equal(timeline_add(timeline, &chunk, &err), 0);
}

/* Writes the timeline of what a worker, whose clock is ahead, and a server have captured; the file's events.
 */
static json_t *events_of(const char *pushes, const char *applies) {
  struct timeline *timeline = timeline_new();
  char path[] = "/tmp/weir-timeline-XXXXXX";
  struct err err = ERR_NONE;
  json_t *whole, *events;
  int file = mkstemp(path);
  assert_true(file >= 0);
  add(timeline, "worker-1", AHEAD_US, pushes);
  add(timeline, "server-1", 0, applies);
  assert_int_equal(timeline_write(timeline, path, &err), 0);
  timeline_free(timeline);
  whole = json_load_file(path, 0, NULL);
  assert_non_null(whole);
  events = json_incref(json_object_get(whole, "traceEvents"));
  json_decref(whole);
  close(file);
  unlink(path);
  return events;
}

/* "FROM>TO ", in whole microseconds, for each arrow of the events, in order; freed by the caller. */
static char *arrows_of(const json_t *events) {
  char *text = NULL;
  size_t size, i;
  const json_t *event;
  FILE *file = open_memstream(&text, &size);
  json_array_foreach(events, i, event) {
    const char *kind = json_string_value(json_object_get(event, "ph"));
    if (strcmp(kind, "s") == 0 || strcmp(kind, "f") == 0)
      fprintf(file, "%.0f%c", json_number_value(json_object_get(event, "ts")), *kind == 's' ? '>' : ' ');
  }
  fclose(file);
  return text;
}

static void assert_arrows(const char *pushes, const char *applies, const char *wanted) {
  json_t *events = events_of(pushes, applies);
  char *arrows = arrows_of(events);
  assert_string_equal(arrows, wanted);
  free(arrows);
  json_decref(events);
}

static void all_parts_of_a_block_lead_to_its_update(void **state) {
  (void)state;
  assert_arrows(SPAN("push", 1010) SPAN("push", 1020), SPAN("apply", 50), "10>50 20>50 ");
}

static void a_part_that_comes_after_the_update_leads_to_none(void **state) {
  (void)state;
  assert_arrows(SPAN("push", 1010) SPAN("push", 1060), SPAN("apply", 50), "10>50 ");
}

static void a_part_after_a_roll_back_leads_to_the_second_update(void **state) {
  (void)state;
  assert_arrows(SPAN("push", 1010) SPAN("push", 1100), SPAN("apply", 50) SPAN("apply", 150),
                "10>50 100>150 ");
  assert_arrows(SPAN("push", 1010) SPAN("push", 1100), SPAN("apply", 150) SPAN("apply", 50),
                "10>50 100>150 ");
}

static void assert_work(const struct timeline_work *work, int executors, const double us[4]) {
  const double seconds[] = {work->seconds, work->computed, work->weights, work->data};
  assert_int_equal(work->executors, executors);
  for (int i = 0; i < 4; i++)
    assert_true(seconds[i] > us[i] / 1e6 - 1e-9 && seconds[i] < us[i] / 1e6 + 1e-9);
}

/* In the order in which spans end, as members write them. */
static void what_executors_did_is_told_by_worker(void **state) {
  static const char *const first = OF_ROW(1, "wait", "batch", 100, 5)
      OF_ROW(1, "wait", "conv1.weight", 110, 20) OF_ROW(1, "forward", "conv1", 130, 30)
          OF_ROW(1, "train", "microbatch", 100, 100) OF_ROW(1, "evaluation", "chunk", 250, 50)
              OF_ROW(2, "wait", "step before", 150, 40) OF_ROW(2, "extra", "microbatch", 100, 100)
                  OF_ROW(7, "data", "batch", 0, 500) OF_ROW(8, "pull", "block 1", 0, 500);
  static const char *const second = OF_ROW(1, "train", "microbatch", 110, 20)
      OF_ROW(1, "train", "microbatch", 130, 40) OF_ROW(1, "train", "replica", 100, 100);
  struct timeline *timeline = timeline_new();
  struct timeline_work work;
  (void)state;
  add(timeline, "worker-1", 0, first);
  add(timeline, "server-1", 0, OF_ROW(1, "apply", "block 7", 100, 50));
  add(timeline, "worker-2", 0, second);
  work = timeline_work(timeline, 0);
  assert_string_equal(work.member, "worker-1");
  assert_work(&work, 2, (const double[]){300, 185, 60, 5});
  work = timeline_work(timeline, 1);
  assert_work(&work, 0, (const double[4]){0});
  work = timeline_work(timeline, 2);
  assert_string_equal(work.member, "worker-2");
  assert_work(&work, 1, (const double[]){100, 100, 0, 0}); /* a task within a task counts once */
  timeline_free(timeline);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(all_parts_of_a_block_lead_to_its_update),
      cmocka_unit_test(a_part_that_comes_after_the_update_leads_to_none),
      cmocka_unit_test(a_part_after_a_roll_back_leads_to_the_second_update),
      cmocka_unit_test(what_executors_did_is_told_by_worker),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
