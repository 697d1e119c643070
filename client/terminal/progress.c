/* The progress of a run, shown while it goes on. */
#include "client/terminal/progress.h"

#include <langinfo.h>
#include <locale.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "client/terminal/output.h"
#include "client/terminal/progress_text.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/memory.h"

enum { REDRAW_MS = 100, PLAIN_INTERVAL_MS = 5000 };

struct progress {
  FILE *file;
  bool is_live;
  struct progress_style style;
  uint64_t begun_ns, printed_ns; /* printed: the last plain line; 0: none */
  uint64_t first_step;           /* the run's version when the display began */

  pthread_t painter; /* live only */
  pthread_mutex_t lock;
  pthread_cond_t wake;
  bool is_stopping, is_drawn; /* drawn: the two lines are on the screen, the cursor at the second's end */
  int drawn_columns[2];       /* of each */
  struct progress_view view;
};

static void *painter_main(void *arg);
static void draw_locked(struct progress *progress);
static void erase_locked(struct progress *progress);
static int terminal_width(const struct progress *progress);
static void print_locked(struct progress *progress, const char *line);
static void plain_locked(struct progress *progress, const struct progress_view *before,
                         const Weir__RunEvent *event);

struct progress *progress_start(FILE *file, const Weir__RunInfo *info) {
  struct progress *progress = mem_new(sizeof *progress);
  const char *term = getenv("TERM");
  progress->file = file;
  progress->begun_ns = clock_now_ns();
  progress->is_live = isatty(fileno(file)) && !(term && strcmp(term, "dumb") == 0);
  setlocale(LC_CTYPE, "");
  progress->style.is_unicode = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
  progress->style.is_coloured = progress->is_live && !getenv("NO_COLOR");
  progress->first_step = info->step;
  progress_view_init(&progress->view, info);
  pthread_mutex_init(&progress->lock, NULL);
  pthread_cond_init(&progress->wake, NULL);
  if (progress->is_live)
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
  } else if (!progress->is_live) {
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
  if (progress->is_live) {
    pthread_mutex_lock(&progress->lock);
    progress->is_stopping = true;
    pthread_cond_signal(&progress->wake);
    pthread_mutex_unlock(&progress->lock);
    pthread_join(progress->painter, NULL);
    erase_locked(progress);
    fflush(progress->file);
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
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += REDRAW_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    pthread_cond_timedwait(&progress->wake, &progress->lock, &until);
  }
  pthread_mutex_unlock(&progress->lock);
  return NULL;
}

static void draw_locked(struct progress *progress) {
  char first[PROGRESS_LINE_MAX], second[PROGRESS_LINE_MAX];
  progress->style.width = terminal_width(progress);
  progress->view.elapsed_seconds = clock_seconds(clock_now_ns() - progress->begun_ns);
  progress_live_lines(&progress->view, &progress->style, first, second);
  erase_locked(progress);
  fprintf(progress->file, "%s\n%s", first, second);
  fflush(progress->file);
  progress->drawn_columns[0] = progress_columns(first);
  progress->drawn_columns[1] = progress_columns(second);
  progress->is_drawn = true;
}

/* Back to where the first line begins. A terminal that was made narrower has wrapped the lines meanwhile. */
static void erase_locked(struct progress *progress) {
  int width = terminal_width(progress), up = 1;
  if (!progress->is_drawn)
    return;
  for (int i = 0; i < 2; i++)
    up += progress->drawn_columns[i] > width ? (progress->drawn_columns[i] - 1) / width : 0;
  fprintf(progress->file, "\r\033[%dA\033[J", up);
  progress->is_drawn = false;
}

static int terminal_width(const struct progress *progress) {
  struct winsize size = {0};
  if (ioctl(fileno(progress->file), TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    return size.ws_col;
  return 80;
}

/* A line that stays: above the live lines, which are drawn again at the next tick. */
static void print_locked(struct progress *progress, const char *line) {
  erase_locked(progress);
  fprintf(progress->file, "%s\n", line);
  fflush(progress->file);
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
