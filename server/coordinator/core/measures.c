/* Runs and members in numbers. */
#include "server/coordinator/core/measures.h"

#include "server/coordinator/core/line.h"
#include "server/coordinator/state/member.h"
#include "server/coordinator/state/run.h"
#include "server/coordinator/state/seat.h"
#include "server/coordinator/state/state.h"

/* Values of labels, in the order of metric.def. */
enum { ROLE_SERVER, ROLE_WORKER, ROLES };
enum { AT_WORK, AT_LOAD, AT_NOTHING, AT_DRAIN, AT_QUARANTINE, PLACES };

struct counts {
  uint32_t runs[WEIR__RUN_STATE__STOPPED + 1]; /* [state] */
  uint32_t queued;
  uint64_t wanted;
  uint32_t members[ROLES];
  uint64_t executors[PLACES];
};

static uint32_t executors_of_run(const struct run *run) {
  uint32_t count = 0;
  for (int i = 0; i < run->n_seats; i++)
    if (run->seats[i]->state == SEAT_READY)
      count += run->seats[i]->executors;
  return count;
}

/* An executor a microbatch, or one for each of its stages; no more than the most workers that it may have
   would bring. */
static uint64_t executors_wanted(const struct run *run, uint32_t most_executors) {
  const Weir__WorkersSpec *workers = run->spec->workers;
  uint64_t stages = workers->stages > 1 ? workers->stages : 1;
  uint64_t wanted = line_only_evaluates(run) ? workers->min : run->spec->train->microbatches * stages;
  uint64_t bound = (uint64_t)workers->max * (most_executors ? most_executors : 1);
  return workers->has_max && bound < wanted ? bound : wanted;
}

static void count_run(const struct run *run, uint32_t most_executors, struct counts *counts) {
  bool is_claiming = run->claim.is_made &&
                     (run->state == WEIR__RUN_STATE__QUEUED || run->state == WEIR__RUN_STATE__LOADING ||
                      run->state == WEIR__RUN_STATE__RUNNING);
  counts->runs[coordinator_told_state(run)]++;
  counts->queued +=
      run->state == WEIR__RUN_STATE__QUEUED || (is_claiming && coordinator_count_held(run) == 0);
  if (is_claiming)
    counts->wanted += executors_wanted(run, most_executors);
}

static void count_worker(const struct member *worker, struct counts *counts) {
  uint32_t at_work = 0;
  bool is_loading = false;
  for (int i = 0; i < worker->n_seats; i++) {
    const struct seat *seat = worker->seats[i];
    if (seat->state == SEAT_READY)
      at_work += seat->executors;
    is_loading |= seat->state == SEAT_LOADING || seat->state == SEAT_FOLLOWING;
  }
  at_work = at_work < worker->executors ? at_work : worker->executors;
  counts->members[ROLE_WORKER]++;
  if (worker->state == WORKER_DRAINING || worker->state == WORKER_QUARANTINED) {
    counts->executors[worker->state == WORKER_DRAINING ? AT_DRAIN : AT_QUARANTINE] += worker->executors;
    return;
  }
  counts->executors[AT_WORK] += at_work;
  counts->executors[is_loading ? AT_LOAD : AT_NOTHING] += worker->executors - at_work;
}

static void tell_runs(const struct coordinator *coordinator, struct metric_page *page) {
  for (int i = 0; i < coordinator->n_runs; i++) {
    const struct run *run = coordinator->runs[i];
    if (coordinator_is_over(run))
      continue;
    metric_tell_run(page, METRIC_RUN_VERSION, run->id, run->tenant, (double)run->step);
    metric_tell_run(page, METRIC_RUN_LOSS, run->id, run->tenant, run->loss);
    metric_tell_run(page, METRIC_RUN_EXECUTORS, run->id, run->tenant, executors_of_run(run));
  }
}

static void tell_values(struct metric_page *page, enum metric_id id, const uint64_t *amounts, int n) {
  for (int value = 0; value < n; value++)
    metric_tell_value(page, id, value, (double)amounts[value]);
}

void coordinator_measure(const struct coordinator *coordinator, struct metric_page *page) {
  struct counts counts = {0};
  uint32_t most_executors = 0;
  for (int i = 0; i < coordinator->n_members; i++) {
    const struct member *member = coordinator->members[i];
    most_executors = member->executors > most_executors ? member->executors : most_executors;
    if (member->role == WEIR__ROLE__WORKER)
      count_worker(member, &counts);
    else
      counts.members[ROLE_SERVER]++;
  }
  for (int i = 0; i < coordinator->n_runs; i++)
    count_run(coordinator->runs[i], most_executors, &counts);
  for (int state = WEIR__RUN_STATE__QUEUED; state <= WEIR__RUN_STATE__STOPPED; state++)
    metric_tell_value(page, METRIC_RUNS, state - WEIR__RUN_STATE__QUEUED, counts.runs[state]);
  for (int role = 0; role < ROLES; role++)
    metric_tell_value(page, METRIC_MEMBERS, role, counts.members[role]);
  tell_values(page, METRIC_EXECUTORS, counts.executors, PLACES);
  metric_tell(page, METRIC_QUEUE_LENGTH, counts.queued);
  metric_tell(page, METRIC_EXECUTORS_WANTED, (double)counts.wanted);
  metric_tell(page, METRIC_STORE_HEALTHY, !*coordinator->store_message);
  tell_runs(coordinator, page);
}
