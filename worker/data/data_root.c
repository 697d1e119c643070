/* Files below the data root. */
#include "worker/data/data_root.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/memory.h"
#include "common/base/text.h"
#include "storage/file/file_store.h"

enum { RACES_MAX = 64 };

struct data_folder {
  int holders; /* atomic */
  int root_fd;
  bool follows_links;
  bool is_tenants; /* `root` is what the run's tenant has of --data-root; else that itself */
  char *root;      /* for messages */
  char *below;     /* data.root below it */
  char *path;      /* both, for messages */
};

/* errno ENOSYS: the kernel has no openat2. A rename beside it may have it say EAGAIN. */
static int open_below(int root_fd, const char *root, bool follows_links, const char *below, int flags) {
  struct open_how how = {.flags = (unsigned)(flags | O_CLOEXEC), .resolve = RESOLVE_NO_MAGICLINKS};
  long fd = -1;
  if (!follows_links && strcmp(root, "/") != 0) /* nothing leads out of / */
    how.resolve |= RESOLVE_BENEATH;
  for (int i = 0; i < RACES_MAX && (i == 0 || (fd < 0 && (errno == EAGAIN || errno == EINTR))); i++)
    fd = syscall(SYS_openat2, root_fd, below, &how, sizeof how);
  return (int)fd;
}

static int fail_open(const struct data_folder *folder, int errno_value, const char *path, struct err *err) {
  if (errno_value == ENOSYS)
    return err_set(err, ERR_UNSUPPORTED,
                   "--data-root: this machine's kernel has no openat2, by which data is kept below it: Linux "
                   "5.6 or later is needed, and a sandbox that permits it");
  if (errno_value == EXDEV && folder->is_tenants)
    return err_set(err, ERR_INVALID,
                   "%s: lies outside %s, the data_root of the run's tenant: a link leads there, and none is "
                   "followed out of it",
                   path, folder->root);
  if (errno_value == EXDEV)
    return err_set(
        err, ERR_INVALID,
        "%s: lies outside this worker's --data-root %s: a link leads there, and this worker follows "
        "none of these (see --follow-links)",
        path, folder->root);
  return err_open(err, errno_value, "%s", path);
}

