/* The numbered events of one run. */
#include "server/coordinator/state/event_log.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"
#include "common/base/message.h"

static void event_fini(struct logged_event *event) {
  if (event->kind == WEIR__RUN_EVENT__EVENT_EVAL)
    message_free(event->eval);
  else if (event->kind == WEIR__RUN_EVENT__EVENT_DONE)
    message_free(event->done);
  else if (event->kind == WEIR__RUN_EVENT__EVENT_INFO)
    message_free(event->info);
}

void event_log_fini(struct event_log *log) {
  for (int i = 0; i < log->count; i++)
    event_fini(&log->items[i]);
  free(log->items);
  *log = (struct event_log){0};
}

static void event_append(struct event_log *log, const struct logged_event *event) {
  if (log->count == EVENT_LOG_MAX) {
    int dropped = EVENT_LOG_MAX / 2;
    for (int i = 0; i < dropped; i++)
      event_fini(&log->items[i]);
    log->count -= dropped;
    memmove(log->items, log->items + dropped, (size_t)log->count * sizeof *log->items);
  }
  array_reserve((void **)&log->items, &log->capacity, log->count, sizeof *log->items);
  log->items[log->count++] = *event;
}

void event_log_add(struct event_log *log, const struct logged_event *event) {
  struct logged_event numbered = *event;
  numbered.number = log->next++;
  event_append(log, &numbered);
}

void event_log_restore(struct event_log *log, const Weir__RunEvent *event) {
  struct logged_event item = {.number = event->number, .kind = event->event_case};
  if (event->number >= log->next || (log->count && event->number <= log->items[log->count - 1].number))
    return;
  if (event->event_case == WEIR__RUN_EVENT__EVENT_STEP) {
    item.step = *event->step;
    item.step.base.n_unknown_fields = 0; /* those of a later version belong to the message */
    item.step.base.unknown_fields = NULL;
  } else if (event->event_case == WEIR__RUN_EVENT__EVENT_EVAL)
    item.eval = message_copy(event->eval);
  else if (event->event_case == WEIR__RUN_EVENT__EVENT_DONE)
    item.done = message_copy(event->done);
  else if (event->event_case == WEIR__RUN_EVENT__EVENT_INFO)
    item.info = message_copy(event->info);
  else
    return;
  event_append(log, &item);
}

bool event_log_view(const struct event_log *log, uint64_t number, struct run_event_view *view) {
  const struct logged_event *item;
  int low = 0, high = log->count;
  while (low < high) {
    int middle = low + (high - low) / 2;
    if (log->items[middle].number < number)
      low = middle + 1;
    else
      high = middle;
  }
  if (low == log->count)
    return false;
  item = &log->items[low];
  view->event = (Weir__RunEvent)WEIR__RUN_EVENT__INIT;
  view->event.number = item->number;
  view->event.event_case = item->kind;
  if (item->kind == WEIR__RUN_EVENT__EVENT_STEP) {
    view->step = item->step;
    view->event.step = &view->step;
  } else if (item->kind == WEIR__RUN_EVENT__EVENT_EVAL)
    view->event.eval = item->eval;
  else if (item->kind == WEIR__RUN_EVENT__EVENT_DONE)
    view->event.done = item->done;
  else
    view->event.info = item->info;
  return true;
}

const struct logged_event *event_log_newest(const struct event_log *log, Weir__RunEvent__EventCase kind,
                                            uint64_t max_step) {
  for (int i = log->count - 1; i >= 0; i--) {
    const struct logged_event *item = &log->items[i];
    if (item->kind != kind)
      continue;
    if ((kind == WEIR__RUN_EVENT__EVENT_STEP ? item->step.step : item->eval->step) <= max_step)
      return item;
  }
  return NULL;
}
