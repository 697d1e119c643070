/* A worker among the workers of its team. */
#include "worker/train/workmates.h"

#include "common/base/log.h"
#include "worker/train/participate.h"

void run_read_mates_locked(struct run *run, const char *worker) {
  if (mates_read(run->newest, worker, &run->part, &run->newest_mates))
    return;
  log_event(LOG_WARN, "worker", "team_unsound", "run=%s view=%llu", run->load->run,
            (unsigned long long)run->newest->number);
}

bool run_apply_mates_locked(struct run *run) {
  bool is_same = mates_are_same(&run->newest_mates, &run->mates);
  run->mates = run->newest_mates;
  run->is_touched &= is_same;
  return is_same;
}

static void run_tell_team_over_locked(struct run *run) {
  Weir__GroupFailed failed = WEIR__GROUP_FAILED__INIT;
  Weir__MemberMessage message = WEIR__MEMBER_MESSAGE__INIT;
  failed.run = run->load->run;
  failed.incarnation = run->mates.incarnation;
  failed.view = run->mates.view;
  failed.group = run->mates.number;
  failed.message = "a worker of the team has lost what came from another";
  message.body_case = WEIR__MEMBER_MESSAGE__BODY_GROUP_FAILED;
  message.group_failed = &failed;
  log_event(LOG_INFO, "worker", "team_over", "run=%s team=%u", run->load->run, run->mates.number);
  if (!run->is_muted)
    run->options.send(run->options.user, &message);
}

bool run_is_team_over_locked(struct run *run) {
  if (!run->edges || !run->is_touched)
    return false;
  run_tell_team_over_locked(run);
  run_leave_locked(run);
  return true;
}
