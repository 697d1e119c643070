/* Forming a group by name. */
#include "worker/collective/shm_rendezvous.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/base/clock.h"

#define FOLDER "/dev/shm"
#define PREFIX "weir-group-"

/* POLL_MS: between looks for a name, WAIT_MS: between looks at a sleeping group's other ways to end. */
enum { POLL_MS = 2, WAIT_MS = 50, PATH_SIZE = 160 };

struct forming {
  const struct collective_options *options;
  struct shm_segment *segment;
  uint64_t deadline_ns;
  char path[PATH_SIZE];
  int fd;        /* -1: none */
  bool is_named; /* the name is there, and ours to remove */
};

static int segment_create(struct forming *forming, struct err *err);
static int forming_complete(struct forming *forming, struct err *err);
static int segment_attach(struct forming *forming, bool *is_found, struct err *err);
static int forming_join(struct forming *forming, bool *is_orphan, struct err *err);
static void forming_drop(struct forming *forming);
static int pause_or_end(struct forming *forming, const char *awaited, struct err *err);

int shm_rendezvous(const struct collective_options *options, struct shm_segment *segment, struct err *err) {
  struct forming forming = {.options = options, .segment = segment, .fd = -1};
  int code;
  forming.deadline_ns =
      clock_now_ns() + (uint64_t)(options->timeout_ms > 0 ? options->timeout_ms : 0) * 1000000;
  snprintf(forming.path, sizeof forming.path, FOLDER "/" PREFIX "%s", options->name);
  *segment = (struct shm_segment){0};
  for (;;) {
    bool is_there = true, is_orphan = false;
    code = options->rank == 0 ? segment_create(&forming, err) : segment_attach(&forming, &is_there, err);
    if (!code && is_there)
      code = forming_join(&forming, &is_orphan, err);
    if (code || is_orphan || !is_there)
      forming_drop(&forming);
    if (code || (is_there && !is_orphan))
      break;
    code = pause_or_end(&forming, "member 0 has not opened it", err);
    if (code)
      break;
  }
  if (forming.is_named)
    unlink(forming.path);
  if (forming.fd >= 0)
    close(forming.fd);
  return code;
}

static void forming_drop(struct forming *forming) {
  shm_segment_unmap(forming->segment);
  if (forming->is_named)
    unlink(forming->path);
  if (forming->fd >= 0)
    close(forming->fd);
  forming->is_named = false;
  forming->fd = -1;
}

static int forming_fail(struct forming *forming, enum err_code code, const char *why, struct err *err) {
  return err_set(err, code, "collective group %s, member %d of %d: %s", forming->options->name,
                 forming->options->rank, forming->options->size, why);
}

static int check_time(struct forming *forming, const char *awaited, struct err *err) {
  char why[200];
  if (forming->options->is_cancelled && forming->options->is_cancelled(forming->options->user))
    return forming_fail(forming, ERR_CANCELLED, "opening it was cancelled", err);
  if (clock_now_ns() < forming->deadline_ns)
    return 0;
  snprintf(why, sizeof why, "%s after %d ms", awaited, forming->options->timeout_ms);
  return forming_fail(forming, ERR_UNAVAILABLE, why, err);
}

static int pause_or_end(struct forming *forming, const char *awaited, struct err *err) {
  struct timespec pause = {0, POLL_MS * 1000000L};
  if (check_time(forming, awaited, err))
    return err->code;
  nanosleep(&pause, NULL);
  return 0;
}

/* Locks are on one byte of a file each: member 0's, for as long as the name is there, and that of who is
   about to remove a leftover. */
enum lock_byte { LOCK_MEMBER_0, LOCK_SWEEP };

/* Of the open file, not of the process: it is there for as long as this file is open somewhere, and threads
   of one process exclude each other, too. */
