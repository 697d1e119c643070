/* Timelines of a run. */
#include "client/files/timeline.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "client/files/output_file.h"
#include "client/files/timeline_work.h"
#include "common/base/memory.h"

struct timeline {
  json_t *events;  /* an array */
  json_t *members; /* {"worker-1": its number, that of its process in the file} */
  json_t *applies; /* {"STEP/BLOCK": [an event]}; several where the run was rolled back */
  json_t *clocks;  /* {"worker-1": give or take so many microseconds} */
  struct timeline_counts counts;
};

struct timeline *timeline_new(void) {
  struct timeline *timeline = mem_new(sizeof *timeline);
  timeline->events = json_array();
  timeline->members = json_object();
  timeline->applies = json_object();
  timeline->clocks = json_object();
  return timeline;
}

void timeline_free(struct timeline *timeline) {
  if (!timeline)
    return;
  json_decref(timeline->events);
  json_decref(timeline->members);
  json_decref(timeline->applies);
  json_decref(timeline->clocks);
  free(timeline);
}

struct timeline_counts timeline_counts(const struct timeline *timeline) {
  return timeline->counts;
}

/* The number of the member's process; the first time it is named. */
static json_int_t member_number(struct timeline *timeline, const Weir__TraceChunk *chunk) {
  json_int_t number = json_integer_value(json_object_get(timeline->members, chunk->member));
  char *name;
  if (number > 0)
    return number;
  number = ++timeline->counts.members;
  json_object_set_new(timeline->members, chunk->member, json_integer(number));
  json_object_set_new(timeline->clocks, chunk->member, json_real((double)chunk->error_ns / 1000));
  name = mem_printf("%s (%s)", chunk->member, chunk->host);
  json_array_append_new(timeline->events, json_pack("{s:s, s:I, s:s, s:{s:s}}", "ph", "M", "pid", number,
                                                    "name", "process_name", "args", "name", name));
  free(name);
  return number;
}

static const char *text_of(const json_t *event, const char *key) {
  const char *text = json_string_value(json_object_get(event, key));
  return text ? text : "";
}

static json_int_t argument(const json_t *event, const char *key) {
  return json_integer_value(json_object_get(json_object_get(event, "args"), key));
}

/* Freed by the caller. */
static char *place_of(const json_t *event) {
  return mem_printf("%lld/%lld", (long long)argument(event, "step"), (long long)argument(event, "index"));
}

static void add_apply(struct timeline *timeline, json_t *event) {
  char *place = place_of(event);
  json_t *applies = json_object_get(timeline->applies, place);
  if (!applies)
    json_object_set_new(timeline->applies, place, applies = json_array());
  json_array_append(applies, event);
  free(place);
}

/* Takes the event. */
static void add_span(struct timeline *timeline, const Weir__TraceChunk *chunk, json_t *event) {
  double ts = json_number_value(json_object_get(event, "ts"));
  uint64_t step = (uint64_t)argument(event, "step");
  if (step < chunk->first || step >= chunk->end) {
    json_decref(event);
    return;
  }
  json_object_set_new(event, "ts", json_real(ts - (double)chunk->ahead_ns / 1000));
  timeline->counts.spans++;
  if (strcmp(text_of(event, "cat"), "apply") == 0)
    add_apply(timeline, event);
  json_array_append_new(timeline->events, event);
}

static int add_line(struct timeline *timeline, const Weir__TraceChunk *chunk, const char *line, size_t size) {
  json_error_t error;
  json_t *event = json_loadb(line, size, 0, &error);
  if (!json_is_object(event)) {
    json_decref(event);
    return ERR_CORRUPT;
  }
  json_object_set_new(event, "pid", json_integer(member_number(timeline, chunk)));
  if (strcmp(text_of(event, "ph"), "X") == 0)
    add_span(timeline, chunk, event);
  else
    json_array_append_new(timeline->events, event);
  return 0;
}

