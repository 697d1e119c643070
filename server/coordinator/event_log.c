/* The numbered events of one run. */
#include "server/coordinator/event_log.h"

#include <stdlib.h>
#include <string.h>

#include "common/message.h"

static void event_fini(struct logged_event *event) {
  if (event->kind == WEIR__RUN_EVENT__EVENT_INFO)
    message_free(event->info);
}

void event_log_fini(struct event_log *log) {
  for (int i = 0; i < log->count; i++)
    event_fini(&log->items[i]);
  free(log->items);
  *log = (struct event_log){0};
}

void event_log_add(struct event_log *log, const struct logged_event *event) {
  if (log->count == EVENT_LOG_MAX) {
    int dropped = EVENT_LOG_MAX / 2;
    for (int i = 0; i < dropped; i++)
      event_fini(&log->items[i]);
    log->count -= dropped;
    log->first += (uint64_t)dropped;
    memmove(log->items, log->items + dropped, (size_t)log->count * sizeof *log->items);
  }
  array_reserve((void **)&log->items, &log->capacity, log->count, sizeof *log->items);
  log->items[log->count++] = *event;
}

bool event_log_view(const struct event_log *log, uint64_t number, struct run_event_view *view) {
  const struct logged_event *item;
  if (number < log->first)
    number = log->first;
  if (number - log->first >= (uint64_t)log->count)
    return false;
  item = &log->items[number - log->first];
  view->event = (Weir__RunEvent)WEIR__RUN_EVENT__INIT;
  view->event.number = number;
  view->event.event_case = item->kind;
  if (item->kind == WEIR__RUN_EVENT__EVENT_STEP) {
    view->body.step = item->step;
    view->event.step = &view->body.step;
  } else if (item->kind == WEIR__RUN_EVENT__EVENT_EVAL) {
    view->body.eval = item->eval;
    view->event.eval = &view->body.eval;
  } else if (item->kind == WEIR__RUN_EVENT__EVENT_DONE) {
    view->body.done = item->done;
    view->event.done = &view->body.done;
  } else
    view->event.info = item->info;
  return true;
}