/* Whether the folder at `fd` is the other or lies below it. Closes fd. */
static bool lies_below(int fd, const struct stat *other) {
  struct stat status, parent;
  bool is_below = false, is_top = false;
  while (fd >= 0 && !is_below && !is_top && fstat(fd, &status) == 0) {
    int up = openat(fd, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
    is_below = status.st_dev == other->st_dev && status.st_ino == other->st_ino;
    is_top =
        up < 0 || fstat(up, &parent) || (parent.st_dev == status.st_dev && parent.st_ino == status.st_ino);
    close(fd);
    fd = up;
  }
  if (fd >= 0)
    close(fd);
  return is_below;
}

static int folder_fd(const char *path) {
  return open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

/* Where the folder is, and where the link is by which it may have been named. */
static bool holds_certificates(int root_fd, const char *certificates) {
  struct stat root, folder;
  char *place = mem_printf("%s", certificates), *slash;
  bool holds;
  for (size_t end = strlen(place); end > 1 && place[end - 1] == '/'; end--)
    place[end - 1] = 0;
  slash = strrchr(place, '/');
  if (slash)
    slash[slash == place ? 1 : 0] = 0;
  holds = fstat(root_fd, &root) == 0 &&
          (lies_below(folder_fd(certificates), &root) || lies_below(folder_fd(slash ? place : "."), &root));
  holds |= stat(certificates, &folder) == 0 && lies_below(dup(root_fd), &folder);
  free(place);
  return holds;
}

int data_root_check(const struct data_root *root, const char *certificates, struct err *err) {
  struct data_folder *folder;
  int code = data_folder_open(root, "", &folder, err);
  if (code)
    return code;
  if (certificates && holds_certificates(folder->root_fd, certificates))
    code = err_set(
        err, ERR_INVALID,
        "--data-root %s and the folder of certificates %s must lie apart: a spec names files below the "
        "one, and the other holds a key",
        root->path, certificates);
  data_folder_put(folder);
  return code;
}

/* What remains of `path` behind the root; NULL: it does not begin with it. */
static const char *behind(const char *root, const char *path) {
  size_t length = strlen(root);
  while (length > 0 && root[length - 1] == '/')
    length--;
  if (strncmp(path, root, length) != 0 || (path[length] && path[length] != '/'))
    return NULL;
  path += length;
  while (*path == '/')
    path++;
  return *path ? path : ".";
}

/* Without what says nothing: "./" and further slashes. Freed by the caller. */
static char *tidied(const char *path) {
  char *copy = mem_strdup(path), *rest = copy, *part, *out = mem_new(strlen(path) + 2);
  while ((part = strsep(&rest, "/")))
    if (*part && strcmp(part, ".") != 0)
      sprintf(out + strlen(out), "%s%s", *out ? "/" : "", part);
  free(copy);
  return *out ? out : strcpy(out, ".");
}

/* What a path names below the root, as either is written or, of the root, without links. Freed by the caller;
   NULL: it leads out of it. */
static char *find_below(const char *root, const char *path) {
  const char *below = *path ? path : ".";
  char real[PATH_MAX];
  if (*path == '/') {
    below = behind(root, path);
    if (!below && realpath(root, real))
      below = behind(real, path);
  }
  return below ? tidied(below) : NULL;
}

/* The spec's data.root below the folder's root. */
static int find_spec_root(struct data_folder *folder, const char *spec_root, struct err *err) {
  folder->below = find_below(folder->root, spec_root);
  if (folder->below && !(path_climbs(folder->below) && (folder->follows_links || folder->is_tenants)))
    return 0;
  if (folder->is_tenants)
    return err_set(err, ERR_INVALID, "data.root: %s lies outside %s, the data_root of the run's tenant",
                   spec_root, folder->root);
  return err_set(err, ERR_INVALID, "data.root: %s lies outside this worker's --data-root %s", spec_root,
                 folder->root);
}

static char *joined(const char *root, const char *below) {
  bool ends_in_slash = root[strlen(root) - 1] == '/';
  return strcmp(below, ".") == 0 ? mem_strdup(root)
                                 : mem_printf("%s%s%s", root, ends_in_slash ? "" : "/", below);
}

/* From now on the folder's root is what the run's tenant has of the data root. */
static int confine(struct data_folder *folder, const char *tenants, struct err *err) {
  static const char key[] = "data_root of the run's tenant";
  char *below = find_below(folder->root, tenants), *path;
  int fd, code = 0;
  if (!below || path_climbs(below)) {
    free(below);
    return err_set(err, ERR_INVALID, "%s: %s lies outside this worker's --data-root %s", key, tenants,
                   folder->root);
  }
  path = joined(folder->root, below);
  fd = open_below(folder->root_fd, folder->root, folder->follows_links, below, O_PATH | O_DIRECTORY);
  if (fd < 0 && errno == ENOENT)
    code = err_set(err, ERR_NOT_FOUND, "%s: there is no folder %s on this worker", key, path);
  else if (fd < 0 && (code = fail_open(folder, errno, path, err)) != ERR_UNSUPPORTED)
    err_prefix(err, "%s", key);
  if (fd >= 0) {
    close(folder->root_fd);
    free(folder->root);
    folder->root_fd = fd;
    folder->root = path;
    folder->is_tenants = true;
    folder->follows_links = false;
  } else {
    free(path);
  }
  free(below);
  return code;
}

static int check_folder(const struct data_folder *folder, struct err *err) {
  const char *path = folder->path;
  int fd = open_below(folder->root_fd, folder->root, folder->follows_links, folder->below, O_PATH);
  int errno_value = errno;
  struct stat status;
  bool is_folder;
  if (fd < 0 && errno_value == ENOENT)
    return err_set(err, ERR_NOT_FOUND,
                   "data.root: there is no folder %s on this worker (its --data-root is %s)", path,
                   folder->root);
  if (fd < 0) {
    fail_open(folder, errno_value, path, err);
    return errno_value == ENOSYS ? (int)err->code : err_prefix(err, "data.root");
  }
  is_folder = fstat(fd, &status) == 0 && S_ISDIR(status.st_mode);
  close(fd);
  return is_folder ? 0 : err_set(err, ERR_INVALID, "data.root: %s is not a folder", path);
}

/* The names of a folder whose root is open. */
static int name_folder(struct data_folder *folder, const struct data_root *root, const char *spec_root,
                       struct err *err) {
  bool is_confined = root->tenants && *root->tenants;
  if ((is_confined && confine(folder, root->tenants, err)) || find_spec_root(folder, spec_root, err))
    return err->code;
  folder->path = joined(folder->root, folder->below);
  return 0;
}

int data_folder_open(const struct data_root *root, const char *spec_root, struct data_folder **out,
                     struct err *err) {
  struct data_folder *folder = mem_new(sizeof *folder);
  int code;
  *out = NULL;
  *folder = (struct data_folder){.holders = 1,
                                 .root_fd = folder_fd(root->path),
                                 .follows_links = root->follows_links,
                                 .root = mem_strdup(root->path)};
  if (folder->root_fd < 0)
    code = err_set(err, ERR_NOT_FOUND, "--data-root %s: there is no such folder on this worker", root->path);
  else
    code = name_folder(folder, root, spec_root, err) ? (int)err->code : check_folder(folder, err);
  if (code)
    data_folder_put(folder);
  else
    *out = folder;
  return code;
}

struct data_folder *data_folder_get(struct data_folder *folder) {
  __atomic_add_fetch(&folder->holders, 1, __ATOMIC_RELAXED);
  return folder;
}

void data_folder_put(struct data_folder *folder) {
  if (!folder || __atomic_sub_fetch(&folder->holders, 1, __ATOMIC_ACQ_REL) > 0)
    return;
  if (folder->root_fd >= 0)
    close(folder->root_fd);
  free(folder->root);
  free(folder->below);
  free(folder->path);
  free(folder);
}

const char *data_folder_path(const struct data_folder *folder) {
  return folder->path;
}

int data_folder_name(const struct data_folder *folder, const char *below, char path[PATH_MAX],
                     struct err *err) {
  if (!*below || *below == '/' || path_climbs(below))
    return err_set(err, ERR_INVALID, "'%s' names no file below %s", below, folder->path);
  if ((size_t)snprintf(path, PATH_MAX, "%s/%s", folder->path, below) >= PATH_MAX)
    return err_set(err, ERR_INVALID, "the path of '%s' is too long", below);
  return 0;
}

static int open_named(const struct data_folder *folder, const char *below, int flags, char path[PATH_MAX],
                      struct err *err) {
  char *whole;
  int fd;
  if (data_folder_name(folder, below, path, err))
    return -1;
  whole = mem_printf("%s/%s", folder->below, below);
  fd = open_below(folder->root_fd, folder->root, folder->follows_links, whole, flags);
  if (fd < 0)
    fail_open(folder, errno, path, err);
  free(whole);
  return fd;
}

/* By where it really is: a link may lie in a store, or lead into it. */
static int check_no_store(int fd, const char *path, struct err *err) {
  char link[64], real[PATH_MAX], *slash;
  ssize_t length;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  length = readlink(link, real, sizeof real - 1);
  if (length < 0)
    return err_errno(err, errno, "%s: cannot be told from a store's file without /proc", path);
  real[length] = 0;
  while ((slash = strrchr(real, '/'))) {
    *slash = 0;
    if (file_store_is_at(real))
      return err_set(err, ERR_INVALID, "%s: belongs to the store in %s: a spec reads no files of stores",
                     path, *real ? real : "/");
  }
  return 0;
}

int data_folder_file(const struct data_folder *folder, const char *below, char path[PATH_MAX],
                     struct err *err) {
  int fd = open_named(folder, below, O_RDONLY | O_NONBLOCK | O_NOCTTY, path, err);
  struct stat status;
  int code;
  if (fd < 0)
    return -1;
  if (fstat(fd, &status))
    code = err_errno(err, errno, "%s", path);
  else if (!S_ISREG(status.st_mode))
    code = err_set(err, ERR_INVALID, "%s: is not a file", path);
  else
    code = check_no_store(fd, path, err);
  if (!code)
    return fd;
  close(fd);
  return -1;
}

DIR *data_folder_list(const struct data_folder *folder, const char *below, struct err *err) {
  char path[PATH_MAX];
  int fd = open_named(folder, below, O_RDONLY | O_DIRECTORY, path, err);
  DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
  if (fd >= 0 && !dir) {
    err_errno(err, errno, "%s", path);
    close(fd);
  }
  return dir;
}

int data_folder_stat(const struct data_folder *folder, const char *below, struct stat *status,
                     struct err *err) {
  char path[PATH_MAX];
  int fd = open_named(folder, below, O_PATH, path, err), code;
  if (fd < 0)
    return err->code;
  code = fstat(fd, status) ? err_errno(err, errno, "%s", path) : 0;
  close(fd);
  return code;
}
