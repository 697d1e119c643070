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
  Weir__MemberMessage *message; /* what it says, owned; NULL: a step, which has the rest */
  size_t doubt_bytes;           /* of a message about doubts */
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
    message_free(log->reports[log->begin++ % log->capacity].message);
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
  Weir__MemberMessage message = WEIR__MEMBER_MESSAGE__INIT;
  Weir__EvalReport eval = *report;
  eval.run = (char *)log->run;
  eval.incarnation = log->incarnation;
  message.body_case = WEIR__MEMBER_MESSAGE__BODY_EVAL;
  message.eval = &eval;
  report_log_add(log, &(struct report){.step = report->step, .message = message_copy(&message)});
}

static void report_log_add_doubt(struct report_log *log, uint64_t step, const Weir__MemberMessage *message) {
  report_log_add(log, &(struct report){.step = step,
                                       .message = message_copy(message),
                                       .doubt_bytes = weir__member_message__get_packed_size(message)});
}

void report_log_add_doubted(struct report_log *log, const Weir__Doubted *report) {
  Weir__MemberMessage message = WEIR__MEMBER_MESSAGE__INIT;
  Weir__Doubted doubted = *report;
  doubted.run = (char *)log->run;
  doubted.incarnation = log->incarnation;
  message.body_case = WEIR__MEMBER_MESSAGE__BODY_DOUBTED;
  message.doubted = &doubted;
  report_log_add_doubt(log, report->step, &message);
}

void report_log_add_judged(struct report_log *log, const Weir__Judged *report) {
  Weir__MemberMessage message = WEIR__MEMBER_MESSAGE__INIT;
  Weir__Judged judged = *report;
  judged.run = (char *)log->run;
  judged.incarnation = log->incarnation;
  message.body_case = WEIR__MEMBER_MESSAGE__BODY_JUDGED;
  message.judged = &judged;
  report_log_add_doubt(log, report->step, &message);
}

void report_log_complete(struct report_log *log) {
  pthread_mutex_lock(&log->lock);
  log->is_complete = true;
  if (log->next == log->end)
    report_log_tell_next_locked(log);
  pthread_mutex_unlock(&log->lock);
}

void report_log_held(struct report_log *log, uint64_t step) {
  pthread_mutex_lock(&log->lock);
  if (step > log->held_step) {
    log->held_step = step;
    log->is_held_told = false;
    if (log->next == log->end)
      report_log_tell_next_locked(log);
  }
  pthread_mutex_unlock(&log->lock);
}

void report_log_tell(struct report_log *log, const Weir__MemberMessage *message) {
  pthread_mutex_lock(&log->lock);
  if (log->membership && log->tell)
    log->tell(log->user, log->membership, message);
  pthread_mutex_unlock(&log->lock);
}

/* A coordinator that knows of later steps than that of a doubt need not have been told of the doubt: it has
   the steps from another server. */
static bool report_log_wants(const struct report_log *log, uint64_t n) {
  const struct report *report = &log->reports[n % log->capacity];
  return report->step >= log->from || (report->doubt_bytes && n >= log->untold);
}

void report_log_open(struct report_log *log, uint64_t membership, uint64_t step) {
  pthread_mutex_lock(&log->lock);
  log->membership = membership;
  log->from = step;
  log->is_complete_told = log->is_held_told = false;
  log->next = log->end;
  for (uint64_t n = log->end; n > log->begin; n--) {
    if (report_log_wants(log, n - 1))
      log->next = n - 1;
    else if (n <= log->untold)
      break;
  }
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
  log->n_steps += !report->message;
  log->doubt_bytes += report->doubt_bytes;
  while (log->n_steps > REPORT_LOG_STEPS_MAX || log->doubt_bytes > REPORT_LOG_DOUBT_BYTES_MAX) {
    struct report *oldest = &log->reports[log->begin++ % log->capacity];
    log->n_steps -= !oldest->message;
    log->doubt_bytes -= oldest->doubt_bytes;
    message_free(oldest->message);
  }
  if (log->next < log->begin)
    log->next = log->begin;
}

static int report_tell(const struct report_log *log, const struct report *report) {
  Weir__MemberMessage message = WEIR__MEMBER_MESSAGE__INIT;
  Weir__StepReport step = WEIR__STEP_REPORT__INIT;
  if (report->message)
    return log->tell(log->user, log->membership, report->message);
  message.body_case = WEIR__MEMBER_MESSAGE__BODY_STEP;
  message.step = &step;
  step.run = (char *)log->run;
  step.incarnation = log->incarnation;
  step.step = report->step;
  step.loss = report->loss;
  step.samples = report->samples;
  step.lr = report->lr;
  step.seconds = report->seconds;
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

static int report_tell_held(const struct report_log *log) {
  Weir__MemberMessage message = WEIR__MEMBER_MESSAGE__INIT;
  Weir__RunHeld held = WEIR__RUN_HELD__INIT;
  held.run = (char *)log->run;
  held.incarnation = log->incarnation;
  held.step = log->held_step;
  message.body_case = WEIR__MEMBER_MESSAGE__BODY_HELD;
  message.held = &held;
  return log->tell(log->user, log->membership, &message);
}

static int report_log_tell_report_locked(struct report_log *log) {
  int code = report_tell(log, &log->reports[log->next % log->capacity]);
  if (code)
    return code;
  log->next++;
  if (log->untold < log->next)
    log->untold = log->next;
  while (log->next < log->end && !report_log_wants(log, log->next))
    log->next++;
  return 0;
}

/* Not 0 when nothing more can be told: tell's code, or CANCELLED. */
static int report_log_tell_next_locked(struct report_log *log) {
  int code = ERR_CANCELLED;
  if (!log->membership || !log->tell)
    return code;
  if (log->next < log->end)
    code = report_log_tell_report_locked(log);
  else if (log->held_step && !log->is_held_told) {
    code = report_tell_held(log);
    log->is_held_told = code == 0;
  } else if (log->is_complete && !log->is_complete_told) {
    code = report_tell_complete(log);
    log->is_complete_told = code == 0;
  }
  return code;
}
