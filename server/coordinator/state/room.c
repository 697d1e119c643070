/* The memory of servers, and what runs take of it. */
#include "server/coordinator/state/room.h"

#include "common/modes/mode.h"
#include "common/optim/update_rule.h"
#include "server/coordinator/state/candidates.h"
#include "server/coordinator/state/member.h"
#include "server/coordinator/state/run.h"
#include "server/coordinator/state/state.h"

/* GRADIENTS: parts that wait for their siblings, sums, and what is on its way, of each weight in each round.
   BLOCK_ELEMS_MAX: no server has more of a run beyond its part. */
enum { GRADIENTS = 8, BLOCK_ELEMS_MAX = 65536 };

/* Values that are kept of a weight, of the group that keeps most. */
static uint64_t kept_values(const Weir__RunSpec *spec) {
  struct update_rule rule = update_rule_of_servers(spec->train);
  return update_rule_slots_most(&rule) + (spec->train->average != NULL);
}

/* The versions that the mode keeps, and the one that is made; and at most as much for what is sent of two of
   them where weights are compressed. */
static uint64_t bytes_of_weight(const Weir__RunSpec *spec) {
  struct mode mode = mode_of(spec);
  struct mode_bounds bounds = mode_bounds(&mode);
  uint64_t versions = bounds.versions + 1, gradients = GRADIENTS * (uint64_t)bounds.sums;
  if (spec->train->compression && spec->train->compression->weights)
    versions += 2;
  return sizeof(float) * (versions + gradients + 2 * kept_values(spec));
}

uint64_t room_of_weights(const Weir__RunSpec *spec, uint64_t weights) {
  return weights * bytes_of_weight(spec);
}

uint64_t room_of_blocks(const Weir__RunSpec *spec, const uint32_t *block_elems, uint32_t n_blocks) {
  uint64_t weights = 0;
  for (uint32_t i = 0; i < n_blocks; i++)
    weights += block_elems[i];
  return room_of_weights(spec, weights);
}

/* The version that it is held at, and the weights of those before it that it needs to go on. */
static uint64_t room_of_held(const struct run *run, uint64_t weights) {
  struct mode mode = mode_of(run->spec);
  return weights * sizeof(float) * (1 + mode_before(&mode, run->step) + kept_values(run->spec));
}

/* On one of n servers, which have whole blocks: it may have one more than its part. */
static uint64_t part_of(uint64_t bytes, uint64_t block_bytes, int n) {
  uint64_t part = (bytes + (uint64_t)n - 1) / (uint64_t)n + (n > 1 ? block_bytes : 0);
  return part < bytes ? part : bytes;
}

static int count_servers(const struct coordinator *coordinator, const struct run *run) {
  int n = 0;
  for (int i = 0; i < coordinator->n_members; i++)
    n += coordinator_may_own_blocks(coordinator, coordinator->members[i], false) &&
         (!run || coordinator_server_fits(run, coordinator->members[i]));
  return n;
}

static uint64_t part_of_run(const struct coordinator *coordinator, const struct run *run) {
  int n = count_servers(coordinator, run);
  return n ? part_of(run->server_bytes, BLOCK_ELEMS_MAX * bytes_of_weight(run->spec), n) : 0;
}

/* A fork whose servers have loaded its base, which is in the store. */
static bool waits_for_workers(const struct run *run) {
  if (run->state != WEIR__RUN_STATE__LOADING || run->origin.step == 0 || run->base_step != run->origin.step ||
      run->is_begun || run->is_load_due || run->is_adopting || run->n_seats > 0)
    return false;
  for (int i = 0; i < run->n_servers; i++)
    if (!run->servers[i].member || !run->servers[i].is_loaded)
      return false;
  return true;
}

bool coordinator_may_spill(const struct run *run) {
  if (waits_for_workers(run))
    return true;
  return run->state == WEIR__RUN_STATE__HELD && !run->is_spilled && !run->is_pausing &&
         !run->checkpointing.is_committing && coordinator_newest_checkpoint(run) == run->step;
}

/* What the run takes, or is about to take, of the server. */
static uint64_t taken_by(const struct coordinator *coordinator, const struct run *run,
                         const struct member *server) {
  const struct run_server *part;
  if (run->state != WEIR__RUN_STATE__LOADING && !coordinator_has_blocks(run))
    return 0;
  if (run->is_load_due)
    return coordinator_server_fits(run, server) ? part_of_run(coordinator, run) : 0;
  part = coordinator_run_server(run, server);
  if (!part)
    return 0;
  return run->state == WEIR__RUN_STATE__HELD ? room_of_held(run, part->bytes / sizeof(float))
                                             : room_of_weights(run->spec, part->bytes / sizeof(float));
}

/* For the run beside all others; lack->spills: but those that may be spilled. */
static bool has_room_on(const struct coordinator *coordinator, const struct run *run,
                        const struct member *server, struct room_lack *lack) {
  lack->server = server;
  lack->taken = 0;
  lack->runs = 0;
  for (int i = 0; i < coordinator->n_runs; i++) {
    const struct run *other = coordinator->runs[i];
    bool is_nothing = other == run || (lack->spills && coordinator_may_spill(other));
    uint64_t bytes = is_nothing ? 0 : taken_by(coordinator, other, server);
    lack->taken += bytes;
    lack->runs += bytes > 0;
  }
  return lack->needed <= server->memory_bytes && lack->taken <= server->memory_bytes - lack->needed;
}

static bool has_room(const struct coordinator *coordinator, const struct run *run, bool spills,
                     struct room_lack *lack) {
  struct room_lack found = {.spills = spills};
  for (int i = 0; i < coordinator->n_members && coordinator->n_bounded > 0; i++) {
    const struct member *server = coordinator->members[i];
    if (server->memory_bytes == 0 || !coordinator_may_own_blocks(coordinator, server, false) ||
        !coordinator_server_fits(run, server))
      continue;
    found.needed = part_of_run(coordinator, run);
    if (has_room_on(coordinator, run, server, &found))
      continue;
    if (lack)
      *lack = found;
    return false;
  }
  return true;
}

bool coordinator_has_room(const struct coordinator *coordinator, const struct run *run,
                          struct room_lack *lack) {
  return has_room(coordinator, run, false, lack);
}

bool coordinator_could_make_room(const struct coordinator *coordinator, const struct run *run) {
  return has_room(coordinator, run, true, NULL);
}

bool coordinator_has_room_on(const struct coordinator *coordinator, const struct run *run,
                             struct member *const *servers, int n) {
  struct room_lack lack = {.needed =
                               part_of(run->server_bytes, BLOCK_ELEMS_MAX * bytes_of_weight(run->spec), n)};
  for (int i = 0; i < n; i++)
    if (servers[i]->memory_bytes > 0 && !has_room_on(coordinator, run, servers[i], &lack))
      return false;
  return true;
}

bool coordinator_could_have_room(const struct coordinator *coordinator, uint64_t bytes,
                                 struct room_lack *lack) {
  int n = count_servers(coordinator, NULL);
  for (int i = 0; i < coordinator->n_members; i++) {
    const struct member *server = coordinator->members[i];
    if (server->memory_bytes == 0 || !coordinator_may_own_blocks(coordinator, server, false))
      continue;
    *lack = (struct room_lack){.server = server, .needed = part_of(bytes, 0, n)};
    if (lack->needed > server->memory_bytes)
      return false;
  }
  return true;
}
