/* Which events of a run are new. */
#include "client/files/event_filter.h"

static bool mark_take(struct event_mark *mark, uint64_t incarnation, uint64_t step) {
  if (mark->is_set &&
      (incarnation < mark->incarnation || (incarnation == mark->incarnation && step <= mark->step)))
    return false;
  *mark = (struct event_mark){.is_set = true, .incarnation = incarnation, .step = step};
  return true;
}

bool event_filter_take(struct event_filter *filter, const Weir__RunEvent *event) {
  bool was_done = filter->is_done;
  switch (event->event_case) {
  case WEIR__RUN_EVENT__EVENT_STEP:
    return mark_take(&filter->step, event->step->incarnation, event->step->step);
  case WEIR__RUN_EVENT__EVENT_EVAL:
    return mark_take(&filter->eval, event->eval->incarnation, event->eval->step);
  case WEIR__RUN_EVENT__EVENT_DONE:
    filter->is_done = true;
    return !was_done;
  default:
    return true;
  }
}
