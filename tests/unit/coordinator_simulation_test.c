/* The coordinator's core under seeded random fates. */
#include "tests/unit/coordinator_fixture.h"

#include "common/random.h"

/* A cluster of random fate: members come, load, lie, report, drain and vanish; runs are submitted and
   cancelled. take_view and take_order check on the way that every view assigns every microbatch once, that
   view numbers grow, and that nobody is told anything after leaving. */
static void a_random_cluster_step(struct fixture *f, uint64_t seed, uint64_t at, uint64_t *next_key,
                                  int *runs) {
  uint64_t dice = random_bits(seed, at * 4), pick = random_bits(seed, at * 4 + 1),
           extra = random_bits(seed, at * 4 + 2);
  uint64_t key = 1 + pick % (*next_key - 1);
  char run[64];
  snprintf(run, sizeof run, "mlp-%06llu", (unsigned long long)(extra % (uint64_t)(*runs ? *runs : 1)));
  passes(f, random_bits(seed, at * 4 + 3) % 700);
  switch (dice % 16) {
  case 0:
  case 1:
    if (*next_key < MEMBERS)
      join(f, (*next_key)++, extra % 4 == 0 ? WEIR__ROLE__SERVER : WEIR__ROLE__WORKER, (uint32_t)(extra % 5),
           "build-1");
    break;
  case 2:
    if (extra % 4 == 0)
      leave(f, key);
    break;
  case 3:
    drains(f, key);
    break;
  case 4:
    if (*runs < 20) {
      snprintf(run, sizeof run, "mlp-%06d", (*runs)++);
      submit(f, run, 1 + (uint32_t)(extra % 3), extra % 2 ? 0 : 3);
    }
    break;
  case 5:
    if (extra % 8 == 0)
      cancel(f, run);
    break;
  case 6:
    refuses(f, key, f->told[key].load, "no", extra % 2);
    break;
  case 7:
    completes(f, key, run);
    break;
  case 8:
    if (extra % 5)
      writes(f, key, run);
    else
      cannot_write(f, key, run, "disk full", extra % 2);
    break;
  case 9:
    commits(f, run, extra % 3 ? NULL : "corrupt");
    break;
  case 10:
    reports_step(f, key, run, extra % STEPS);
    break;
  case 11: /* the coordinator was frozen */
    f->now_ms += extra % (2 * MISSING_MS);
    break;
  default:
    loads(f, key, f->told[key].load, extra % 9 ? "data" : "other", SAMPLES);
    for (uint64_t i = 1; i < *next_key; i++)
      beat(f, i);
  }
}

static void a_random_cluster_keeps_its_promises(void **state) {
  int running = 0;
  (void)state;
  for (uint64_t seed = 0; seed < 60; seed++) {
    struct fixture *f;
    uint64_t next_key = 1;
    int runs = 0;
    setup((void **)&f);
    server_joins(f, next_key++);
    for (uint64_t at = 0; at < 600; at++) {
      a_random_cluster_step(f, seed, at, &next_key, &runs);
      running += f->covered > 0;
    }
    teardown((void **)&f);
  }
  assert_true(running > 1000); /* the dice did make clusters that train */
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_random_cluster_keeps_its_promises),
  };
  log_set_level(LOG_ERROR);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
