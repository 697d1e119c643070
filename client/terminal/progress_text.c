/* How the progress of a run looks. */
#include "client/terminal/progress_text.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "client/terminal/output.h"
#include "model/metrics/metric.h"

/* Half of what the speed tells is younger than about this. */
#define RECENT_SECONDS 5.0
enum { BAR_MIN = 8, BAR_MAX = 60 };

static void view_step(struct progress_view *view, const Weir__StepEvent *step);
static void view_info(struct progress_view *view, const Weir__RunInfo *info);
static void bar_unicode(double fraction, int cells, char *bar);
static void bar_ascii(double fraction, int cells, char *bar);
static void line_running(const struct progress_view *view, const struct live_style *style, char *line);
static void line_waiting(const struct progress_view *view, const struct live_style *style, char *line);
static void line_numbers(const struct progress_view *view, const struct live_style *style, char *line);
static void epoch_text(const struct progress_view *view, char text[OUTPUT_TEXT_MAX]);
static bool add_if_fits(char *line, int width, const char *format, ...) __attribute__((format(printf, 3, 4)));

void progress_view_init(struct progress_view *view, const Weir__RunInfo *info) {
  *view = (struct progress_view){.state = WEIR__RUN_STATE__QUEUED,
                                 .steps = info->steps,
                                 .epochs = info->epochs,
                                 .loss = NAN,
                                 .accuracy = NAN};
  snprintf(view->run, sizeof view->run, "%s", info->run);
}

void progress_view_update(struct progress_view *view, const Weir__RunEvent *event) {
  if (event->event_case == WEIR__RUN_EVENT__EVENT_STEP)
    view_step(view, event->step);
  else if (event->event_case == WEIR__RUN_EVENT__EVENT_EVAL)
    view->accuracy = event->eval->accuracy;
  else if (event->event_case == WEIR__RUN_EVENT__EVENT_INFO)
    view_info(view, event->info);
  else if (event->event_case == WEIR__RUN_EVENT__EVENT_DONE)
    view->step = event->done->steps;
}

static void view_step(struct progress_view *view, const Weir__StepEvent *step) {
  double keep = exp(-fmax(step->seconds, 0) / RECENT_SECONDS);
  view->state = WEIR__RUN_STATE__RUNNING;
  view->message[0] = '\0';
  view->step = step->step + 1;
  view->epoch = step->epoch;
  view->loss = step->loss;
  view->workers = step->workers;
  view->trained_seconds += fmax(step->seconds, 0);
  view->recent_steps = view->recent_steps * keep + fmax((double)step->steps, 1);
  view->recent_samples = view->recent_samples * keep + (double)step->samples;
  view->recent_seconds = view->recent_seconds * keep + fmax(step->seconds, 0);
}

static void view_info(struct progress_view *view, const Weir__RunInfo *info) {
  view->state = info->state;
  view->workers = info->workers;
  view->epochs = info->epochs;
  if (info->state == WEIR__RUN_STATE__HELD)
    view->step = info->step;
  if (info->steps > 0)
    view->steps = info->steps;
  snprintf(view->message, sizeof view->message, "%s", info->message);
  output_clean(view->message);
}

double progress_samples_per_second(const struct progress_view *view) {
  return view->recent_seconds > 0 ? view->recent_samples / view->recent_seconds : NAN;
}

double progress_seconds_left(const struct progress_view *view) {
  if (view->steps == 0 || view->recent_steps <= 0 || view->recent_seconds <= 0)
    return NAN;
  return (double)(view->steps - (view->step < view->steps ? view->step : view->steps)) *
         view->recent_seconds / view->recent_steps;
}

void progress_bar(double fraction, int width, const struct live_style *style, char bar[PROGRESS_BAR_MAX]) {
  int cells = (width < 3 ? 3 : width > 200 ? 200 : width) - 2;
  fraction = fraction > 0 ? fmin(fraction, 1) : 0;
  if (style->is_unicode)
    bar_unicode(fraction, cells, bar);
  else
    bar_ascii(fraction, cells, bar);
}

