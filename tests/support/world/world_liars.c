#include "tests/support/world/world_liars.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/placement.h"
#include "common/agree/random.h"
#include "common/base/message.h"
#include "server/coordinator/messages/info.h"
#include "tests/support/world/world_holds.h"
#include "tests/support/world/world_processes.h"

enum { LATE_MS = 1000 };

struct sent {
  uint32_t worker;
  uint64_t view, bits;
};

/* What goes on beside a run's round. */
struct beside {
  uint64_t incarnation, version, begun_ms;
  struct sent sent[MICROBATCHES], before[MICROBATCHES]; /* present parts; doubted ones */
  bool is_doubted[MICROBATCHES], is_second[MICROBATCHES];
  struct {
    uint32_t pid, pushed;
    uint64_t version; /* of what follows */
    uint32_t given;
  } of[PROCESSES];
};

struct liars {
  int slot;
  Weir__Members *members;
  struct beside runs[RUNS];
};

void liars_begin(struct world *w, int slot) {
  w->liars = calloc(1, sizeof *w->liars);
  w->liars->slot = slot;
}

void liars_end(struct world *w) {
  message_free(w->liars->members);
  free(w->liars);
  w->liars = NULL;
}

char *liars_device(const struct process *process) {
  static char device[16];
  snprintf(device, sizeof device, "cpu-%d", process->slot);
  return device;
}

static struct beside *beside_of(struct world *w, int run) {
  const struct sim_round *round = &w->runs[run].round;
  struct beside *beside = &w->liars->runs[run];
  if (beside->incarnation == round->incarnation && beside->version == round->version && beside->begun_ms)
    return beside;
  for (int i = 0; i < PROCESSES; i++)
    beside->of[i].pushed = 0;
  memset(beside->is_doubted, 0, sizeof beside->is_doubted);
  memset(beside->is_second, 0, sizeof beside->is_second);
  beside->incarnation = round->incarnation;
  beside->version = round->version;
  beside->begun_ms = w->now_ms;
  return beside;
}

uint32_t liars_next(struct world *w, const struct process *worker, int run) {
  struct beside *beside = beside_of(w, run);
  const struct sim_round *round = &w->runs[run].round;
  const struct hosted *hosted = &worker->hosted[run];
  if (beside->of[worker->slot].pid != worker->pid)
    beside->of[worker->slot].pushed = beside->of[worker->slot].given = 0;
  beside->of[worker->slot].pid = worker->pid;
  for (uint32_t m = hosted->begin; m < hosted->end; m++)
    if (!round->is_there[m] && !(beside->of[worker->slot].pushed & (1u << m)))
      return m;
  for (uint32_t m = 0; m < MICROBATCHES && beside->of[worker->slot].version == round->version; m++)
    if (!round->is_there[m] && (beside->of[worker->slot].given & (1u << m)))
      return m;
  return MICROBATCHES;
}

static bool is_wrong(const struct sim_round *round, uint32_t m) {
  return round->bits[m] != part_bits(round->version, m);
}

/* Of one of the incarnation's servers, for the block that it owns first. */
static struct process *speaker(struct world *w, int run, uint64_t incarnation, uint32_t *block) {
  const struct server_set *set = set_of(w, run, incarnation);
  uint32_t owner[BLOCKS];
  *block = (uint32_t)world_roll(w, BLOCKS);
  placement_compute(world_block_elems, BLOCKS, (uint32_t)set->n, owner);
  return &w->processes[set->slots[owner[*block]]];
}

static void say_part(Weir__PushedPart *part, uint32_t m, const struct sent *sent) {
  weir__pushed_part__init(part);
  part->first = m;
  part->worker = sent->worker;
  part->view = sent->view;
}

static void tell_judged(struct world *w, int run, const uint32_t pair[2], bool overflows) {
  struct beside *beside = beside_of(w, run);
  Weir__Judged judged = WEIR__JUDGED__INIT;
  Weir__PushedPart parts[2], *list[2];
  uint32_t by[2];
  struct process *server = speaker(w, run, beside->incarnation, &judged.block);
  for (int i = 0; i < 2; i++) {
    uint32_t m = pair[i];
    if (beside->sent[m].bits != beside->before[m].bits) {
      list[judged.n_changed] = &parts[judged.n_changed];
      say_part(list[judged.n_changed++], m, &beside->before[m]);
    }
    if (i == 0 || by[0] != beside->sent[m].worker)
      by[judged.n_computed_by++] = beside->sent[m].worker;
  }
  judged.run = w->runs[run].id;
  judged.incarnation = beside->incarnation;
  judged.step = beside->version;
  judged.changed = list;
  judged.computed_by = by;
  judged.overflows = overflows;
  process_tells(server, WEIR__MEMBER_MESSAGE__BODY_JUDGED, &judged);
}

