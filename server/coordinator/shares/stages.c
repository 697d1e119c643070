/* Workers with fewer executors than the model has stages: each is given some of the stages, and as many as
   have all of them together are a team, which is given work like a worker. */
#include <math.h>
#include <string.h>

#include "common/agree/spec.h"
#include "server/coordinator/shares/shares.h"
#include "server/coordinator/state/assignment.h"
#include "server/coordinator/state/seat.h"
#include "server/coordinator/state/run.h"
#include "server/coordinator/state/state.h"
#include "server/coordinator/state/tenant.h"

/* Workers of one kind, of so many executors: of `members` of them a team is made, each at a position of its
   own. What crosses between their stages is in layouts that only workers of the kind share, whether or not
   the run asks for the same bits. */
struct lineup {
  const char *fingerprint;
  uint32_t executors;
  uint32_t members;
  uint32_t stages; /* of the model */
};

static struct lineup lineup_of(const struct run *run, const struct member *worker) {
  uint32_t stages = run->spec->workers->stages, executors = worker->executors;
  return (struct lineup){worker->fingerprint, executors, (stages + executors - 1) / executors, stages};
}

static bool is_of_kind(const struct lineup *lineup, const struct seat *seat) {
  return seat->worker->executors == lineup->executors &&
         strcmp(seat->worker->fingerprint, lineup->fingerprint) == 0;
}

static struct range stages_at(const struct lineup *lineup, uint32_t position) {
  uint32_t begin = position * lineup->executors, end = begin + lineup->executors;
  return (struct range){begin, end < lineup->stages ? end : lineup->stages};
}

static uint32_t position_of(const struct seat *seat) {
  return seat->stages.begin / seat->worker->executors;
}

static bool is_of_lineup(const struct lineup *lineup, const struct seat *seat) {
  return coordinator_is_staged(seat) && is_of_kind(lineup, seat);
}

uint32_t coordinator_team_size(const struct coordinator *coordinator, const struct run *run) {
  uint32_t least = UINT32_MAX;
  for (int i = 0; i < coordinator->n_members && run->spec->workers->stages > 1; i++) {
    const struct member *member = coordinator->members[i];
    struct lineup lineup;
    if (member->role != WEIR__ROLE__WORKER || !tenant_shares(run, member))
      continue;
    lineup = lineup_of(run, member);
    least = lineup.members < least ? lineup.members : least;
  }
  return least < UINT32_MAX ? least : 1;
}

/* How many there are at each position that compute, or are about to. */
static void count_positions(const struct run *run, const struct lineup *lineup,
                            uint32_t counts[SPEC_STAGES_MAX]) {
  memset(counts, 0, SPEC_STAGES_MAX * sizeof *counts);
  for (int i = 0; i < run->n_seats; i++) {
    const struct seat *seat = run->seats[i];
    if (is_of_lineup(lineup, seat) && (seat->state == SEAT_READY || seat->state == SEAT_LOADING))
      counts[position_of(seat)]++;
  }
}

static uint32_t find_position(const struct lineup *lineup, const uint32_t counts[SPEC_STAGES_MAX],
                              bool is_most) {
  uint32_t found = 0;
  for (uint32_t p = 1; p < lineup->members; p++)
    if (is_most ? counts[p] > counts[found] : counts[p] < counts[found])
      found = p;
  return found;
}

/* What it has loaded already is kept, if it may have such stages. */
void coordinator_give_stages(struct seat *seat, struct range loaded) {
  uint32_t counts[SPEC_STAGES_MAX];
  struct lineup lineup = lineup_of(seat->run, seat->worker);
  struct range kept;
  seat->stages = (struct range){0, 0};
  if (lineup.members < 2 || !*seat->worker->address)
    return;
  kept = stages_at(&lineup, loaded.begin / lineup.executors);
  count_positions(seat->run, &lineup, counts);
  seat->stages = loaded.begin < loaded.end && kept.begin == loaded.begin && kept.end == loaded.end
                     ? loaded
                     : stages_at(&lineup, find_position(&lineup, counts, false));
}

/* The one that joined last, of those at the position; one without a team before others. */
static struct seat *find_surplus(const struct run *run, const struct lineup *lineup, uint32_t position) {
  struct seat *found = NULL;
  for (int i = 0; i < run->n_seats; i++) {
    struct seat *seat = run->seats[i];
    if (is_of_lineup(lineup, seat) && seat->state == SEAT_READY && position_of(seat) == position &&
        (!found || !seat->group.number || found->group.number))
      found = seat;
  }
  return found;
}