/* Whole blocks, then one of eighths. */
static void bar_unicode(double fraction, int cells, char *bar) {
  static const char *const eighths[] = {" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"};
  int filled = (int)(fraction * cells * 8 + 1e-9);
  char *end = stpcpy(bar, "▕");
  for (int cell = 0; cell < cells; cell++) {
    int part = filled - cell * 8;
    end = stpcpy(end, eighths[part <= 0 ? 0 : part >= 8 ? 8 : part]);
  }
  strcpy(end, "▏");
}

static void bar_ascii(double fraction, int cells, char *bar) {
  int filled = (int)(fraction * cells + 1e-9);
  bar[0] = '[';
  for (int cell = 0; cell < cells; cell++)
    bar[1 + cell] = cell < filled ? '=' : cell == filled && filled > 0 ? '>' : ' ';
  strcpy(bar + 1 + cells, "]");
}

void progress_live_lines(const struct progress_view *view, const struct live_style *style,
                         char first[PROGRESS_LINE_MAX], char second[PROGRESS_LINE_MAX]) {
  if (view->step == 0)
    line_waiting(view, style, first);
  else
    line_running(view, style, first);
  line_numbers(view, style, second);
}

/* The name, the bar over what is left between, and as much of the tail as fits. */
static void line_running(const struct progress_view *view, const struct live_style *style, char *line) {
  char percent[16], steps[64], whole[128], epoch[OUTPUT_TEXT_MAX], bar[PROGRESS_BAR_MAX];
  const char *tails[] = {whole, steps, percent};
  double fraction = view->steps > 0 ? (double)view->step / (double)view->steps : 0;
  int columns = style->width - 1, name = (int)strlen(view->run) + 2, t = 0, width;
  epoch_text(view, epoch);
  snprintf(percent, sizeof percent, " %3.0f %%", floor(fmin(fraction, 1) * 100));
  snprintf(steps, sizeof steps, "%s  %" PRIu64 "/%" PRIu64, percent, view->step, view->steps);
  snprintf(whole, sizeof whole, "%s  %s", steps, epoch);
  while (t < 2 && name + BAR_MIN + (int)strlen(tails[t]) > columns)
    t++;
  if (name + BAR_MIN + (int)strlen(tails[t]) > columns)
    name = 0;
  width = columns - name - (int)strlen(tails[t]);
  if (width < 3) {
    snprintf(line, PROGRESS_LINE_MAX, "%.*s", columns > 0 ? columns : 0, percent);
    return;
  }
  progress_bar(fraction, width > BAR_MAX ? BAR_MAX : width, style, bar);
  snprintf(line, PROGRESS_LINE_MAX, "%s%s%s%s%s%s", name ? view->run : "", name ? "  " : "",
           style->is_coloured ? "\033[32m" : "", bar, style->is_coloured ? "\033[0m" : "", tails[t]);
}

static void line_waiting(const struct progress_view *view, const struct live_style *style, char *line) {
  char state[OUTPUT_TEXT_MAX];
  line[0] = '\0';
  add_if_fits(line, style->width, "%s", view->run);
  add_if_fits(line, style->width, "%s%s", line[0] ? "  " : "", output_state(view->state, state));
  if (view->message[0])
    add_if_fits(line, style->width, ": %s", view->message);
}

static const char *standing_text(const struct progress_view *view, char text[OUTPUT_TEXT_MAX]) {
  return view->state == WEIR__RUN_STATE__HELD ? output_held(view->step, view->steps, text)
                                              : output_state(view->state, text);
}

