/* The memory of programs. */
#include "worker/backend/memory.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/machine/memory_available.h"

/* Less is not worth a look at the machine's files. */
enum { CHECKED_BYTES_MIN = 1 << 20, ALIGN = 64, PAGE = 4096 };

static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;

static void *memory_new_locked(size_t size_bytes, struct err *err) {
  uint64_t available = size_bytes < CHECKED_BYTES_MIN ? UINT64_MAX : memory_available_bytes("");
  size_t rounded = (size_bytes + ALIGN - 1) / ALIGN * ALIGN + ALIGN;
  void *memory = rounded > size_bytes && size_bytes <= available ? aligned_alloc(ALIGN, rounded) : NULL;
  if (memory)
    memset(memory, 0, rounded);
  else
    err_set(err, ERR_NO_MEMORY, "one execution needs %zu bytes for its activations, %llu are available",
            size_bytes, (unsigned long long)available);
  return memory;
}

void *backend_memory_new(size_t size_bytes, struct err *err) {
  void *memory;
  pthread_mutex_lock(&one_at_a_time);
  memory = memory_new_locked(size_bytes, err);
  pthread_mutex_unlock(&one_at_a_time);
  return memory;
}

void *backend_pages_new(size_t size_bytes) {
  size_t rounded = (size_bytes + PAGE - 1) / PAGE * PAGE;
  return rounded >= size_bytes ? aligned_alloc(PAGE, rounded ? rounded : PAGE) : NULL;
}
