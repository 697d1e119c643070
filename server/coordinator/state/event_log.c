/* The numbered events of one run. */
#include "server/coordinator/state/event_log.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"
#include "common/base/message.h"

static void event_append(struct event_log *log, const struct logged_event *event);
static void steps_thin(struct event_log *log);
static void infos_drop(struct event_log *log, int max);
static void others_halve(struct event_log *log);
static void forget_covered(struct event_log *log, const Weir__StepEvent *by);

static void event_fini(struct logged_event *event) {
  if (event->kind == WEIR__RUN_EVENT__EVENT_EVAL)
    message_free(event->eval);
  else if (event->kind == WEIR__RUN_EVENT__EVENT_DONE)
    message_free(event->done);
  else if (event->kind == WEIR__RUN_EVENT__EVENT_INFO)
    message_free(event->info);
}

void event_log_fini(struct event_log *log) {
  for (int i = 0; i < log->others.count; i++)
    event_fini(&log->others.items[i]);
  free(log->others.items);
  free(log->steps.items);
  run_curves_fini(&log->curves);
  *log = (struct event_log){0};
}

void event_log_add(struct event_log *log, const struct logged_event *event) {
  struct logged_event numbered = *event;
  numbered.number = log->next++;
  event_append(log, &numbered);
}

void event_log_restore(struct event_log *log, const Weir__RunEvent *event) {
  struct logged_event item = {.number = event->number, .kind = event->event_case};
  const struct logged_event *last;
  if (event->event_case == WEIR__RUN_EVENT__EVENT_STEP && event->step->steps > 1)
    forget_covered(log, event->step);
  last = event_log_last(log);
  if (event->number >= log->next || (last && event->number <= last->number))
    return;
  if (event->event_case == WEIR__RUN_EVENT__EVENT_STEP) {
    item.step = *event->step;
    item.step.base.n_unknown_fields = 0; /* those of a later version belong to the message */
    item.step.base.unknown_fields = NULL;
    if (item.step.steps > item.step.step) /* from step 0 on, at most */
      item.step.steps = item.step.step + 1;
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

/* What is newer than the event was rolled back, and so is left out. */
static void curves_rebuild(struct event_log *log) {
  int max = log->steps.count;
  struct step_span *spans = mem_new(((size_t)max + 1) * sizeof *spans);
  const struct logged_event **evals = mem_new(((size_t)log->others.count + 1) * sizeof *evals);
  int n = event_log_spans(log, 0, spans, max), n_evals = 0;
  uint64_t upto = UINT64_MAX;
  run_curves_fini(&log->curves);
  for (int i = 0; i < n; i++) {
    Weir__StepEvent step = *spans[i].event;
    step.step = spans[i].last;
    step.steps = spans[i].last - spans[i].first + 1;
    run_curves_add_step(&log->curves, &step);
  }
  for (int i = log->others.count - 1; i >= 0; i--) {
    const struct logged_event *item = &log->others.items[i];
    if (item->kind != WEIR__RUN_EVENT__EVENT_EVAL || item->eval->step >= upto)
      continue;
    upto = item->eval->step;
    evals[n_evals++] = item;
  }
  while (n_evals-- > 0)
    run_curves_add_eval(&log->curves, evals[n_evals]->eval);
  free(evals);
  free(spans);
}

static void curves_append(struct event_log *log, const struct logged_event *event) {
  bool is_behind = true;
  if (event->kind == WEIR__RUN_EVENT__EVENT_STEP)
    is_behind = run_curves_add_step(&log->curves, &event->step);
  else if (event->kind == WEIR__RUN_EVENT__EVENT_EVAL)
    is_behind = run_curves_add_eval(&log->curves, event->eval);
  if (!is_behind)
    curves_rebuild(log);
}

static void event_append(struct event_log *log, const struct logged_event *event) {
  bool is_step = event->kind == WEIR__RUN_EVENT__EVENT_STEP;
  struct event_list *list = is_step ? &log->steps : &log->others;
  array_reserve((void **)&list->items, &list->capacity, list->count, sizeof *list->items);
  list->items[list->count++] = *event;
  log->infos += event->kind == WEIR__RUN_EVENT__EVENT_INFO;
  log->is_compact = false;
  curves_append(log, event);
  if (is_step && log->steps.count - log->thinned >= EVENT_LOG_EXACT + EVENT_LOG_SLACK)
    steps_thin(log);
  if (log->infos >= 2 * EVENT_LOG_INFOS)
    infos_drop(log, EVENT_LOG_INFOS);
  if (log->others.count >= EVENT_LOG_EVALS)
    others_halve(log);
}

static uint64_t steps_of(const Weir__StepEvent *step) {
  return step->steps > 1 ? step->steps : 1;
}

static double mean_loss(const Weir__StepEvent *a, const Weir__StepEvent *b) {
  double of_a = (double)steps_of(a), of_b = (double)steps_of(b);
  if (isnan(a->loss) || isnan(b->loss))
    return isnan(a->loss) ? b->loss : a->loss;
  return (a->loss * of_a + b->loss * of_b) / (of_a + of_b);
}

/* They are of one incarnation, follow each other, and lie between the same multiples of the stride: whenever
   it is done, the same steps come together. */
static bool step_join(struct logged_event *older, const struct logged_event *newer, uint64_t stride) {
  Weir__StepEvent *a = &older->step, joined = newer->step;
  const Weir__StepEvent *b = &newer->step;
  uint64_t first = a->step - (steps_of(a) - 1);
  if (a->incarnation != b->incarnation || a->step + 1 != b->step - (steps_of(b) - 1) ||
      first / stride != b->step / stride)
    return false;
  joined.steps = steps_of(a) + steps_of(b);
  joined.loss = mean_loss(a, b);
  joined.loss_min = fmin(a->steps > 1 ? a->loss_min : a->loss, b->steps > 1 ? b->loss_min : b->loss);
  joined.loss_max = fmax(a->steps > 1 ? a->loss_max : a->loss, b->steps > 1 ? b->loss_max : b->loss);
  joined.samples = a->samples + b->samples;
  joined.seconds = a->seconds + b->seconds;
  older->number = newer->number;
  *a = joined;
  return true;
}

/* How many of the first `count` are left. */
static int steps_join(struct logged_event *items, int count, uint64_t stride) {
  int kept = 0;
  for (int i = 0; i < count; i++)
    if (kept == 0 || !step_join(&items[kept - 1], &items[i], stride))
      items[kept++] = items[i];
  return kept;
}

/* The first `older` come together, by strides that are twice as long until there are at most `max`; of
   incarnations that are as many, the oldest are dropped. Returns how many are left, at the front. */
static int steps_squeeze(struct event_log *log, int older, int max) {
  struct logged_event *items = log->steps.items;
  int before, kept;
  if (log->stride == 0)
    log->stride = 1;
  kept = steps_join(items, older, log->stride);
  do {
    before = kept;
    if (kept > max)
      kept = steps_join(items, kept, log->stride *= 2);
  } while (kept < before && kept > max);
  if (kept <= max)
    return kept;
  memmove(items, items + kept - max, (size_t)max * sizeof *items);
  return max;
}

/* All but the newest. */
static void steps_thin(struct event_log *log) {
  struct event_list *steps = &log->steps;
  int older = steps->count - EVENT_LOG_EXACT, kept = steps_squeeze(log, older, EVENT_LOG_THINNED);
  memmove(steps->items + kept, steps->items + older, EVENT_LOG_EXACT * sizeof *steps->items);
  steps->count = kept + EVENT_LOG_EXACT;
  log->thinned = kept;
}

/* The oldest of a kind, until `surplus` are gone. */
static void others_drop(struct event_log *log, Weir__RunEvent__EventCase kind, int surplus) {
  struct event_list *others = &log->others;
  int kept = 0;
  for (int i = 0; i < others->count; i++) {
    if (surplus > 0 && others->items[i].kind == kind) {
      event_fini(&others->items[i]);
      surplus--;
    } else {
      others->items[kept++] = others->items[i];
    }
  }
  others->count = kept;
}

static void infos_drop(struct event_log *log, int max) {
  others_drop(log, WEIR__RUN_EVENT__EVENT_INFO, log->infos - max);
  log->infos = log->infos < max ? log->infos : max;
}

static void list_fit(struct event_list *list) {
  struct logged_event *items = mem_new(((size_t)list->count + 1) * sizeof *items);
  memcpy(items, list->items, (size_t)list->count * sizeof *items);
  free(list->items);
  list->items = items;
  list->capacity = list->count + 1;
}

void event_log_compact(struct event_log *log) {
  int evals = 0;
  if (log->is_compact || log->steps.count + log->others.count == 0)
    return;
  for (int i = 0; i < log->others.count; i++)
    evals += log->others.items[i].kind == WEIR__RUN_EVENT__EVENT_EVAL;
  log->steps.count = log->thinned = steps_squeeze(log, log->steps.count, EVENT_LOG_OLD_STEPS);
  infos_drop(log, EVENT_LOG_OLD_INFOS);
  others_drop(log, WEIR__RUN_EVENT__EVENT_EVAL, evals - EVENT_LOG_OLD_EVALS);
  list_fit(&log->steps);
  list_fit(&log->others);
  log->is_compact = true;
}

size_t event_log_bytes(const struct event_log *log) {
  enum { OTHER_BYTES = 1024 }; /* an evaluation's or an info's message: a few hundred bytes and more */
  return (size_t)(log->steps.capacity + log->others.capacity) * sizeof *log->steps.items +
         (size_t)log->others.count * OTHER_BYTES;
}

static void others_halve(struct event_log *log) {
  struct event_list *others = &log->others;
  int dropped = others->count / 2;
  for (int i = 0; i < dropped; i++) {
    log->infos -= others->items[i].kind == WEIR__RUN_EVENT__EVENT_INFO;
    event_fini(&others->items[i]);
  }
  others->count -= dropped;
  memmove(others->items, others->items + dropped, (size_t)others->count * sizeof *others->items);
}

/* The store may have both, where a coordinator died while it wrote the one in place of the others. */
static void forget_covered(struct event_log *log, const Weir__StepEvent *by) {
  struct event_list *steps = &log->steps;
  while (steps->count > 0) {
    const Weir__StepEvent *last = &steps->items[steps->count - 1].step;
    if (last->incarnation != by->incarnation || last->step > by->step || by->step - last->step >= by->steps)
      break;
    steps->count--;
  }
  if (log->thinned > steps->count)
    log->thinned = steps->count;
}

/* The first with that number or a higher one; NULL if there is none. */
static const struct logged_event *list_find(const struct event_list *list, uint64_t number) {
  int low = 0, high = list->count;
  while (low < high) {
    int middle = low + (high - low) / 2;
    if (list->items[middle].number < number)
      low = middle + 1;
    else
      high = middle;
  }
  return low < list->count ? &list->items[low] : NULL;
}

bool event_log_view(const struct event_log *log, uint64_t number, struct run_event_view *view) {
  const struct logged_event *step = list_find(&log->steps, number), *other = list_find(&log->others, number);
  const struct logged_event *item = !other || (step && step->number < other->number) ? step : other;
  if (!item)
    return false;
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

static const struct logged_event *list_last(const struct event_list *list) {
  return list->count ? &list->items[list->count - 1] : NULL;
}

const struct logged_event *event_log_last(const struct event_log *log) {
  const struct logged_event *step = list_last(&log->steps), *other = list_last(&log->others);
  return !other || (step && step->number > other->number) ? step : other;
}

const struct logged_event *event_log_newest(const struct event_log *log, Weir__RunEvent__EventCase kind,
                                            uint64_t max_step) {
  const struct event_list *list = kind == WEIR__RUN_EVENT__EVENT_STEP ? &log->steps : &log->others;
  for (int i = list->count - 1; i >= 0; i--) {
    const struct logged_event *item = &list->items[i];
    if (item->kind != kind)
      continue;
    if ((kind == WEIR__RUN_EVENT__EVENT_STEP ? item->step.step : item->eval->step) <= max_step)
      return item;
  }
  return NULL;
}

int event_log_spans(const struct event_log *log, uint64_t since, struct step_span *spans, int max) {
  uint64_t upto = UINT64_MAX;
  int n = 0;
  for (int i = log->steps.count - 1; i >= 0 && upto > since; i--) {
    const Weir__StepEvent *step = &log->steps.items[i].step;
    uint64_t first = step->step - (steps_of(step) - 1), last = step->step < upto ? step->step : upto - 1;
    if (first >= upto)
      continue; /* it was rolled back */
    if (last < since)
      break;
    if (n == max)
      return -1;
    spans[n++] = (struct step_span){step, first, last};
    upto = first;
  }
  for (int i = 0; i < n / 2; i++) {
    struct step_span newer = spans[i];
    spans[i] = spans[n - 1 - i];
    spans[n - 1 - i] = newer;
  }
  return n;
}
