#include "tests/support/coordinator/core_given.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "server/coordinator/messages/info.h"

static uint32_t microbatches_of(struct core_fixture *f, const char *run) {
  Weir__RunInfo info;
  return coordinator_run_info(f->coordinator, run, f->now_ms, &info) ? info.useful_executors : MICROBATCHES;
}

void given_check(struct core_fixture *f) {
  uint32_t given = 0, microbatches = microbatches_of(f, f->given_run);
  for (uint32_t m = 0; m < MICROBATCHES_GIVEN; m++) {
    assert_true(f->given[m] <= (m < microbatches));
    given += f->given[m];
  }
  assert_true(given == 0 || given == microbatches);
  memset(f->given, 0, sizeof f->given);
}
