/* How a run's workers of one host come together. */
#include "worker/train/group/meet.h"

#include "common/base/log.h"
#include "worker/train/group/relay.h"

enum { REGROUP_MS = 1000 };

void run_read_group_locked(struct run *run, const char *worker) {
  struct group *group = &run->newest_group;
  struct task_range share = run->newest_share.microbatches;
  bool is_sound = group_read(run->newest, worker, group);
  if (group->number)
    is_sound = group->ranges[group->rank].begin == share.begin && group->ranges[group->rank].end == share.end;
  if (!is_sound) {
    log_event(LOG_WARN, "worker", "group_unsound", "run=%s view=%llu", run->load->run,
              (unsigned long long)run->newest->number);
    *group = (struct group){0};
  }
  if (run->relay && !group_is_same(group, relay_group(run->relay)))
    relay_abort_locked(run->relay);
}

bool run_apply_group_locked(struct run *run) {
  bool is_other = !group_is_same(&run->newest_group, &run->group);
  run->group = run->newest_group;
  run->is_group_told &= !is_other;
  if (run->relay)
    return !is_other;
  return run->group.number == 0 || group_is_same(&run->group, &run->last_group);
}

static bool was_tried(const struct run *run) {
  return group_is_same(&run->group, &run->last_group);
}

bool run_is_to_meet(const struct run *run) {
  return run->group.number && !run->relay && !(was_tried(run) && run->is_group_told);
}

/* True: there is no use in waiting for the others of the group. */
static bool is_cancelled(void *user) {
  struct run *run = user;
  bool is_over;
  pthread_mutex_lock(&run->lock);
  is_over = run->is_stopping || (run->newest && !group_is_same(&run->newest_group, &run->group));
  pthread_mutex_unlock(&run->lock);
  return is_over;
}

/* The coordinator makes another group of us; it is given a moment for it. */
static void run_tell_group_failed_locked(struct run *run) {
  Weir__GroupFailed failed = WEIR__GROUP_FAILED__INIT;
  Weir__MemberMessage message = WEIR__MEMBER_MESSAGE__INIT;
  failed.run = run->load->run;
  failed.incarnation = run->group.incarnation;
  failed.view = run->group.view;
  failed.group = run->group.number;
  failed.message = run->group_err.text;
  message.body_case = WEIR__MEMBER_MESSAGE__BODY_GROUP_FAILED;
  message.group_failed = &failed;
  run->is_group_told = true;
  if (!run->is_muted)
    run->options.send(run->options.user, &message);
  if (run_pause_locked(run, REGROUP_MS))
    log_event(LOG_WARN, "worker", "group_alone",
              "run=%s group=%u error=\"%s\": this worker goes on with the servers alone", run->load->run,
              run->group.number, run->group_err.text);
}

void run_meet_locked(struct run *run) {
  struct relay *relay = NULL;
  struct err err = ERR_NONE;
  if (was_tried(run)) {
    run_tell_group_failed_locked(run);
    return;
  }
  run->last_group = run->group;
  pthread_mutex_unlock(&run->lock);
  relay_open(run, is_cancelled, &relay, &err);
  pthread_mutex_lock(&run->lock);
  run->relay = relay;
  run->outlet = relay ? relay_outlet(relay) : NULL;
  run->group_err = err;
  log_event(LOG_INFO, "worker", relay ? "group" : "group_not_met",
            "run=%s group=%u rank=%d size=%d error=\"%s\"", run->load->run, run->group.number,
            run->group.rank, run->group.size, err.text);
}

bool run_agree_locked(struct run *run) {
  struct relay *relay = run->relay;
  uint64_t version = run->lowest;
  struct err err = ERR_NONE;
  if (!relay)
    return true;
  pthread_mutex_unlock(&run->lock);
  relay_agree(relay, &version, &err);
  if (err.code)
    relay_fail(relay, &err);
  pthread_mutex_lock(&run->lock);
  run->lowest = version;
  return !err.code;
}
