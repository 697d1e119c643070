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

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(all_parts_of_a_block_lead_to_its_update),
      cmocka_unit_test(a_part_that_comes_after_the_update_leads_to_none),
      cmocka_unit_test(a_part_after_a_roll_back_leads_to_the_second_update),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
