#include "tests/support/coordinator/core_run.h"

#include <stdint.h>
#include <stdio.h>

void core_run_begin(struct core_fixture *f, uint32_t executors) {
  server_joins(f, S1);
  server_joins(f, S2);
  worker_joins(f, W1, 1);
  worker_joins(f, W2, executors);
  user_submits(f, RUN, 2, 0);
  worker_loads(f, W1, RUN);
  worker_loads(f, W2, RUN);
  server_loads(f, S1, RUN);
  server_loads(f, S2, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
}

void core_run_start(struct core_fixture *f, uint32_t keep) {
  weir__checkpoint_spec__init(&f->every);
  f->every.has_every_steps = f->every.has_keep = true;
  f->every.every_steps = 4;
  f->every.keep = keep;
  f->checkpoint = &f->every;
  core_run_begin(f, 1);
}

void core_run_checkpoint(struct core_fixture *f) {
  member_writes(f, S1, RUN);
  member_writes(f, S2, RUN);
  store_commits(f, RUN, NULL);
}

uint64_t core_run_newest(struct core_fixture *f) {
  return info_of_run(f, RUN).checkpoint_step;
}

void server_replaces(struct core_fixture *f, uint64_t former, uint64_t key, const char *host,
                     const char *fingerprint) {
  Weir__Hello hello = WEIR__HELLO__INIT;
  char address[32];
  snprintf(address, sizeof address, "host:%llu", (unsigned long long)former);
  hello.role = WEIR__ROLE__SERVER;
  hello.host = (char *)host;
  hello.pid = (uint32_t)key;
  hello.address = address;
  hello.fingerprint = (char *)fingerprint;
  says_hello(f, key, &hello);
}
