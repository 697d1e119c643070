/* Memory of the simulated devices: address space that is the devices' alone. Each allocation is a mapping of
   its own that ends at a page which faults; it is accessible only while simulated work is done, begins as
   NaN, and its addresses are never used again: a pointer of the device that host code follows, or work on
   memory that was freed, ends the process with a line that says so. Pinned host memory is remembered, not
   moved. */
#include "tests/simulation/cuda/simulation.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/err.h"
#include "common/base/memory.h"

static const size_t range_bytes = (size_t)1 << 40, page_bytes = 4096, alignment_bytes = 256;

struct allocation {
  char *at, *map;
  size_t size, map_bytes;
  int device;
};

struct pinned {
  char *at;
  size_t size;
  bool is_ours; /* cudaMallocHost, not cudaHostRegister */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *range;
static size_t range_used;
static struct allocation *allocations;
static int n_allocations, allocations_capacity;
static uint64_t used_bytes[SIM_DEVICES_MAX];
static struct pinned *pinned;
static int n_pinned, pinned_capacity;
static int n_open;
static struct sigaction action_before;

/* Says what the fault means, and lets it happen again. */
static void on_fault(int signal, siginfo_t *info, void *context) {
  static const char text[] =
      "simulated device: an access to device memory by code of the host, or to memory that was freed\n";
  (void)signal;
  (void)context;
  if (sim_is_any_device(info->si_addr) && write(STDERR_FILENO, text, sizeof text - 1) < 0)
    abort();
  sigaction(SIGSEGV, &action_before, NULL);
}

static bool range_reserve(void) {
  struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
  char *at;
  if (range)
    return true;
  at = mmap(NULL, range_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED)
    return false;
  range = at;
  sigaction(SIGSEGV, &action, &action_before);
  return true;
}

static void protect(const struct allocation *allocation) {
  CHECK(mprotect(allocation->map, allocation->map_bytes, n_open ? PROT_READ | PROT_WRITE : PROT_NONE) == 0);
}

void sim_memory_open(void) {
  pthread_mutex_lock(&lock);
  if (n_open++ == 0)
    for (int i = 0; i < n_allocations; i++)
      protect(&allocations[i]);
  pthread_mutex_unlock(&lock);
}

void sim_memory_close(void) {
  pthread_mutex_lock(&lock);
  CHECK(n_open > 0);
  if (--n_open == 0)
    for (int i = 0; i < n_allocations; i++)
      protect(&allocations[i]);
  pthread_mutex_unlock(&lock);
}

/* Locked. NULL: no allocation holds all of it. */
static struct allocation *allocation_of(const void *memory, size_t size) {
  const char *at = memory;
  for (int i = 0; i < n_allocations; i++)
    if (at >= allocations[i].at && at < allocations[i].at + allocations[i].size)
      return size <= (size_t)(allocations[i].at + allocations[i].size - at) ? &allocations[i] : NULL;
  return NULL;
}

bool sim_is_device(const void *at, size_t size_bytes) {
  bool found;
  pthread_mutex_lock(&lock);
  found = allocation_of(at, size_bytes) != NULL;
  pthread_mutex_unlock(&lock);
  return found;
}

bool sim_is_any_device(const void *at) {
  return range && (const char *)at >= range && (const char *)at < range + range_bytes;
}

static bool allocate(void **out, size_t size, int device) {
  size_t bytes = (size + alignment_bytes - 1) / alignment_bytes * alignment_bytes;
  struct allocation it = {.size = size, .device = device};
  it.map_bytes = (bytes + page_bytes - 1) / page_bytes * page_bytes;
  if (size > sim_memory_bytes() || used_bytes[device] + bytes > sim_memory_bytes() || !range_reserve() ||
      range_used + it.map_bytes + page_bytes > range_bytes)
    return false;
  it.map = range + range_used;
  it.at = it.map + it.map_bytes - bytes; /* what is beyond the end faults */
  if (mprotect(it.map, it.map_bytes, PROT_READ | PROT_WRITE) != 0)
    return false;
  range_used += it.map_bytes + page_bytes;
  used_bytes[device] += bytes;
  memset(it.at, 0xff, bytes); /* NaN, in f64, f32 and bf16 */
  array_reserve((void **)&allocations, &allocations_capacity, n_allocations, sizeof *allocations);
  allocations[n_allocations++] = it;
  protect(&it);
  *out = it.at;
  return true;
}

cudaError_t cudaMalloc(void **out, size_t size) {
  cudaError_t error = sim_capture_forbids();
  bool is_made;
  if (error || (error = sim_device_error(sim_device())))
    return sim_return(error);
  *out = NULL;
  if (size == 0)
    return cudaSuccess;
  pthread_mutex_lock(&lock);
  is_made = allocate(out, size, sim_device());
  pthread_mutex_unlock(&lock);
  return sim_return(is_made ? cudaSuccess : cudaErrorMemoryAllocation);
}

cudaError_t cudaFree(void *at) {
  cudaError_t error = sim_capture_forbids();
  struct allocation *it;
  if (error)
    return sim_return(error);
  if (!at)
    return sim_return(sim_device_error(sim_device()));
  sim_run_device(-1);
  pthread_mutex_lock(&lock);
  it = allocation_of(at, 0);
  if (it && it->at == at) {
    used_bytes[it->device] -= (it->size + alignment_bytes - 1) / alignment_bytes * alignment_bytes;
    /* In one step: no other mapping can come between, and the pages are given back. */
    CHECK(mmap(it->map, it->map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
               0) == it->map);
    *it = allocations[--n_allocations];
  } else {
    error = cudaErrorInvalidValue;
  }
  pthread_mutex_unlock(&lock);
  return sim_return(error ? error : sim_device_error(sim_device()));
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
  cudaError_t error = sim_device_error(sim_device());
  if (error)
    return sim_return(error);
  pthread_mutex_lock(&lock);
  *total_bytes = sim_memory_bytes();
  *free_bytes = sim_memory_bytes() - used_bytes[sim_device()];
  pthread_mutex_unlock(&lock);
  return cudaSuccess;
}

/* Locked. Its index; -1: none. */
static int pinned_find(const void *memory, size_t size) {
  const char *at = memory;
  for (int i = 0; i < n_pinned; i++)
    if (at < pinned[i].at + pinned[i].size && at + size > pinned[i].at)
      return i;
  return -1;
}

bool sim_is_pinned(const void *at, size_t size_bytes) {
  const char *begin = at;
  bool is_within;
  int i;
  pthread_mutex_lock(&lock);
  i = pinned_find(at, size_bytes ? size_bytes : 1);
  is_within = i >= 0 && begin >= pinned[i].at && begin + size_bytes <= pinned[i].at + pinned[i].size;
  pthread_mutex_unlock(&lock);
  return is_within;
}

bool sim_is_partly_pinned(const void *at, size_t size_bytes) {
  bool is_found;
  pthread_mutex_lock(&lock);
  is_found = pinned_find(at, size_bytes) >= 0;
  pthread_mutex_unlock(&lock);
  return is_found && !sim_is_pinned(at, size_bytes);
}

/* Pages are locked as a whole, and once. */
static cudaError_t pin(void *at, size_t size, bool is_ours) {
  uintptr_t first = (uintptr_t)at / page_bytes, last = ((uintptr_t)at + size - 1) / page_bytes;
  bool is_new;
  pthread_mutex_lock(&lock);
  is_new = pinned_find((const void *)(first * page_bytes), (last - first + 1) * page_bytes) < 0;
  if (is_new) {
    array_reserve((void **)&pinned, &pinned_capacity, n_pinned, sizeof *pinned);
    pinned[n_pinned++] = (struct pinned){at, size, is_ours};
  }
  pthread_mutex_unlock(&lock);
  return is_new ? cudaSuccess : cudaErrorHostMemoryAlreadyRegistered;
}

static bool unpin(const void *at, bool is_ours) {
  bool found;
  int i;
  sim_run_device(-1); /* copies may be on their way */
  pthread_mutex_lock(&lock);
  i = pinned_find(at, 1);
  found = i >= 0 && pinned[i].at == at && pinned[i].is_ours == is_ours;
  if (found)
    pinned[i] = pinned[--n_pinned];
  pthread_mutex_unlock(&lock);
  return found;
}

cudaError_t cudaHostAlloc(void **out, size_t size, unsigned flags) {
  cudaError_t error = sim_capture_forbids();
  (void)flags;
  *out = NULL;
  if (error || (error = sim_device_error(sim_device())) || size == 0)
    return sim_return(error);
  if (posix_memalign(out, page_bytes, size))
    return sim_return(cudaErrorMemoryAllocation);
  memset(*out, 0xff, size);
  return sim_return(pin(*out, size, true));
}

cudaError_t cudaMallocHost(void **out, size_t size) {
  return cudaHostAlloc(out, size, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void *at) {
  cudaError_t error = sim_capture_forbids();
  if (error || !at)
    return sim_return(error);
  if (!unpin(at, true))
    return sim_return(cudaErrorInvalidValue);
  free(at);
  return sim_return(sim_device_error(sim_device()));
}

cudaError_t cudaHostRegister(void *at, size_t size, unsigned flags) {
  cudaError_t error = sim_capture_forbids();
  (void)flags;
  if (error || (error = sim_device_error(sim_device())))
    return sim_return(error);
  if (!at || size == 0 || sim_is_any_device(at))
    return sim_return(cudaErrorInvalidValue);
  return sim_return(pin(at, size, false));
}

cudaError_t cudaHostUnregister(void *at) {
  cudaError_t error = sim_capture_forbids();
  if (error)
    return sim_return(error);
  return sim_return(unpin(at, false) ? sim_device_error(sim_device()) : cudaErrorHostMemoryNotRegistered);
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *at) {
  struct allocation *it;
  *attributes = (struct cudaPointerAttributes){.type = cudaMemoryTypeUnregistered, .device = -1};
  pthread_mutex_lock(&lock);
  it = allocation_of(at, 0);
  if (it) {
    attributes->type = cudaMemoryTypeDevice;
    attributes->device = it->device;
    attributes->devicePointer = (void *)at;
  } else if (pinned_find(at, 1) >= 0) {
    attributes->type = cudaMemoryTypeHost;
    attributes->device = sim_device();
    attributes->devicePointer = attributes->hostPointer = (void *)at;
  }
  pthread_mutex_unlock(&lock);
  return sim_return(sim_is_any_device(at) && !it ? cudaErrorInvalidValue : cudaSuccess);
}
