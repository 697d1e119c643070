/* Memory files without a name, made and opened. */
#include "common/share/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/memory.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

enum { SIZE_SEALS = F_SEAL_SHRINK | F_SEAL_GROW, ALL_SEALS = SIZE_SEALS | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL };

static bool is_turned_off;
static uint32_t n_made; /* atomic, as what follows: of others' segments */
static uint32_t n_opened;
static uint64_t opened_bytes;
static pthread_once_t device_once = PTHREAD_ONCE_INIT;
static dev_t device; /* of all such files */
static bool has_device;

bool segment_is_on(void) {
  const char *wanted = getenv("WEIR_SHM");
  return !is_turned_off && !(wanted && strcmp(wanted, "off") == 0);
}

void segment_turn_off(void) {
  is_turned_off = true;
}

static int memory_file(void) {
  return memfd_create("weir-segment", MFD_CLOEXEC | MFD_ALLOW_SEALING);
}

static int segment_fail(struct err *err, const char *what) {
  return err_set(err, errno == ENOMEM ? ERR_NO_MEMORY : ERR_UNSUPPORTED, "a segment of shared memory: %s: %s",
                 what, strerror(errno));
}

/* Sealed with our mapping there, which stays the only one that can be written. */
static int segment_make(struct segment *segment, struct err *err) {
  void *data;
  if ((segment->fd = memory_file()) < 0)
    return segment_fail(err, "memfd_create");
  if (ftruncate(segment->fd, (off_t)segment->size_bytes))
    return segment_fail(err, "ftruncate");
  data = mmap(NULL, segment->size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, segment->fd, 0);
  if (data == MAP_FAILED)
    return segment_fail(err, "mmap");
  segment->data = data;
  if (fcntl(segment->fd, F_ADD_SEALS, ALL_SEALS))
    return segment_fail(err, "F_ADD_SEALS");
  if (getrandom(segment->token, sizeof segment->token, 0) != sizeof segment->token)
    return segment_fail(err, "getrandom");
  memcpy(segment->data, segment->token, sizeof segment->token);
  return 0;
}

int segment_new(size_t size_bytes, struct segment **out, struct err *err) {
  struct segment *segment;
  if (!segment_is_on())
    return err_set(err, ERR_UNSUPPORTED, "shared memory is turned off");
  CHECK(size_bytes > SEGMENT_HEADER_BYTES && size_bytes <= SEGMENT_BYTES_MAX);
  segment = mem_new(sizeof *segment);
  *segment = (struct segment){.size_bytes = size_bytes, .fd = -1, .refs = 1};
  segment->id = __atomic_add_fetch(&n_made, 1, __ATOMIC_RELAXED);
  if (segment_make(segment, err)) {
    segment_put(segment);
    return err->code;
  }
  *out = segment;
  return 0;
}

struct segment_place segment_place(const struct segment *segment) {
  struct segment_place place = {
      .pid = (uint32_t)getpid(), .fd = (uint32_t)segment->fd, .size_bytes = segment->size_bytes};
  memcpy(place.token, segment->token, sizeof place.token);
  return place;
}

static void find_device(void) {
  struct stat status;
  int fd = memory_file();
  has_device = fd >= 0 && fstat(fd, &status) == 0;
  if (has_device)
    device = status.st_dev;
  if (fd >= 0)
    close(fd);
}

/* What the path leads to is looked at before it is opened: opening a device or a pipe may do something. The
   file system is that of our own segments, so that no page of it comes from a disk, a network or a program.
 */