static bool try_lock(int fd, enum lock_byte byte) {
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
  return fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

static bool is_locked(int fd) {
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = LOCK_MEMBER_0, .l_len = 1};
  return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

static bool is_candidate(const struct stat *status) {
  return S_ISREG(status->st_mode) && status->st_uid == geteuid();
}

/* Removes the name if its member 0 is dead: a name without that lock never gets it again. While we hold the
   other lock nobody else removes the name, so that it is still this file's if it is now. */
static void sweep_one(const char *path) {
  struct stat opened, named;
  int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0)
    return;
  if (fstat(fd, &opened) == 0 && is_candidate(&opened) && !is_locked(fd) && try_lock(fd, LOCK_SWEEP) &&
      lstat(path, &named) == 0 && named.st_ino == opened.st_ino && named.st_dev == opened.st_dev)
    unlink(path);
  close(fd);
}

static void sweep_all(void) {
  DIR *folder = opendir(FOLDER);
  struct dirent *entry;
  char path[PATH_SIZE];
  while (folder && (entry = readdir(folder)))
    if (strncmp(entry->d_name, PREFIX, strlen(PREFIX)) == 0 &&
        (size_t)snprintf(path, sizeof path, FOLDER "/%s", entry->d_name) < sizeof path)
      sweep_one(path);
  if (folder)
    closedir(folder);
}

static int fail_room(struct forming *forming, const struct statvfs *room, size_t bytes, int error,
                     struct err *err) {
  char why[200];
  snprintf(why, sizeof why,
           FOLDER " has %llu kB left and the group needs %zu kB (%s): make it larger (docker run --shm-size)",
           (unsigned long long)(room->f_bavail * room->f_frsize / 1024), bytes / 1024, strerror(error));
  return forming_fail(forming, ERR_NO_MEMORY, why, err);
}

/* A file without a name, which has its header alone while the group forms. That there is no room for the rest
   is better known before anybody is waited for. */
static int make_file(struct forming *forming, struct err *err) {
  size_t bytes = shm_layout_of(forming->options->size).total_bytes;
  struct statvfs room;
  char why[200];
  int error;
  if ((forming->fd = open(FOLDER, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)) < 0) {
    snprintf(why, sizeof why, "a file in " FOLDER ": %s", strerror(errno));
    return forming_fail(forming, ERR_IO, why, err);
  }
  if (statvfs(FOLDER, &room))
    room = (struct statvfs){0};
  if (room.f_blocks && room.f_bavail * room.f_frsize < bytes)
    return fail_room(forming, &room, bytes, ENOSPC, err);
  error = posix_fallocate(forming->fd, 0, SHM_HEADER_BYTES);
  return error ? fail_room(forming, &room, SHM_HEADER_BYTES, error, err) : 0;
}

static int fail_foreign(struct forming *forming, struct err *err) {
  char why[300];
  snprintf(why, sizeof why, "%s is there already and is not a group of this user's: remove it",
           forming->path);
  return forming_fail(forming, ERR_UNAVAILABLE, why, err);
}

/* What has the name is another group that is being opened, which ends, or a leftover; what is neither, and
   cannot be removed, is somebody else's. */
static int wait_for_name(struct forming *forming, struct err *err) {
  struct stat status;
  sweep_one(forming->path);
  if (lstat(forming->path, &status))
    return 0;
  if (!is_candidate(&status))
    return fail_foreign(forming, err);
  return pause_or_end(forming, "another group of this name is still being opened", err);
}

static int segment_create(struct forming *forming, struct err *err) {
  char unnamed[64], why[200];
  sweep_all();
  if (make_file(forming, err) || shm_segment_map(forming->segment, forming->fd, forming->options->size, err))
    return err->code;
  shm_segment_init(forming->segment);
  try_lock(forming->fd, LOCK_MEMBER_0);
  snprintf(unnamed, sizeof unnamed, "/proc/self/fd/%d", forming->fd);
  while (linkat(AT_FDCWD, unnamed, AT_FDCWD, forming->path, AT_SYMLINK_FOLLOW)) {
    if (errno != EEXIST) {
      snprintf(why, sizeof why, "naming %.100s: %s", forming->path, strerror(errno));
      return forming_fail(forming, ERR_IO, why, err);
    }
    if (wait_for_name(forming, err))
      return err->code;
  }
  forming->is_named = true;
  return 0;
}