struct seat *coordinator_find_misplaced(const struct run *run) {
  uint32_t counts[SPEC_STAGES_MAX], sum;
  for (int i = 0; i < run->n_seats; i++) {
    const struct seat *seat = run->seats[i];
    struct seat *surplus;
    struct lineup lineup;
    if (!coordinator_is_staged(seat))
      continue;
    lineup = lineup_of(run, seat->worker);
    count_positions(run, &lineup, counts);
    sum = 0;
    for (uint32_t p = 0; p < lineup.members; p++)
      sum += counts[p];
    if (sum < lineup.members || counts[find_position(&lineup, counts, false)] > 0)
      continue;
    surplus = find_surplus(run, &lineup, find_position(&lineup, counts, true));
    if (surplus)
      return surplus;
  }
  return NULL;
}

/* The number of the team that the worker is in, if all of it is ready; others come later. */
static uint32_t team_rank(struct seat *const *seats, int n, const struct seat *seat) {
  uint32_t size = 0;
  for (int i = 0; i < n; i++)
    size += seat->group.number && seats[i]->group.number == seat->group.number;
  return size > 0 && size == seat->group.size ? seat->group.number : UINT32_MAX;
}

/* Workers on their way into teams. */
struct muster {
  struct seat *const *seats;
  bool *is_taken; /* [n] */
  int n;
};

/* The one at the position that is to be in the next team; -1: there is none. */
static int find_next(const struct muster *muster, const struct lineup *lineup, uint32_t position) {
  uint32_t least = 0;
  int found = -1;
  for (int i = 0; i < muster->n; i++) {
    const struct seat *seat = muster->seats[i];
    uint32_t rank = team_rank(muster->seats, muster->n, seat);
    if (muster->is_taken[i] || !coordinator_is_staged(seat) || !is_of_kind(lineup, seat) ||
        position_of(seat) != position || (found >= 0 && rank >= least))
      continue;
    found = i;
    least = rank;
  }
  return found;
}

/* Appends the members of the next team. False: some position has nobody for it. */
static bool take_team(struct muster *muster, const struct lineup *lineup, struct seat **out) {
  int found[SPEC_STAGES_MAX];
  for (uint32_t p = 0; p < lineup->members; p++)
    if ((found[p] = find_next(muster, lineup, p)) < 0)
      return false;
  for (uint32_t p = 0; p < lineup->members; p++) {
    muster->is_taken[found[p]] = true;
    out[p] = muster->seats[found[p]];
  }
  return true;
}

int coordinator_line_up(struct arena *arena, const struct run *run, struct seat **seats, int n) {
  size_t bytes = (size_t)n * sizeof(struct seat *);
  struct seat **ordered = arena_new(arena, bytes);
  struct muster muster = {seats, arena_new(arena, (size_t)n), n};
  int placed = 0;
  for (int i = 0; i < n; i++)
    if (!coordinator_is_staged(seats[i]))
      ordered[placed++] = seats[i];
  for (int i = 0; i < n; i++) {
    struct lineup lineup = lineup_of(run, seats[i]->worker);
    while (coordinator_is_staged(seats[i]) && !muster.is_taken[i] &&
           take_team(&muster, &lineup, ordered + placed))
      placed += (int)lineup.members;
  }
  memcpy(seats, ordered, (size_t)placed * sizeof(struct seat *));
  return placed;
}

int coordinator_entities(struct seat *const *seats, int n, int *ends) {
  int count = 0;
  for (int i = 0; i < n; i++) {
    bool is_next = i == 0 || !coordinator_is_staged(seats[i]) || seats[i]->stages.begin == 0;
    count += is_next;
    ends[count - 1] = i + 1;
  }
  return count;
}

/* A team is as fast as its slowest member, and computes a microbatch after the other. */
struct assign_worker *coordinator_entity_speeds(struct arena *arena, struct seat *const *seats, int n,
                                                const int *ends, int n_entities) {
  struct assign_worker *speeds = coordinator_speeds(arena, seats, n);
  for (int e = 0, i = 0; e < n_entities; e++) {
    struct assign_worker of = speeds[i];
    if (coordinator_is_staged(seats[i]))
      of.executors = 1;
    for (; i < ends[e]; i++)
      of.speed = fmin(of.speed, speeds[i].speed);
    speeds[e] = of;
  }
  return speeds;
}

char *coordinator_missing_stages(const struct run *run) {
  for (int i = 0; i < run->n_seats; i++) {
    const struct seat *seat = run->seats[i];
    uint32_t counts[SPEC_STAGES_MAX], position;
    struct lineup lineup;
    struct range stages;
    if (!coordinator_is_staged(seat))
      continue;
    lineup = lineup_of(run, seat->worker);
    count_positions(run, &lineup, counts);
    position = find_position(&lineup, counts, false);
    stages = stages_at(&lineup, position);
    if (counts[position] > 0)
      continue;
    return mem_printf("no worker of %u executor%s has stage %u%s: %u such workers make a team of %u stages",
                      lineup.executors, lineup.executors > 1 ? "s" : "", stages.begin,
                      stages.end - stages.begin > 1 ? " and those behind it" : "", lineup.members,
                      lineup.stages);
  }
  return NULL;
}
