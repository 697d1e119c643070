/* Executors are the rows that have tasks. A task may lie within another one, a wait lies within a task. */
#include "client/files/timeline_work.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"

enum span_kind { SPAN_TASK, SPAN_WEIGHTS, SPAN_DATA, SPAN_OTHER };

struct span {
  json_int_t row;
  double begin, end;
  enum span_kind kind;
};

static bool is_text(const json_t *event, const char *key, const char *wanted) {
  const char *text = json_string_value(json_object_get(event, key));
  return text && strcmp(text, wanted) == 0;
}

static enum span_kind kind_of(const json_t *event) {
  if (is_text(event, "cat", "train") || is_text(event, "cat", "evaluation") || is_text(event, "cat", "extra"))
    return SPAN_TASK;
  if (is_text(event, "cat", "wait"))
    return is_text(event, "name", "batch") ? SPAN_DATA : SPAN_WEIGHTS;
  return SPAN_OTHER;
}

/* By rows and in time; what lies within another one comes behind it. */
static int compare_spans(const void *a, const void *b) {
  const struct span *x = a, *y = b;
  if (x->row != y->row)
    return x->row < y->row ? -1 : 1;
  if (x->begin != y->begin)
    return x->begin < y->begin ? -1 : 1;
  return x->end > y->end ? -1 : x->end < y->end;
}

/* Freed by the caller. */
static struct span *collect(const json_t *events, json_int_t process, size_t *n) {
  struct span *spans = mem_new((json_array_size(events) + 1) * sizeof *spans);
  *n = 0;
  for (size_t i = 0; i < json_array_size(events); i++) {
    const json_t *event = json_array_get(events, i);
    double begin = json_number_value(json_object_get(event, "ts"));
    enum span_kind kind = kind_of(event);
    if (kind == SPAN_OTHER || !is_text(event, "ph", "X") ||
        json_integer_value(json_object_get(event, "pid")) != process)
      continue;
    spans[(*n)++] = (struct span){json_integer_value(json_object_get(event, "tid")), begin,
                                  begin + json_number_value(json_object_get(event, "dur")), kind};
  }
  qsort(spans, *n, sizeof *spans, compare_spans);
  return spans;
}

/* Seconds of one row; what is in no task is left out. Returns how many spans it has. */
static size_t add_row(struct timeline_work *work, const struct span *spans, size_t n) {
  double first = 0, covered = 0, seconds[SPAN_OTHER] = {0};
  bool has_task = false;
  size_t i;
  for (i = 0; i < n && spans[i].row == spans[0].row; i++) {
    bool is_within = has_task && spans[i].begin < covered;
    if (is_within != (spans[i].kind != SPAN_TASK))
      continue;
    seconds[spans[i].kind] += (spans[i].end - spans[i].begin) / 1e6;
    if (spans[i].kind != SPAN_TASK)
      continue;
    first = has_task ? first : spans[i].begin;
    covered = spans[i].end;
    has_task = true;
  }
  work->executors += has_task;
  work->seconds += (covered - first) / 1e6;
  work->computed += seconds[SPAN_TASK] - seconds[SPAN_WEIGHTS] - seconds[SPAN_DATA];
  work->weights += seconds[SPAN_WEIGHTS];
  work->data += seconds[SPAN_DATA];
  return i;
}

struct timeline_work timeline_work_of(const json_t *events, json_int_t process) {
  struct timeline_work work = {0};
  size_t n;
  struct span *spans = collect(events, process, &n);
  for (size_t i = 0; i < n;)
    i += add_row(&work, spans + i, n - i);
  free(spans);
  return work;
}