/* Both are let go of. */
static void doubt(struct world *w, int run, const uint32_t pair[2]) {
  struct sim_round *round = &w->runs[run].round;
  struct beside *beside = beside_of(w, run);
  Weir__Doubted doubted = WEIR__DOUBTED__INIT;
  Weir__PushedPart parts[2], *list[2] = {&parts[0], &parts[1]};
  struct process *server = speaker(w, run, beside->incarnation, &doubted.block);
  for (int i = 0; i < 2; i++) {
    beside->before[pair[i]] = beside->sent[pair[i]];
    beside->is_doubted[pair[i]] = true;
    round->is_there[pair[i]] = false;
    say_part(list[i], pair[i], &beside->before[pair[i]]);
  }
  doubted.run = w->runs[run].id;
  doubted.incarnation = beside->incarnation;
  doubted.step = beside->version;
  doubted.parts = list;
  doubted.n_parts = 2;
  w->doubted++;
  process_tells(server, WEIR__MEMBER_MESSAGE__BODY_DOUBTED, &doubted);
}

/* It overflows as before, and one of the two may have been sent again rather than computed. */
static bool is_unsettled(const struct beside *beside, const uint32_t pair[2]) {
  bool is_repeated = false, has_changed = false;
  for (int i = 0; i < 2; i++) {
    const struct sent *sent = &beside->sent[pair[i]], *before = &beside->before[pair[i]];
    has_changed |= sent->bits != before->bits;
    is_repeated |= sent->worker == before->worker;
  }
  return is_repeated && !has_changed && !beside->is_second[pair[0]] &&
         beside->before[pair[0]].worker != beside->before[pair[1]].worker;
}

static void merge(struct world *w, int run, uint32_t microbatch) {
  struct sim_round *round = &w->runs[run].round;
  struct beside *beside = beside_of(w, run);
  const uint32_t pair[2] = {microbatch & ~1u, microbatch | 1u};
  bool overflows = is_wrong(round, pair[0]) || is_wrong(round, pair[1]), is_again = false;
  if (!round->is_there[pair[0]] || !round->is_there[pair[1]])
    return;
  if (beside->is_doubted[pair[0]]) {
    is_again = overflows && is_unsettled(beside, pair);
    if (!is_again)
      tell_judged(w, run, pair, overflows);
    beside->is_doubted[pair[0]] = beside->is_doubted[pair[1]] = false;
  }
  beside->is_second[pair[0]] = is_again;
  if (overflows)
    doubt(w, run, pair);
}

/* A liar has moods: it tells the same lie again, or another, or the truth. */
static uint64_t bits_by(struct world *w, const struct process *worker, uint64_t version,
                        uint32_t microbatch) {
  uint64_t bits = part_bits(version, microbatch);
  if (worker->slot != w->liars->slot || world_roll(w, 4) == 0)
    return bits;
  return ~bits + (w->seed % 4 ? 0 : world_roll(w, 3));
}

void liars_push(struct world *w, const struct process *worker, int run, uint32_t microbatch) {
  struct sim_round *round = &w->runs[run].round;
  struct beside *beside = beside_of(w, run);
  const char *number = strrchr(worker->id, '-');
  beside->of[worker->slot].pushed |= 1u << microbatch;
  beside->of[worker->slot].given &= ~(1u << microbatch);
  round->is_there[microbatch] = true;
  round->bits[microbatch] = bits_by(w, worker, round->version, microbatch);
  beside->sent[microbatch] = (struct sent){.worker = number ? (uint32_t)atoi(number + 1) : 0,
                                           .view = worker->hosted[run].view,
                                           .bits = round->bits[microbatch]};
  merge(w, run, microbatch);
}

