/* A run's reports. */
#include "server/parameters/run/report_log.h"

#include <stdlib.h>

#include "common/base/err.h"
#include "common/base/memory.h"
#include "common/base/message.h"

/* RESUME_MAX: reports told under one hold of the lock, so that a shard that adds one waits for few. */
enum { CAPACITY_FIRST = 256, RESUME_MAX = 64 };

struct report {
  uint64_t step, samples;
  double loss, lr, seconds;
  Weir__EvalReport *eval; /* what an evaluation said, owned; NULL: a step, which has the rest */
};

static void report_log_append_locked(struct report_log *log, const struct report *report);
static int report_log_tell_next_locked(struct report_log *log);

void report_log_init(struct report_log *log, const char *run, uint64_t incarnation,
                     int (*tell)(void *user, uint64_t membership, const Weir__MemberMessage *message),
                     void *user) {
  *log = (struct report_log){.run = run, .incarnation = incarnation, .tell = tell, .user = user};
  pthread_mutex_init(&log->lock, NULL);
}

void report_log_fini(struct report_log *log) {
  while (log->begin < log->end)
    message_free(log->reports[log->begin++ % log->capacity].eval);
  free(log->reports);
  pthread_mutex_destroy(&log->lock);
}

static void report_log_add(struct report_log *log, const struct report *report) {
  bool is_next;
  pthread_mutex_lock(&log->lock);
  is_next = log->next == log->end;
  report_log_append_locked(log, report);
  if (is_next)
    report_log_tell_next_locked(log);
  pthread_mutex_unlock(&log->lock);
}

void report_log_add_step(struct report_log *log, const Weir__StepReport *report) {
  report_log_add(log, &(struct report){.step = report->step,
                                       .samples = report->samples,
                                       .loss = report->loss,
                                       .lr = report->lr,
                                       .seconds = report->seconds});
}

void report_log_add_eval(struct report_log *log, const Weir__EvalReport *report) {
  report_log_add(log, &(struct report){.step = report->step, .eval = message_copy(report)});
}

void report_log_complete(struct report_log *log) {
  pthread_mutex_lock(&log->lock);
  log->is_complete = true;
  if (log->next == log->end)
    report_log_tell_next_locked(log);
  pthread_mutex_unlock(&log->lock);
}

void report_log_open(struct report_log *log, uint64_t membership, uint64_t step) {
  pthread_mutex_lock(&log->lock);
  log->membership = membership;
  log->is_complete_told = false;
  log->next = log->end;
  while (log->next > log->begin && log->reports[(log->next - 1) % log->capacity].step >= step)
    log->next--;
  pthread_mutex_unlock(&log->lock);
}

bool report_log_resume(struct report_log *log) {
  int code = 0;
  do {
    pthread_mutex_lock(&log->lock);
    for (int told = 0; told < RESUME_MAX && !code; told++)
      code = report_log_tell_next_locked(log);
    pthread_mutex_unlock(&log->lock);
  } while (!code);
  return code == ERR_BUSY;
}

/* The ring grows with the run, for most runs are short; it loses its oldest step and what came with it. */
static void report_log_append_locked(struct report_log *log, const struct report *report) {
  if (log->end - log->begin == log->capacity) {
    uint32_t capacity = log->capacity ? 2 * log->capacity : CAPACITY_FIRST;
    struct report *reports = mem_new(capacity * sizeof *reports);
    for (uint64_t n = log->begin; n < log->end; n++)
      reports[n % capacity] = log->reports[n % log->capacity];
    free(log->reports);
    log->reports = reports;
    log->capacity = capacity;
  }
  log->reports[log->end++ % log->capacity] = *report;
  log->n_steps += !report->eval;
  while (log->n_steps > REPORT_LOG_STEPS_MAX) {
    struct report *oldest = &log->reports[log->begin++ % log->capacity];
    log->n_steps -= !oldest->eval;
    message_free(oldest->eval);
  }
  if (log->next < log->begin)
    log->next = log->begin;
}

static int report_tell(const struct report_log *log, const struct report *report) {
  Weir__MemberMessage message = WEIR__MEMBER_MESSAGE__INIT;
  Weir__StepReport step = WEIR__STEP_REPORT__INIT;
  Weir__EvalReport eval;
  if (report->eval) {
    message.body_case = WEIR__MEMBER_MESSAGE__BODY_EVAL;
    message.eval = &eval;
    eval = *report->eval;
    eval.run = (char *)log->run;
    eval.incarnation = log->incarnation;
  } else {
    message.body_case = WEIR__MEMBER_MESSAGE__BODY_STEP;
    message.step = &step;
    step.run = (char *)log->run;
    step.incarnation = log->incarnation;
    step.step = report->step;
    step.loss = report->loss;
    step.samples = report->samples;
    step.lr = report->lr;
    step.seconds = report->seconds;
  }
  return log->tell(log->user, log->membership, &message);
}

static int report_tell_complete(const struct report_log *log) {
  Weir__MemberMessage message = WEIR__MEMBER_MESSAGE__INIT;
  Weir__RunComplete complete = WEIR__RUN_COMPLETE__INIT;
  complete.run = (char *)log->run;
  complete.incarnation = log->incarnation;
  message.body_case = WEIR__MEMBER_MESSAGE__BODY_COMPLETE;
  message.complete = &complete;
  return log->tell(log->user, log->membership, &message);
}

/* Not 0 when nothing more can be told: tell's code, or CANCELLED. */
static int report_log_tell_next_locked(struct report_log *log) {
  int code = ERR_CANCELLED;
  if (!log->membership || !log->tell)
    return code;
  if (log->next < log->end) {
    code = report_tell(log, &log->reports[log->next % log->capacity]);
    log->next += code == 0;
  } else if (log->is_complete && !log->is_complete_told) {
    code = report_tell_complete(log);
    log->is_complete_told = code == 0;
  }
  return code;
}
