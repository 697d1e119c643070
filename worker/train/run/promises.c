/* Promised memory. */
#include "worker/train/run/promises.h"

#include "common/machine/memory_available.h"

void promises_init(struct promises *promises) {
  *promises = (struct promises){0};
  pthread_mutex_init(&promises->lock, NULL);
}

void promises_fini(struct promises *promises) {
  pthread_mutex_destroy(&promises->lock);
}

static uint64_t less(uint64_t from, uint64_t bytes) {
  return bytes < from ? from - bytes : 0;
}

uint64_t promises_left(uint64_t promised_bytes, uint64_t own_bytes, uint64_t available_bytes) {
  if (available_bytes == UINT64_MAX)
    return UINT64_MAX;
  return less(available_bytes, less(promised_bytes, own_bytes));
}

struct promise promises_open(struct promises *promises, uint64_t most_bytes) {
  struct promise sum = {0};
  uint64_t available_bytes = memory_available_bytes("");
  if (promises) {
    pthread_mutex_lock(&promises->lock);
    sum = promises->sum;
  }
  return (struct promise){promises_left(sum.bytes, memory_own_bytes(""), available_bytes),
                          most_bytes ? less(most_bytes, sum.programs) : UINT64_MAX};
}

void promises_close(struct promises *promises, const struct promise *promise) {
  if (!promises)
    return;
  promises->sum.bytes += promise->bytes;
  promises->sum.programs += promise->programs;
  pthread_mutex_unlock(&promises->lock);
}

void promises_give_back(struct promises *promises, const struct promise *promise) {
  if (!promises)
    return;
  pthread_mutex_lock(&promises->lock);
  promises->sum.bytes -= promise->bytes;
  promises->sum.programs -= promise->programs;
  pthread_mutex_unlock(&promises->lock);
}