static void line_numbers(const struct progress_view *view, const struct live_style *style, char *line) {
  const char *dot = style->is_unicode ? " · " : " | ";
  char text[OUTPUT_TEXT_MAX];
  bool is_held_up =
      view->state == WEIR__RUN_STATE__HELD || (view->message[0] && view->state != WEIR__RUN_STATE__RUNNING);
  double left = progress_seconds_left(view), rate = progress_samples_per_second(view);
  line[0] = '\0';
  if (view->step == 0) {
    add_if_fits(line, style->width, "  %s", output_duration(view->elapsed_seconds, text));
    return;
  }
  if (is_held_up && add_if_fits(line, style->width, "  %s%s%s", standing_text(view, text),
                                view->message[0] ? ": " : "", view->message))
    return;
  add_if_fits(line, style->width, "  loss %s", output_loss(view->loss, text));
  if (!isnan(view->accuracy))
    add_if_fits(line, style->width, "%saccuracy %s", dot, output_percent(view->accuracy, text));
  if (!isnan(left))
    add_if_fits(line, style->width, "%s%s left", dot, output_duration(left, text));
  if (!isnan(rate))
    add_if_fits(line, style->width, "%s%s samples/s", dot, output_count(rate, text));
  add_if_fits(line, style->width, "%s%u worker%s", dot, view->workers, view->workers == 1 ? "" : "s");
}

/* "epoch 2/5", counted from one for people; empty when the run counts steps. */
static void epoch_text(const struct progress_view *view, char text[OUTPUT_TEXT_MAX]) {
  text[0] = '\0';
  if (view->epochs > 0)
    snprintf(text, OUTPUT_TEXT_MAX, "epoch %" PRIu64 "/%.0f", view->epoch + 1, ceil(view->epochs));
}

static bool add_if_fits(char *line, int width, const char *format, ...) {
  char text[PROGRESS_LINE_MAX / 2];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  if (output_columns(line) + output_columns(text) >= width ||
      strlen(line) + strlen(text) >= PROGRESS_LINE_MAX)
    return false;
  strcat(line, text);
  return true;
}

void progress_state_line(const struct progress_view *view, char line[PROGRESS_LINE_MAX]) {
  char text[OUTPUT_TEXT_MAX];
  snprintf(line, PROGRESS_LINE_MAX, "%s: %s%s%s", view->run, standing_text(view, text),
           view->message[0] ? ": " : "", view->message);
}

void progress_plain_line(const struct progress_view *view, char line[PROGRESS_LINE_MAX]) {
  char loss[OUTPUT_TEXT_MAX], rate[OUTPUT_TEXT_MAX], left[OUTPUT_TEXT_MAX], epoch[OUTPUT_TEXT_MAX];
  epoch_text(view, epoch);
  snprintf(line, PROGRESS_LINE_MAX,
           "step %" PRIu64 "/%" PRIu64 "%s%s  loss %s  %s samples/s  %u worker%s  %s left", view->step,
           view->steps, epoch[0] ? "  " : "", epoch, output_loss(view->loss, loss),
           output_count(progress_samples_per_second(view), rate), view->workers,
           view->workers == 1 ? "" : "s", output_duration(progress_seconds_left(view), left));
}

void progress_eval_line(const struct progress_view *view, const Weir__EvalEvent *eval,
                        char line[PROGRESS_LINE_MAX]) {
  char text[OUTPUT_TEXT_MAX];
  size_t length;
  length = (size_t)snprintf(line, PROGRESS_LINE_MAX, "eval at step %" PRIu64 "  loss %s", eval->step,
                            output_loss(eval->loss, text));
  if (!isnan(eval->accuracy)) /* the loss has classes */
    length += (size_t)snprintf(line + length, PROGRESS_LINE_MAX - length, "  accuracy %s",
                               output_percent(eval->accuracy, text));
  for (size_t m = 0; m < eval->n_metrics && m < METRICS_NAMED_MAX; m++)
    if (output_metric(eval->metrics[m], text))
      length += (size_t)snprintf(line + length, PROGRESS_LINE_MAX - length, "  %s %s", eval->metrics[m]->name,
                                 text);
  snprintf(line + length, PROGRESS_LINE_MAX - length, "  after %s",
           output_duration(view->trained_seconds, text));
}