int timeline_add(struct timeline *timeline, const Weir__TraceChunk *chunk, struct err *err) {
  const char *at = (const char *)chunk->events.data, *end = at + chunk->events.len;
  timeline->counts.first = chunk->first;
  timeline->counts.end = chunk->end;
  while (at < end) {
    const char *line = memchr(at, '\n', (size_t)(end - at));
    size_t size = (size_t)((line ? line : end) - at);
    if (size > 0 && add_line(timeline, chunk, at, at[size - 1] == ',' ? size - 1 : size))
      return err_set(err, ERR_CORRUPT, "%s sent a line that is no event", chunk->member);
    at += size + 1;
  }
  return 0;
}

static double start_of(const json_t *span) {
  return json_number_value(json_object_get(span, "ts"));
}

/* One end of an arrow, which a viewer binds to the span that it lies in. */
static json_t *arrow(const char *kind, int number, const json_t *span, double at) {
  return json_pack("{s:s, s:s, s:s, s:i, s:O, s:O, s:f, s:s}", "ph", kind, "cat", "push", "name", "push",
                   "id", number, "pid", json_object_get(span, "pid"), "tid", json_object_get(span, "tid"),
                   "ts", at, "bp", "e");
}

/* The update that took the push: the first of its block and step that follows it. NULL: rows of an evaluation
 * update nothing, nor does a part that came when the block was complete without it. */
static const json_t *apply_of(const struct timeline *timeline, const json_t *push) {
  const json_t *taker = NULL;
  char *place = place_of(push);
  const json_t *applies = json_object_get(timeline->applies, place);
  free(place);
  for (size_t i = 0; i < json_array_size(applies); i++) {
    const json_t *apply = json_array_get(applies, i);
    if (start_of(apply) > start_of(push) && (!taker || start_of(apply) < start_of(taker)))
      taker = apply;
  }
  return taker;
}

/* From each push of a block's part to the update of that block and step. */
static void join_pushes(struct timeline *timeline) {
  size_t n = json_array_size(timeline->events);
  timeline->counts.joined = 0;
  for (size_t i = 0; i < n; i++) {
    const json_t *push = json_array_get(timeline->events, i), *apply;
    if (strcmp(text_of(push, "cat"), "push") != 0 || strncmp(text_of(push, "name"), "block ", 6) != 0)
      continue;
    apply = apply_of(timeline, push);
    if (!apply)
      continue;
    timeline->counts.joined++;
    json_array_append_new(timeline->events, arrow("s", timeline->counts.joined, push, start_of(push)));
    json_array_append_new(timeline->events, arrow("f", timeline->counts.joined, apply, start_of(apply)));
  }
}

struct timeline_work timeline_work(const struct timeline *timeline, int n) {
  struct timeline_work work = timeline_work_of(timeline->events, n + 1);
  const char *member;
  json_t *number;
  json_object_foreach(timeline->members, member, number) if (json_integer_value(number) == n + 1)
      work.member = member;
  return work;
}

int timeline_write(struct timeline *timeline, const char *path, struct err *err) {
  struct output_file file = {0};
  json_t *whole;
  char *text;
  join_pushes(timeline);
  whole = json_pack("{s:s, s:O, s:{s:I, s:I, s:O}}", "displayTimeUnit", "ms", "traceEvents", timeline->events,
                    "otherData", "first_step", (json_int_t)timeline->counts.first, "end_step",
                    (json_int_t)timeline->counts.end, "clock_error_us", timeline->clocks);
  text = json_dumps(whole, JSON_COMPACT | JSON_REAL_PRECISION(15));
  json_decref(whole);
  if (!text)
    err_set(err, ERR_NO_MEMORY, "no memory for the timeline");
  else if (output_file_open(&file, path, err) == 0 &&
           output_file_write(&file, 0, text, strlen(text), err) == 0)
    output_file_commit(&file, err);
  output_file_close(&file);
  free(text);
  return err->code;
}