void liars_reissue(struct world *w, const struct process *worker, const Weir__Reissue *order) {
  int run = run_index(w, order->run);
  struct beside *beside = beside_of(w, run);
  uint32_t given = 0;
  assert_true(order->n_microbatches + order->n_chunks > 0);
  for (size_t i = 0; i < order->n_microbatches; i++) {
    assert_true(order->microbatches[i]->begin < order->microbatches[i]->end);
    assert_true(order->microbatches[i]->end <= MICROBATCHES);
    for (uint32_t m = order->microbatches[i]->begin; m < order->microbatches[i]->end; m++)
      given |= 1u << m;
  }
  beside->of[worker->slot].pid = worker->pid;
  beside->of[worker->slot].version = order->step;
  beside->of[worker->slot].given =
      order->incarnation == worker->hosted[run].incarnation && (w->is_calm || world_roll(w, 8)) ? given : 0;
  w->reissued++;
}

void liars_tell_late(struct world *w, struct process *server, int run) {
  const struct sim_round *round = &w->runs[run].round;
  const struct hosted *hosted = &server->hosted[run];
  struct beside *beside = beside_of(w, run);
  Weir__Late late = WEIR__LATE__INIT;
  Weir__Range ranges[MICROBATCHES], *list[MICROBATCHES];
  if (!hosted->is_loaded || round->incarnation != hosted->incarnation || round->version != hosted->version ||
      w->now_ms - beside->begun_ms < LATE_MS || hosted->version == w->plan.steps || is_held(hosted))
    return;
  for (uint32_t m = 0; m < MICROBATCHES; m++) {
    if (round->is_there[m])
      continue;
    list[late.n_microbatches] = &ranges[late.n_microbatches];
    weir__range__init(list[late.n_microbatches]);
    list[late.n_microbatches]->begin = m;
    list[late.n_microbatches++]->end = m + 1;
  }
  late.run = w->runs[run].id;
  late.incarnation = hosted->incarnation;
  late.step = hosted->version;
  late.waited_seconds = (double)(w->now_ms - beside->begun_ms) / 1000;
  late.microbatches = list;
  if (late.n_microbatches)
    process_tells(server, WEIR__MEMBER_MESSAGE__BODY_LATE, &late);
}

void liars_save(struct world *w, const Weir__Members *members) {
  if (w->is_store_away)
    return;
  message_free(w->liars->members);
  w->liars->members = message_copy(members);
}

const Weir__Members *liars_saved(const struct world *w) {
  return w->liars->members;
}

/* Whether it may be taken for the liar: it is, or may have been in a group with it. */
static bool may_be_guilty(const struct world *w, int slot) {
  bool is_near = slot >= SERVERS && slot < PROCESSES - 1 && strcmp(w->spec->train->collective, "none") != 0;
  return w->liars->slot >= 0 && (slot == w->liars->slot || is_near);
}

static Weir__ListWorkersReply *list_workers(struct world *w, struct arena *arena) {
  Weir__ListWorkersReply *reply = arena_new(arena, sizeof *reply);
  coordinator_list_workers(w->core, &viewer_of_all, w->now_ms, arena, reply);
  return reply;
}

void liars_readmit(struct world *w, bool is_any) {
  struct arena arena;
  Weir__ListWorkersReply *reply;
  char name[64] = "";
  if (!w->core)
    return;
  arena_init(&arena);
  reply = list_workers(w, &arena);
  for (size_t i = 0; i < reply->n_workers; i++)
    if (strcmp(reply->workers[i]->state, "quarantined") == 0 &&
        (is_any || atoi(reply->workers[i]->device + strlen("cpu-")) != w->liars->slot))
      snprintf(name, sizeof name, "%.30s/%.30s", reply->workers[i]->host, reply->workers[i]->device);
  arena_fini(&arena);
  world_step(
      w, &(struct coordinator_event){.kind = EVENT_WORKER_READMITTED, .readmitted = {name, &viewer_of_all}});
}

void liars_check(struct world *w) {
  struct arena arena;
  Weir__ListWorkersReply *reply;
  arena_init(&arena);
  reply = list_workers(w, &arena);
  for (size_t i = 0; i < reply->n_workers; i++) {
    const Weir__WorkerInfo *worker = reply->workers[i];
    if (strcmp(worker->state, "quarantined") != 0)
      continue;
    if (!may_be_guilty(w, atoi(worker->device + strlen("cpu-"))))
      fail_msg("an honest device is in quarantine: %s", worker->message);
    assert_true(worker->microbatches == 0 && *worker->run == 0);
    w->convicted++;
  }
  arena_fini(&arena);
}
