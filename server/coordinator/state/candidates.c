/* Which members a run may be given. */
#include "server/coordinator/state/candidates.h"

#include "server/coordinator/state/member.h"
#include "server/coordinator/state/run.h"
#include "server/coordinator/state/state.h"
#include "server/coordinator/state/tenant.h"

enum { LEFT_OUT_MS = 10000, CUT_OFF_MS = 60000 };

bool coordinator_may_serve(const struct run *run, const struct member *member) {
  if (member->n_seats > 0 || member->reserved_for || member->role != WEIR__ROLE__WORKER)
    return false;
  return coordinator_is_usable(member) && coordinator_suits(run, member);
}

static bool has_refused(const struct run *run, const struct member *worker) {
  for (int i = 0; i < run->n_refused; i++)
    if (run->refused[i] == worker->key)
      return true;
  return false;
}

bool coordinator_suits(const struct run *run, const struct member *worker) {
  return !has_refused(run, worker) && coordinator_may_have(run, worker);
}

bool coordinator_may_have(const struct run *run, const struct member *worker) {
  return tenant_shares(run, worker) && coordinator_has_labels(run, worker) &&
         coordinator_worker_fits(run, worker);
}

bool coordinator_has_labels(const struct run *run, const struct member *worker) {
  return labels_include(worker->labels, coordinator_required(run));
}

struct labels coordinator_required(const struct run *run) {
  return (struct labels){run->spec->workers->require, run->spec->workers->n_require};
}

uint32_t coordinator_count_free(const struct coordinator *coordinator, const struct run *run) {
  uint32_t count = 0;
  for (int i = 0; i < coordinator->n_members; i++)
    count += coordinator_may_serve(run, coordinator->members[i]);
  return count;
}

/* A server that was left out is asked again after a while, where a run has no other; one that was cut off in
   any case. */
bool coordinator_may_own_blocks(const struct coordinator *coordinator, const struct member *member,
                                bool has_others) {
  uint64_t left_out_ms = coordinator->now_ms - member->left_out_ms;
  if (member->role != WEIR__ROLE__SERVER || member->is_draining)
    return false;
  return !*member->message || (!has_others && left_out_ms >= LEFT_OUT_MS) ||
         (member->is_cut_off && left_out_ms >= CUT_OFF_MS);
}

bool coordinator_has_server(const struct coordinator *coordinator, const struct run *run) {
  for (int i = 0; i < coordinator->n_members; i++)
    if (coordinator_may_own_blocks(coordinator, coordinator->members[i], false) &&
        coordinator_server_fits(run, coordinator->members[i]))
      return true;
  return false;
}
