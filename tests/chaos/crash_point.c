/* A library to preload: its process is killed at the Nth step that it takes to change a store.

   Steps are calls that change files below a folder (create, write, sync, rename, unlink, mkdir), and calls
   that send bytes to a port (a Redis). Each counts up to three times: before it, half done (writes and sends:
   half of the bytes are out), and after it. Syncs are counted and not done: SIGKILL takes nothing from the
   kernel, and a power cut is modelled here.

   Power cuts. All processes that share WEIR_CRASH_STATE are one machine: their steps go one at a time, are
   counted together and are written to a journal, and every file that they make keeps a second name in
   inodes/, so that the test can rebuild, out of both, what a disk could hold after the cut (power_loss.py).
   When the step has come the machine is dead: no process of it changes a file any more. Sync is modelled as
   POSIX promises it: fsync of a file makes its content durable, not its name; fsync of a folder makes its
   names durable; syncfs makes all durable that was done before it. Not modelled: sectors that tear, disks
   that lie, files that are written in place.

   Environment, all needed but the last:
     WEIR_CRASH_STATE    a folder of the test's, on the file system of the store: count (steps so far, 8
   bytes; then 4 bytes: dead), journal, inodes/ WEIR_CRASH_AT       the step to die at; 0: only count
     WEIR_CRASH_FOLDER   an absolute path, or empty
     WEIR_CRASH_PORT     a TCP port, or 0
     WEIR_CRASH_POWER    if set: keep the journal */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
