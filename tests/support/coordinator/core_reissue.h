/* What servers of the core's tests say of late and doubted work, and workers on devices of their own. */
#ifndef WEIR_TESTS_SUPPORT_COORDINATOR_CORE_REISSUE_H
#define WEIR_TESTS_SUPPORT_COORDINATOR_CORE_REISSUE_H

#include "tests/support/coordinator/core_fixture.h"

/* The newest Reissue, as masks with a bit for each microbatch and chunk. For the fixture. */
void told_reissue(struct told *told, const Weir__Reissue *reissue);

/* A worker with one executor and this host (which is also where it shares memory) and device. */
void worker_joins_on(struct core_fixture *f, uint64_t key, const char *host, const char *device);

/* The number N of the worker's id. */
uint32_t number_of(const struct core_fixture *f, uint64_t key);

/* The server misses the microbatches of the mask at the step, and has waited for so long. */
void server_misses(struct core_fixture *f, uint64_t key, uint64_t at, uint32_t microbatches, double waited_s);

/* A part of a worker (its key; 0: of no worker), pushed in the view that it has. */
struct pushed {
  uint64_t worker;
  uint32_t first, level;
};

/* The server, which owns the block, lets go of these parts. */
void server_doubts(struct core_fixture *f, uint32_t block, const struct pushed *parts, size_t n);

/* What a server found. by: mask of the keys of the workers that computed the microbatches anew. */
struct finding {
  uint32_t block;
  struct pushed changed[4];
  size_t n_changed;
  uint64_t by;
  bool overflows;
};

void server_judges(struct core_fixture *f, const struct finding *finding);

/* The step that server_doubts and server_judges speak of. */
enum { DOUBTED_STEP = 5 };

#endif
