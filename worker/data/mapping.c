/* Mapped files and the signal of those that were cut. */
#include "worker/data/mapping.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/memory.h"

enum { MAPPINGS_MAX = 1024 };

/* The signal handler looks through these; it takes no lock, so that each field is atomic: begin is set last
   and cleared first, and 0 is a free place. */
struct mapping {
  uintptr_t begin;
  size_t size;
  bool is_damaged;
  char *path;
};

static struct mapping mappings[MAPPINGS_MAX];
static pthread_mutex_t mappings_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sigaction former_action;
static size_t page_bytes;

static struct mapping *find_mapping(uintptr_t address) {
  for (int i = 0; i < MAPPINGS_MAX; i++) {
    uintptr_t begin = __atomic_load_n(&mappings[i].begin, __ATOMIC_ACQUIRE);
    if (begin && address >= begin && address - begin < mappings[i].size)
      return &mappings[i];
  }
  return NULL;
}

/* Zeros take the place of what is gone, from that page to the end: page by page there could be more pieces
   than a process may have. A fault elsewhere happens again, and then ends the process as it would have. mmap
   and sigaction are plain system calls. */
static void on_bus_error(int number, siginfo_t *info, void *context) {
  int kept_errno = errno;
  uintptr_t address = (uintptr_t)info->si_addr;
  struct mapping *mapping = find_mapping(address);
  uintptr_t page = address & ~(uintptr_t)(page_bytes - 1);
  (void)context;
  if (mapping)
    __atomic_store_n(&mapping->is_damaged, true, __ATOMIC_RELEASE);
  if (!mapping || mmap((void *)page, mapping->begin + mapping->size - page, PROT_READ,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
    sigaction(number, &former_action, NULL);
  errno = kept_errno;
}

/* Somebody else's handler may have been set since the last time. */
static void install_handler_locked(void) {
  struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | SA_RESTART}, current;
  CHECK(sigaction(SIGBUS, NULL, &current) == 0);
  if ((current.sa_flags & SA_SIGINFO) && current.sa_sigaction == on_bus_error)
    return;
  page_bytes = (size_t)sysconf(_SC_PAGESIZE);
  former_action = current;
  CHECK(sigaction(SIGBUS, &action, NULL) == 0);
}

/* The bytes of the file, or NULL and the error. */
static void *map_file(int fd, const char *path, size_t *size, struct err *err) {
  struct stat status;
  void *memory = MAP_FAILED;
  if (fstat(fd, &status))
    err_errno(err, errno, "%s", path);
  else if (status.st_size == 0)
    err_set(err, ERR_CORRUPT, "%s: cut short: it is empty", path);
  else if ((memory = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0)) == MAP_FAILED)
    err_errno(err, errno, "%s", path);
  *size = (size_t)status.st_size;
  close(fd);
  return memory == MAP_FAILED ? NULL : memory;
}

int mapping_open(int fd, const char *path, struct mapping **out, struct err *err) {
  size_t size = 0;
  void *memory;
  *out = NULL;
  memory = map_file(fd, path, &size, err);
  if (!memory)
    return err->code;
  pthread_mutex_lock(&mappings_lock);
  install_handler_locked();
  for (int i = 0; i < MAPPINGS_MAX && !*out; i++)
    if (!mappings[i].begin)
      *out = &mappings[i];
  if (*out) {
    (*out)->size = size;
    (*out)->is_damaged = false;
    (*out)->path = mem_strdup(path);
    __atomic_store_n(&(*out)->begin, (uintptr_t)memory, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&mappings_lock);
  if (*out)
    return 0;
  munmap(memory, size);
  return err_set(err, ERR_UNSUPPORTED, "%s: more than %d files are mapped", path, MAPPINGS_MAX);
}

void mapping_close(struct mapping *mapping) {
  uintptr_t begin;
  if (!mapping)
    return;
  pthread_mutex_lock(&mappings_lock);
  begin = mapping->begin;
  __atomic_store_n(&mapping->begin, 0, __ATOMIC_RELEASE);
  munmap((void *)begin, mapping->size);
  free(mapping->path);
  pthread_mutex_unlock(&mappings_lock);
}

const void *mapping_data(const struct mapping *mapping) {
  return (const void *)mapping->begin;
}

size_t mapping_size(const struct mapping *mapping) {
  return mapping->size;
}

int mapping_check(const struct mapping *mapping, struct err *err) {
  if (!__atomic_load_n(&mapping->is_damaged, __ATOMIC_ACQUIRE))
    return 0;
  return err_set(err, ERR_CORRUPT, "%s: was cut or could not be read while it was in use", mapping->path);
}
