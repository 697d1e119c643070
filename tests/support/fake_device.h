/* Devices that are not there, for tests of what is done with the memory of devices: the ref backend, whose
   values lie on a device as far as anybody can tell. Host code that follows a pointer to such memory dies;
   what is enqueued is done when it is waited for, and not before. */
#ifndef WEIR_TESTS_SUPPORT_FAKE_DEVICE_H
#define WEIR_TESTS_SUPPORT_FAKE_DEVICE_H

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/memory.h"
#include "worker/backend/backend.h"

enum { FAKE_DEVICES = 2, FAKE_BYTES = 64 << 20, FAKE_VALUES_AT_ONCE = 3 };

/* The devices of this process; of one test at a time. There is one such set, because what a backend is asked
   for carries no state of the test's. */
extern struct fake_devices {
  char *there, *here; /* the same pages twice: at `there` they cannot be touched */
  size_t used[FAKE_DEVICES], limit[FAKE_DEVICES]; /* bytes */
  int n_sums, n_looks, n_waits;                   /* atomic */
  int n_held;                                     /* atomic: pieces of memory that are made and not freed */
  /* Called with each value before it is delivered, which it may change. NULL: nothing. */
  void (*on_value)(const struct backend_run *run, int watch, float *data);
  void (*on_end)(const struct backend_run *run); /* called at the end of each execution; NULL: nothing */
} fake_devices;

void fake_devices_init(void);

extern const struct device_memory fake_memory; /* of fake_backend */

/* Whose memory it is; -1: the host's. */
int fake_device_of(const void *memory);

/* Where the test may touch it. */
void *fake_reach(const void *memory);

int fake_run(struct backend_program *program, const struct backend_run *run, struct err *err);

struct backend_def fake_backend(void);

#endif