/* The function that this one stands before. */
#define REAL(name)                                                                                           \
  ({                                                                                                         \
    static __typeof__(&name) real_;                                                                          \
    real_ ? real_ : (real_ = (__typeof__(&name))dlsym(RTLD_NEXT, #name));                                    \
  })

enum { FDS_MAX = 4096, PATH_BYTES = 1024, PHASE_BYTES = 12 };

/* crash_points.py has the same list. */
enum call { CREATE, WRITE, SYNC, SYNC_ALL, RENAME, UNLINK, MKDIR, SEND, ANY, CALLS };

/* Shared by the processes of a machine. */
struct count {
  uint64_t steps[CALLS];
  uint32_t is_armed, is_dead; /* the test arms it: steps before that are not counted */
  char phase[PHASE_BYTES];    /* "before", "half of", "after": where it died */
};

/* What a descriptor is of. */
struct target {
  enum { OF_OTHER, OF_FILE, OF_FOLDER, OF_PORT } kind;
  unsigned long long inode;
  char path[PATH_BYTES]; /* of folders */
};

static struct {
  bool is_on, has_journal;
  const char *folder;
  char inodes[PATH_BYTES];
  size_t folder_length;
  int port, journal, lock;
  unsigned call; /* of the step to die at */
  uint64_t at;
  struct count *count;
  pthread_mutex_t mutex;
  struct target targets[FDS_MAX];
} crash = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static const char *setting(const char *name) {
  const char *value = getenv(name);
  return value ? value : "";
}

static int open_state(const char *name, int flags) {
  char path[PATH_BYTES];
  int fd;
  snprintf(path, sizeof path, "%s/%s", setting("WEIR_CRASH_STATE"), name);
  fd = REAL(open)(path, flags | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) {
    perror(path);
    abort();
  }
  return fd;
}

__attribute__((constructor)) static void start(void) {
  int fd;
  if (!*setting("WEIR_CRASH_STATE"))
    return;
  crash.folder = strdup(setting("WEIR_CRASH_FOLDER")); /* programs may overwrite their environment */
  crash.folder_length = strlen(crash.folder);
  crash.port = atoi(setting("WEIR_CRASH_PORT"));
  if (sscanf(setting("WEIR_CRASH_AT"), "%u %" SCNu64, &crash.call, &crash.at) != 2)
    abort();
  crash.has_journal = getenv("WEIR_CRASH_POWER") != NULL;
  snprintf(crash.inodes, sizeof crash.inodes, "%s/inodes", setting("WEIR_CRASH_STATE"));
  fd = open_state("count", O_RDWR);
  crash.lock = open_state("lock", O_RDWR);
  crash.journal = open_state("journal", O_WRONLY | O_APPEND);
  if (ftruncate(fd, sizeof *crash.count))
    abort();
  crash.count = mmap(NULL, sizeof *crash.count, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (crash.count == MAP_FAILED)
    abort();
  REAL(close)(fd);
  crash.is_on = true;
}

static void die(void) {
  __atomic_store_n(&crash.count->is_dead, 1, __ATOMIC_SEQ_CST);
  kill(getpid(), SIGKILL);
  for (;;)
    pause();
}

static bool is_due(const char *phase, enum call call) {
  uint64_t step, any;
  if (!__atomic_load_n(&crash.count->is_armed, __ATOMIC_SEQ_CST))
    return false;
  step = __atomic_add_fetch(&crash.count->steps[call], 1, __ATOMIC_SEQ_CST);
  any = __atomic_add_fetch(&crash.count->steps[ANY], 1, __ATOMIC_SEQ_CST);
  if (crash.call == ANY ? any != crash.at : call != crash.call || step != crash.at)
    return false;
  snprintf(crash.count->phase, PHASE_BYTES, "%s", phase);
  return true;
}

static void step_begin(enum call call) {
  if (crash.has_journal) {
    pthread_mutex_lock(&crash.mutex);
    while (flock(crash.lock, LOCK_EX) && errno == EINTR)
      continue;
    if (__atomic_load_n(&crash.count->is_dead, __ATOMIC_SEQ_CST))
      die();
  }
  if (is_due("before", call))
    die();
}

static void step_end(enum call call) {
  int error = errno;
  if (is_due("after", call))
    die();
  if (crash.has_journal) {
    flock(crash.lock, LOCK_UN);
    pthread_mutex_unlock(&crash.mutex);
  }
  errno = error;
}

/* A line of the journal; its words have no spaces. */
__attribute__((format(printf, 1, 2))) static void note(const char *format, ...) {
  char line[3 * PATH_BYTES];
  va_list arguments;
  int length, error = errno;
  if (!crash.has_journal)
    return;
  va_start(arguments, format);
  length = vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  if (REAL(write)(crash.journal, line, (size_t)length) != length)
    abort();
  errno = error;
}

/* The absolute path of a name as seen from a folder; whether it is below ours. */
static bool resolve(int dirfd, const char *name, char path[PATH_BYTES]) {
  char link[64];
  ssize_t length = 0;
  if (!crash.is_on || !crash.folder_length)
    return false;
  if (*name != '/') {
    snprintf(link, sizeof link, dirfd == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d", dirfd);
    length = readlink(link, path, PATH_BYTES / 2);
    if (length < 0)
      return false;
    path[length++] = '/';
  }
  snprintf(path + length, PATH_BYTES - (size_t)length, "%s", name);
  return strncmp(path, crash.folder, crash.folder_length) == 0 &&
         (path[crash.folder_length] == '/' || !path[crash.folder_length]);
}

static struct target *target_of(int fd) {
  return crash.is_on && fd >= 0 && fd < FDS_MAX && crash.targets[fd].kind != OF_OTHER ? &crash.targets[fd]
                                                                                      : NULL;
}

static void remember(int fd, const char *path) {
  struct stat status;
  struct target *target = &crash.targets[fd];
  if (fd < 0 || fd >= FDS_MAX || fstat(fd, &status))
    return;
  target->inode = status.st_ino;
  target->kind = S_ISDIR(status.st_mode) ? OF_FOLDER : OF_FILE;
  snprintf(target->path, sizeof target->path, "%s", path);
}

/* A new file: it keeps a name of ours, so that its inode stays when its other names go. */
static void note_create(int fd, const char *path) {
  char name[PATH_BYTES + 32];
  struct stat status;
  if (!crash.has_journal || fstat(fd, &status))
    return;
  snprintf(name, sizeof name, "%s/%llu", crash.inodes, (unsigned long long)status.st_ino);
  if (link(path, name))
    abort();
  note("create %llu %s\n", (unsigned long long)status.st_ino, path);
}

static int open_below(const char *path, int flags, mode_t mode) {
  bool creates = (flags & O_CREAT) && access(path, F_OK);
  int fd;
  if (creates)
    step_begin(CREATE);
  fd = REAL(open)(path, flags, mode);
  if (fd >= 0) {
    remember(fd, path);
    if (creates)
      note_create(fd, path);
  }
  if (creates)
    step_end(CREATE);
  return fd;
}

EXPORT int open(const char *name, int flags, ...) {
  char path[PATH_BYTES];
  mode_t mode = 0;
  va_list arguments;
  va_start(arguments, flags);
  if (flags & O_CREAT)
    mode = va_arg(arguments, mode_t);
  va_end(arguments);
  return resolve(AT_FDCWD, name, path) ? open_below(path, flags, mode) : REAL(open)(name, flags, mode);
}

EXPORT int open64(const char *name, int flags, ...) {
  char path[PATH_BYTES];
  mode_t mode = 0;
  va_list arguments;
  va_start(arguments, flags);
  if (flags & O_CREAT)
    mode = va_arg(arguments, mode_t);
  va_end(arguments);
  return resolve(AT_FDCWD, name, path) ? open_below(path, flags, mode) : REAL(open64)(name, flags, mode);
}

EXPORT int mkostemp(char *template, int flags) {
  char path[PATH_BYTES];
  int fd;
  if (!resolve(AT_FDCWD, template, path))
    return REAL(mkostemp)(template, flags);
  step_begin(CREATE);
  fd = REAL(mkostemp)(template, flags);
  if (fd >= 0 && resolve(AT_FDCWD, template, path)) {
    remember(fd, path);
    note_create(fd, path);
  }
  step_end(CREATE);
  return fd;
}

EXPORT int close(int fd) {
  if (crash.is_on && fd >= 0 && fd < FDS_MAX)
    crash.targets[fd].kind = OF_OTHER;
  return REAL(close)(fd);
}

static void note_written(const struct target *target, int fd) {
  struct stat status;
  if (crash.has_journal && target->kind == OF_FILE && fstat(fd, &status) == 0)
    note("write %llu %lld\n", target->inode, (long long)status.st_size);
}

/* Sends half of the bytes, if now is the time for that, and dies. */
static void point_half(const struct target *target, enum call call, int fd, const struct iovec *parts,
                       int n) {
  size_t bytes = 0;
  if (!is_due("half of", call))
    return;
  for (int i = 0; i < n; i++)
    bytes += parts[i].iov_len;
  bytes /= 2;
  for (int i = 0; i < n && bytes; i++) {
    size_t length = parts[i].iov_len < bytes ? parts[i].iov_len : bytes;
    if (REAL(write)(fd, parts[i].iov_base, length) != (ssize_t)length)
      break; /* a full socket: fewer than half */
    bytes -= length;
  }
  note_written(target, fd);
  die();
}

EXPORT ssize_t writev(int fd, const struct iovec *parts, int n) {
  struct target *target = target_of(fd);
  ssize_t rc;
  if (!target)
    return REAL(writev)(fd, parts, n);
  step_begin(WRITE);
  point_half(target, WRITE, fd, parts, n);
  rc = REAL(writev)(fd, parts, n);
  note_written(target, fd);
  step_end(WRITE);
  return rc;
}

EXPORT ssize_t write(int fd, const void *data, size_t size) {
  struct iovec part = {(void *)data, size};
  struct target *target = target_of(fd);
  ssize_t rc;
  if (!target)
    return REAL(write)(fd, data, size);
  step_begin(WRITE);
  point_half(target, WRITE, fd, &part, 1);
  rc = REAL(write)(fd, data, size);
  note_written(target, fd);
  step_end(WRITE);
  return rc;
}

EXPORT ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
  struct target *target = target_of(fd);
  ssize_t rc;
  if (!target)
    return REAL(sendmsg)(fd, message, flags);
  step_begin(SEND);
  point_half(target, SEND, fd, message->msg_iov, (int)message->msg_iovlen);
  rc = REAL(sendmsg)(fd, message, flags);
  step_end(SEND);
  return rc;
}

EXPORT int connect(int fd, const struct sockaddr *address, socklen_t size) {
  const struct sockaddr_in *internet = (const struct sockaddr_in *)(const void *)address;
  if (crash.is_on && crash.port && fd >= 0 && fd < FDS_MAX && address->sa_family == AF_INET &&
      ntohs(internet->sin_port) == crash.port)
    crash.targets[fd].kind = OF_PORT;
  return REAL(connect)(fd, address, size);
}

static int sync_fd(int fd) {
  struct target *target = target_of(fd);
  if (!target || target->kind == OF_PORT)
    return -1;
  step_begin(SYNC);
  if (target->kind == OF_FOLDER)
    note("sync_folder %s\n", target->path);
  else
    note("sync_file %llu\n", target->inode);
  step_end(SYNC);
  return 0;
}

EXPORT int fsync(int fd) {
  return sync_fd(fd) ? REAL(fsync)(fd) : 0;
}

EXPORT int fdatasync(int fd) {
  return sync_fd(fd) ? REAL(fdatasync)(fd) : 0;
}

EXPORT int syncfs(int fd) {
  if (!target_of(fd))
    return REAL(syncfs)(fd);
  step_begin(SYNC_ALL);
  note("sync_all\n");
  step_end(SYNC_ALL);
  return 0;
}

EXPORT int rename(const char *from, const char *to) {
  char source[PATH_BYTES], target[PATH_BYTES];
  int rc;
  if (!resolve(AT_FDCWD, to, target))
    return REAL(rename)(from, to);
  resolve(AT_FDCWD, from, source); /* it may come from elsewhere */
  step_begin(RENAME);
  rc = REAL(rename)(from, to);
  if (!rc)
    note("rename %s %s\n", source, target);
  step_end(RENAME);
  return rc;
}

EXPORT int unlink(const char *name) {
  char path[PATH_BYTES];
  int rc;
  if (!resolve(AT_FDCWD, name, path))
    return REAL(unlink)(name);
  step_begin(UNLINK);
  rc = REAL(unlink)(path);
  if (!rc)
    note("unlink %s\n", path);
  step_end(UNLINK);
  return rc;
}

EXPORT int unlinkat(int dirfd, const char *name, int flags) {
  char path[PATH_BYTES];
  int rc;
  if (!resolve(dirfd, name, path))
    return REAL(unlinkat)(dirfd, name, flags);
  step_begin(UNLINK);
  rc = REAL(unlinkat)(dirfd, name, flags);
  if (!rc)
    note("unlink %s\n", path);
  step_end(UNLINK);
  return rc;
}

EXPORT int mkdir(const char *name, mode_t mode) {
  char path[PATH_BYTES];
  int rc;
  if (!resolve(AT_FDCWD, name, path))
    return REAL(mkdir)(name, mode);
  step_begin(MKDIR);
  rc = REAL(mkdir)(path, mode);
  if (!rc)
    note("mkdir %s\n", path);
  step_end(MKDIR);
  return rc;
}
