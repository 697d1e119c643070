/* Functions in the places of the network's and the loader's, for the one file of a test that uses
   steps_fixture.h. They are not in the library of fixtures: a test of the real loader would be given them
   too. */
#ifndef WEIR_TESTS_SUPPORT_WORKER_STEPS_DOUBLES_H
#define WEIR_TESTS_SUPPORT_WORKER_STEPS_DOUBLES_H

#include "tests/support/worker/steps_fixture.h"

void transfers_start(struct transfers *transfers, const struct transfer_item *items, int n) {
  (void)transfers;
  for (int i = 0; i < n; i++)
    steps_fixture_send(&items[i]);
}

const char *transfers_address(const struct transfers *transfers, uint32_t server) {
  (void)transfers, (void)server;
  return "";
}

void loader_expect(struct loader *loader, uint64_t step, uint32_t begin, uint32_t end) {
  (void)loader, (void)step, (void)begin, (void)end;
}

double loader_wait_seconds(const struct loader *loader) {
  (void)loader;
  return 0;
}

#endif
