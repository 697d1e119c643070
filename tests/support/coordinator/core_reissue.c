#include "tests/support/coordinator/core_reissue.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define RUN "mlp-aaaaaa"

static uint32_t mask_of(Weir__Range *const *ranges, size_t n) {
  uint32_t mask = 0, end = 0;
  for (size_t i = 0; i < n; i++) {
    assert_true(ranges[i]->begin >= end && ranges[i]->begin < ranges[i]->end);
    end = ranges[i]->end;
    for (uint32_t at = ranges[i]->begin; at < end && at < 32; at++)
      mask |= 1u << at;
  }
  return mask;
}

void told_reissue(struct told *told, const Weir__Reissue *reissue) {
  told->reissues++;
  told->reissue_step = reissue->step;
  told->reissue_microbatches = mask_of(reissue->microbatches, reissue->n_microbatches);
  told->reissue_chunks = mask_of(reissue->chunks, reissue->n_chunks);
  assert_true(told->reissue_microbatches || told->reissue_chunks);
}

void worker_joins_on(struct core_fixture *f, uint64_t key, const char *host, const char *device) {
  Weir__Hello hello = WEIR__HELLO__INIT;
  hello.role = WEIR__ROLE__WORKER;
  hello.host = hello.shm_host = (char *)host;
  hello.pid = (uint32_t)key;
  hello.device = (char *)device;
  hello.executors = 1;
  hello.fingerprint = "build-1";
  hello.holder = (char *)(f->holder ? f->holder : "");
  says_hello(f, key, &hello);
}

uint32_t number_of(const struct core_fixture *f, uint64_t key) {
  return (uint32_t)atoi(f->told[key].id + strlen("worker-"));
}

void server_misses(struct core_fixture *f, uint64_t key, uint64_t at, uint32_t microbatches,
                   double waited_s) {
  Weir__Late late = WEIR__LATE__INIT;
  Weir__Range ranges[32], *list[32];
  late.run = RUN;
  late.incarnation = f->incarnation;
  late.step = at;
  late.waited_seconds = waited_s;
  late.microbatches = list;
  for (uint32_t m = 0; m < 32; m++) {
    if (!(microbatches & (1u << m)))
      continue;
    list[late.n_microbatches] = &ranges[late.n_microbatches];
    weir__range__init(list[late.n_microbatches]);
    list[late.n_microbatches]->begin = m;
    list[late.n_microbatches++]->end = m + 1;
  }
  member_says(f, key, WEIR__MEMBER_MESSAGE__BODY_LATE, &late);
}

static void pushed_part(const struct core_fixture *f, const struct pushed *from, Weir__PushedPart *part) {
  weir__pushed_part__init(part);
  part->first = from->first;
  part->level = from->level;
  part->worker = from->worker ? number_of(f, from->worker) : 0;
  part->view = from->worker ? f->told[from->worker].view_number : 0;
}

static uint64_t owner_of(const struct core_fixture *f, uint32_t block) {
  for (uint64_t key = 1; key < MEMBERS; key++)
    if (f->told[key].owns[block])
      return key;
  fail_msg("no server owns block %u", block);
  return 0;
}

void server_doubts(struct core_fixture *f, uint32_t block, const struct pushed *parts, size_t n) {
  Weir__Doubted doubted = WEIR__DOUBTED__INIT;
  Weir__PushedPart messages[16], *list[16];
  assert_true(n <= 16);
  for (size_t i = 0; i < n; i++) {
    list[i] = &messages[i];
    pushed_part(f, &parts[i], list[i]);
  }
  doubted.run = RUN;
  doubted.incarnation = f->incarnation;
  doubted.step = DOUBTED_STEP;
  doubted.block = block;
  doubted.parts = list;
  doubted.n_parts = n;
  member_says(f, owner_of(f, block), WEIR__MEMBER_MESSAGE__BODY_DOUBTED, &doubted);
}

void server_judges(struct core_fixture *f, const struct finding *finding) {
  Weir__Judged judged = WEIR__JUDGED__INIT;
  Weir__PushedPart messages[4], *list[4];
  uint32_t by[MEMBERS];
  for (size_t i = 0; i < finding->n_changed; i++) {
    list[i] = &messages[i];
    pushed_part(f, &finding->changed[i], list[i]);
  }
  for (uint64_t key = 0; key < MEMBERS; key++)
    if (finding->by & (UINT64_C(1) << key))
      by[judged.n_computed_by++] = key ? number_of(f, key) : 0;
  judged.run = RUN;
  judged.incarnation = f->incarnation;
  judged.step = DOUBTED_STEP;
  judged.block = finding->block;
  judged.changed = list;
  judged.n_changed = finding->n_changed;
  judged.computed_by = by;
  judged.overflows = finding->overflows;
  member_says(f, owner_of(f, finding->block), WEIR__MEMBER_MESSAGE__BODY_JUDGED, &judged);
}
