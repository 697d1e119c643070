/* The progress of a run, shown while it goes on. */
#include "client/terminal/progress.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/terminal/live.h"
#include "client/terminal/progress_text.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/memory.h"

enum { REDRAW_MS = 100, PLAIN_INTERVAL_MS = 5000 };

struct progress {
  struct live live;
  uint64_t begun_ns, printed_ns; /* printed: the last plain line; 0: none */
  uint64_t first_step;           /* the run's version when the display began */

  pthread_t painter; /* live only */
  pthread_mutex_t lock;
  pthread_cond_t wake;
  bool is_stopping;
  struct progress_view view;
};

static void *painter_main(void *arg);
static void draw_locked(struct progress *progress);
static void print_locked(struct progress *progress, const char *line);
static void plain_locked(struct progress *progress, const struct progress_view *before,
                         const Weir__RunEvent *event);

struct progress *progress_start(FILE *file, const Weir__RunInfo *info) {
  struct progress *progress = mem_new(sizeof *progress);
  live_init(&progress->live, file);
  progress->begun_ns = clock_now_ns();
  progress->first_step = info->step;
  progress_view_init(&progress->view, info);
  pthread_mutex_init(&progress->lock, NULL);
  clock_condition_init(&progress->wake);
  if (progress->live.is_terminal)
    CHECK(pthread_create(&progress->painter, NULL, painter_main, progress) == 0);
  return progress;
}

void progress_event(struct progress *progress, const Weir__RunEvent *event) {
  char line[PROGRESS_LINE_MAX];
  struct progress_view before;
  pthread_mutex_lock(&progress->lock);
  before = progress->view;
  progress_view_update(&progress->view, event);
  if (event->event_case == WEIR__RUN_EVENT__EVENT_EVAL) {
    progress_eval_line(&progress->view, event->eval, line);
    print_locked(progress, line);
  } else if (!progress->live.is_terminal) {
    plain_locked(progress, &before, event);
  }
  pthread_mutex_unlock(&progress->lock);
}

void progress_note(struct progress *progress, const char *line) {
  pthread_mutex_lock(&progress->lock);
  print_locked(progress, line);
  pthread_mutex_unlock(&progress->lock);
}

void progress_stop(struct progress *progress) {
  if (!progress)
    return;
  if (progress->live.is_terminal) {
    pthread_mutex_lock(&progress->lock);
    progress->is_stopping = true;
    pthread_cond_signal(&progress->wake);
    pthread_mutex_unlock(&progress->lock);
    pthread_join(progress->painter, NULL);
    live_erase(&progress->live);
  }
  pthread_mutex_destroy(&progress->lock);
  pthread_cond_destroy(&progress->wake);
  free(progress);
}

/* The thread that redraws: also when nothing comes, so that time is seen to pass. */
static void *painter_main(void *arg) {
  struct progress *progress = arg;
  struct timespec until;
  pthread_mutex_lock(&progress->lock);
  while (!progress->is_stopping) {
    draw_locked(progress);
    until = clock_after_ms(REDRAW_MS);
    pthread_cond_timedwait(&progress->wake, &progress->lock, &until);
  }
  pthread_mutex_unlock(&progress->lock);
  return NULL;
}

static void draw_locked(struct progress *progress) {
  char lines[2 * PROGRESS_LINE_MAX], second[PROGRESS_LINE_MAX];
  live_measure(&progress->live);
  progress->view.elapsed_seconds = clock_seconds(clock_now_ns() - progress->begun_ns);
  progress_live_lines(&progress->view, &progress->live.style, lines, second);
  strcat(strcat(lines, "\n"), second);
  live_draw(&progress->live, lines);
}

/* A line that stays: above the live lines, which are drawn again at the next tick. */
static void print_locked(struct progress *progress, const char *line) {
  live_erase(&progress->live);
  fprintf(progress->live.file, "%s\n", line);
  fflush(progress->live.file);
}

static void plain_locked(struct progress *progress, const struct progress_view *before,
                         const Weir__RunEvent *event) {
  char line[PROGRESS_LINE_MAX];
  const struct progress_view *view = &progress->view;
  uint64_t now_ns = clock_now_ns();
  bool is_news = view->state != before->state || strcmp(view->message, before->message) != 0;
  if (event->event_case == WEIR__RUN_EVENT__EVENT_INFO && is_news) {
    progress_state_line(view, line);
    print_locked(progress, line);
  } else if (event->event_case == WEIR__RUN_EVENT__EVENT_STEP && view->step >= progress->first_step &&
             (progress->printed_ns == 0 ||
              now_ns - progress->printed_ns >= PLAIN_INTERVAL_MS * UINT64_C(1000000))) {
    progress->printed_ns = now_ns;
    progress_plain_line(view, line);
    print_locked(progress, line);
  }
}