static int open_file(const struct segment_place *place, struct err *err) {
  char path[64];
  struct stat status;
  int found, fd;
  snprintf(path, sizeof path, "/proc/%u/fd/%u", place->pid, place->fd);
  found = open(path, O_PATH | O_CLOEXEC);
  if (found < 0) {
    err_set(err, ERR_UNAVAILABLE, "%s: %s", path, strerror(errno));
    return -1;
  }
  pthread_once(&device_once, find_device);
  if (fstat(found, &status) || !S_ISREG(status.st_mode) || !has_device || status.st_dev != device ||
      (uint64_t)status.st_size != place->size_bytes) {
    close(found);
    err_set(err, ERR_INVALID, "%s is no segment of %llu bytes", path, (unsigned long long)place->size_bytes);
    return -1;
  }
  snprintf(path, sizeof path, "/proc/self/fd/%d", found);
  fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    err_set(err, ERR_UNAVAILABLE, "/proc/%u/fd/%u: %s", place->pid, place->fd, strerror(errno));
  close(found);
  return fd;
}

/* The size is looked at again once it is known to be for good. */
static int segment_map(struct segment *segment, int fd, const struct segment_place *place, struct err *err) {
  int seals = fcntl(fd, F_GET_SEALS);
  struct stat status;
  void *data;
  if (seals < 0 || (seals & SIZE_SEALS) != SIZE_SEALS || fstat(fd, &status) ||
      (uint64_t)status.st_size != place->size_bytes)
    return err_set(err, ERR_INVALID, "/proc/%u/fd/%u is not sealed as a segment of %llu bytes is", place->pid,
                   place->fd, (unsigned long long)place->size_bytes);
  data = mmap(NULL, segment->size_bytes, PROT_READ, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED)
    return segment_fail(err, "mmap");
  segment->data = data;
  if (memcmp(data, place->token, sizeof place->token) == 0)
    return 0;
  return err_set(err, ERR_INVALID, "/proc/%u/fd/%u is another segment", place->pid, place->fd);
}

/* What was never written takes memory once it is read, and of the reader. */
static bool has_room(const struct segment *segment) {
  uint64_t memory_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
  bool is_one_of_few = __atomic_add_fetch(&n_opened, 1, __ATOMIC_RELAXED) <= SEGMENT_OPENED_MAX;
  return __atomic_add_fetch(&opened_bytes, segment->size_bytes, __ATOMIC_RELAXED) <= memory_bytes &&
         is_one_of_few;
}

int segment_open(const struct segment_place *place, struct segment **out, struct err *err) {
  struct segment *segment;
  int fd, code;
  if (!segment_is_on())
    return err_set(err, ERR_UNSUPPORTED, "shared memory is turned off");
  if (place->size_bytes <= SEGMENT_HEADER_BYTES || place->size_bytes > SEGMENT_BYTES_MAX)
    return err_set(err, ERR_INVALID, "no segment has %llu bytes", (unsigned long long)place->size_bytes);
  if ((fd = open_file(place, err)) < 0)
    return err->code;
  segment = mem_new(sizeof *segment);
  *segment = (struct segment){.size_bytes = place->size_bytes, .fd = -1, .refs = 1};
  memcpy(segment->token, place->token, sizeof segment->token);
  if (!has_room(segment))
    code = err_set(
        err, ERR_NO_MEMORY,
        "others' segments that are mapped would be more than %d, or larger than this machine's memory",
        SEGMENT_OPENED_MAX);
  else
    code = segment_map(segment, fd, place, err);
  close(fd);
  if (code)
    segment_put(segment);
  else
    *out = segment;
  return code;
}

struct segment *segment_get(struct segment *segment) {
  __atomic_fetch_add(&segment->refs, 1, __ATOMIC_RELAXED);
  return segment;
}

void segment_put(struct segment *segment) {
  if (!segment || __atomic_sub_fetch(&segment->refs, 1, __ATOMIC_ACQ_REL) > 0)
    return;
  if (segment->data)
    munmap(segment->data, segment->size_bytes);
  if (segment->fd >= 0)
    close(segment->fd);
  if (segment->id == 0) {
    __atomic_sub_fetch(&n_opened, 1, __ATOMIC_RELAXED);
    __atomic_sub_fetch(&opened_bytes, segment->size_bytes, __ATOMIC_RELAXED);
  }
  free(segment);
}