/* A file that is none of ours is refused by what it says of itself; none of its bytes is relied on. */
static int segment_attach(struct forming *forming, bool *is_found, struct err *err) {
  struct stat status;
  *is_found = false;
  forming->fd = open(forming->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (forming->fd < 0 && errno == ENOENT)
    return 0;
  if (forming->fd < 0 || fstat(forming->fd, &status) || !is_candidate(&status))
    return fail_foreign(forming, err);
  if (!is_locked(forming->fd)) {
    sweep_one(forming->path);
    return 0;
  }
  if (status.st_size < SHM_HEADER_BYTES)
    return forming_fail(forming, ERR_INVALID, "what has its name in " FOLDER " is no group", err);
  if (shm_segment_map(forming->segment, forming->fd, forming->options->size, err))
    return err->code;
  if (!shm_segment_is_ours(forming->segment))
    return forming_fail(forming, ERR_INVALID,
                        "member 0 has opened it with another number of members, or in another version", err);
  *is_found = shm_state_of(forming->segment) == SHM_FORMING;
  return 0;
}

/* Of member 0, when all are there. Nobody needs the name any more, so that what the file grows by is gone
   with the last member, whoever dies when. All bytes are there before any is touched: a /dev/shm that is full
   is an error now, not a SIGBUS later. */
static int forming_complete(struct forming *forming, struct err *err) {
  size_t bytes = shm_layout_of(forming->options->size).total_bytes;
  struct statvfs room;
  int error;
  unlink(forming->path);
  forming->is_named = false;
  if ((error = posix_fallocate(forming->fd, 0, (off_t)bytes)) == 0) {
    shm_state_change(forming->segment, SHM_FORMING, SHM_FORMED);
    return 0;
  }
  shm_state_change(forming->segment, SHM_FORMING, SHM_GIVEN_UP);
  if (statvfs(FOLDER, &room))
    room = (struct statvfs){0};
  return fail_room(forming, &room, bytes, error, err);
}

/* Nothing is done, or the state has changed. */
static int wait_once(struct forming *forming, bool *is_orphan, struct err *err) {
  struct shm_header *header = forming->segment->header;
  bool is_first = forming->options->rank == 0;
  bool is_alone = !is_first && !is_locked(forming->fd);
  uint32_t n_joined = __atomic_load_n(&header->n_joined, __ATOMIC_SEQ_CST);
  struct err late;
  char awaited[64];
  if (is_first && n_joined == header->size)
    return forming_complete(forming, err);
  snprintf(awaited, sizeof awaited, "%u members are there", n_joined);
  if ((is_alone || check_time(forming, awaited, &late)) &&
      shm_state_change(forming->segment, SHM_FORMING, SHM_GIVEN_UP)) {
    *is_orphan = is_alone;
    return is_alone ? 0 : err_set(err, late.code, "%s", late.text);
  }
  if (is_first)
    shm_sleep(&header->n_joined, n_joined, WAIT_MS);
  else
    shm_sleep(&header->state, SHM_FORMING, WAIT_MS);
  return 0;
}

/* Waits until the group is formed or aborted. An orphan is one whose member 0 has died before that. */
static int forming_join(struct forming *forming, bool *is_orphan, struct err *err) {
  struct shm_header *header = forming->segment->header;
  if (__atomic_exchange_n(&header->members[forming->options->rank].has_joined, 1, __ATOMIC_SEQ_CST))
    return forming_fail(forming, ERR_INVALID, "this member has opened it already", err);
  __atomic_add_fetch(&header->n_joined, 1, __ATOMIC_SEQ_CST);
  shm_wake(&header->n_joined);
  while (shm_state_of(forming->segment) == SHM_FORMING)
    if (wait_once(forming, is_orphan, err))
      return err->code;
  if (*is_orphan || shm_state_of(forming->segment) != SHM_GIVEN_UP)
    return 0;
  return forming_fail(forming, ERR_UNAVAILABLE, "another member has given up waiting for all", err);
}
