/* The states of a run, and how it fails. */
#include "worker/train/run/run_state.h"

#include "common/base/clock.h"
#include "common/base/log.h"

static const char *const phase_names[] = {
#define PHASE(name, text) text,
    RUN_PHASES(PHASE)
#undef PHASE
};

/* [from] = set of to */
#define TO(phase) (1u << RUN_##phase)
static const unsigned phase_successors[] = {
    [RUN_LOADING] = TO(IDLE) | TO(FAILED),
    [RUN_IDLE] = TO(JOINING) | TO(FAILED),
    [RUN_JOINING] = TO(WORKING) | TO(IDLE) | TO(FAILED),
    [RUN_WORKING] = TO(LEAVING) | TO(FAILED),
    [RUN_LEAVING] = TO(IDLE) | TO(FAILED),
    [RUN_FAILED] = TO(IDLE),
};
#undef TO

void run_set_phase_locked(struct run *run, enum run_phase phase) {
  CHECK(phase_successors[run->phase] & (1u << phase));
  log_event(LOG_DEBUG, "worker", "phase", "run=%s from=%s to=%s", run->load->run, phase_names[run->phase],
            phase_names[phase]);
  run->phase = phase;
  pthread_cond_broadcast(&run->changed);
}

bool run_pause_locked(struct run *run, int pause_ms) {
  struct timespec until = clock_after_ms(pause_ms);
  while (!run->is_stopping && !run->newest)
    if (pthread_cond_timedwait(&run->changed, &run->lock, &until) != 0)
      return true;
  return false;
}

void run_fail_locked(struct run *run, const struct err *err, bool is_bad_input) {
  Weir__RunRefused refused = WEIR__RUN_REFUSED__INIT;
  Weir__MemberMessage message = WEIR__MEMBER_MESSAGE__INIT;
  if (run->phase == RUN_FAILED || run->is_stopping)
    return;
  run_set_phase_locked(run, RUN_FAILED);
  log_event(LOG_ERROR, "worker", err->code == ERR_LOST_DEVICE ? "device_lost" : "refused",
            "run=%s code=%s error=\"%s\"", run->load->run, err_name(err->code), err->text);
  if (err->code == ERR_LOST_DEVICE) { /* the run is in order: any other worker may compute it */
    run->options.device_lost(run->options.user);
    return;
  }
  refused.run = run->load->run;
  refused.incarnation = run->incarnation;
  refused.message = (char *)err->text;
  refused.bad_input = is_bad_input;
  refused.no_memory_beside = run->is_crowded && err->code == ERR_NO_MEMORY;
  message.body_case = WEIR__MEMBER_MESSAGE__BODY_REFUSED;
  message.refused = &refused;
  if (!run->is_muted)
    run->options.send(run->options.user, &message);
}

void run_fail(struct run *run, const struct err *err, bool is_bad_input) {
  pthread_mutex_lock(&run->lock);
  run_fail_locked(run, err, is_bad_input);
  pthread_mutex_unlock(&run->lock);
}
