/* Fake devices, for tests of what is done with device memory: a backend that computes as `ref` does, and
   whose results, as far as its callers can tell, lie on a device. Host code that follows a pointer to such
   memory crashes. What is enqueued on a stream is done when somebody waits for the stream, not before:
   fake_devices_init(); def = fake_backend(); a run is started with it. */
#ifndef WEIR_TESTS_SUPPORT_WORKER_FAKE_DEVICE_H
#define WEIR_TESTS_SUPPORT_WORKER_FAKE_DEVICE_H

#include "worker/backend/backend.h"

enum { FAKE_DEVICES = 2, FAKE_BYTES = 64 << 20, FAKE_VALUES_AT_ONCE = 3 };

/* The devices of this process, for one test at a time. They are global because a backend's callbacks get no
   pointer of the test's. */
extern struct fake_devices {
  char *there, *here; /* the same pages twice: at `there` they cannot be touched */
  size_t used[FAKE_DEVICES], limit[FAKE_DEVICES]; /* bytes */
  int n_sums, n_looks, n_waits; /* atomic: sums that were enqueued, looks whether all is finite, waits */
  int n_held;                   /* atomic: pieces of memory that are made and not freed */
  /* Called with each value before it is delivered, which it may change. NULL: nothing. */
  void (*on_value)(const struct backend_run *run, int watch, float *data);
  void (*on_end)(const struct backend_run *run); /* called at the end of each execution; NULL: nothing */
} fake_devices;

/* Empties the devices: memory of NaN, all counters 0. on_value and on_end stay as they are. */
void fake_devices_init(void);

extern const struct device_memory fake_memory; /* of fake_backend */

/* Which device the memory belongs to; -1: the host's. */
int fake_device_of(const void *memory);

/* An address at which the test may read and write it; the host's memory as it is. */
void *fake_reach(const void *memory);

/* The run of fake_backend(), for tests that put a step of their own before it. */
int fake_run(struct backend_program *program, const struct backend_run *run, struct err *err);

/* A backend named "fake", whose memory is fake_memory. */
struct backend_def fake_backend(void);

#endif
