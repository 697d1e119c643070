/* Folders of sockets, and who listens at one. */
#include "common/door/unix_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/memory.h"

static const char scheme[] = "unix:";

bool unix_socket_is(const char *address) {
  return strncmp(address, scheme, strlen(scheme)) == 0;
}

static const char *path_of(const char *address) {
  return address + strlen(scheme);
}

int unix_socket_check(const char *address, struct err *err) {
  const char *path = path_of(address);
  size_t longest = sizeof(struct sockaddr_un) - offsetof(struct sockaddr_un, sun_path) - 1;
  if (path[0] != '/' || path[strlen(path) - 1] == '/')
    return err_set(err, ERR_INVALID, "'%s' is not an address: expected unix:/ABSOLUTE/PATH of a socket",
                   address);
  for (const char *c = path; *c; c++)
    if ((unsigned char)*c <= ' ' || *c == ',' || *c == 0x7f)
      return err_set(err, ERR_INVALID,
                     "'%s' is not an address: its path has a comma, a blank or a control character", address);
  if (strlen(path) > longest)
    return err_set(err, ERR_INVALID, "'%s' is not an address: its path has %zu bytes, the system takes %zu",
                   address, strlen(path), longest);
  return ERR_OK;
}

static char *folder_of(const char *address) {
  const char *path = path_of(address), *slash = strrchr(path, '/');
  return slash == path ? mem_strdup("/") : mem_printf("%.*s", (int)(slash - path), path);
}

/* Opens it; *fd is -1 on an error. */
static int folder_open(const char *address, int *fd, struct err *err) {
  struct stat status;
  char *folder;
  *fd = -1;
  if (unix_socket_check(address, err))
    return err->code;
  folder = folder_of(address);
  *fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (*fd < 0 || fstat(*fd, &status))
    err_set(err, ERR_INVALID, "%s: the folder cannot be opened: %s; make it by `mkdir -m 700 %s`", address,
            strerror(errno), folder);
  else if (status.st_uid != geteuid())
    err_set(err, ERR_INVALID,
            "%s: the folder belongs to user %ld, not to this process's user %ld: take one of your own",
            address, (long)status.st_uid, (long)geteuid());
  else if (status.st_mode & 077)
    err_set(err, ERR_INVALID,
            "%s: others may enter or change the folder (mode %04o): shut it by `chmod 700 %s`", address,
            (unsigned)status.st_mode & 07777, folder);
  if (err->code && *fd >= 0) {
    close(*fd);
    *fd = -1;
  }
  free(folder);
  return err->code;
}

int unix_socket_trust(const char *address, struct err *err) {
  int fd;
  if (folder_open(address, &fd, err) == 0)
    close(fd);
  return err->code;
}

/* The process that listens at the other end. */
static void name_listener(int fd, char *name, size_t size) {
  struct ucred peer = {0};
  socklen_t length = sizeof peer;
  char path[64], command[32] = "";
  FILE *file;
  getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length);
  snprintf(path, sizeof path, "/proc/%d/comm", (int)peer.pid);
  file = fopen(path, "re");
  if (file) {
    if (!fgets(command, sizeof command, file))
      command[0] = '\0';
    fclose(file);
  }
  command[strcspn(command, "\n")] = '\0';
  snprintf(name, size, "process %d%s%s", (int)peer.pid, *command ? ", " : "", command);
}

/* That nobody listens there. */
static int socket_probe(const char *address, struct err *err) {
  struct sockaddr_un name = {.sun_family = AF_UNIX};
  char listener[64];
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0)
    return err_errno(err, errno, "%s", address);
  strcpy(name.sun_path, path_of(address)); /* unix_socket_check has measured it */
  if (connect(fd, (struct sockaddr *)&name, sizeof name) == 0) {
    name_listener(fd, listener, sizeof listener);
    err_set(err, ERR_UNAVAILABLE, "cannot listen on %s: %s, listens there", address, listener);
  } else if (errno == EAGAIN) {
    err_set(err, ERR_UNAVAILABLE, "cannot listen on %s: a process listens there", address);
  }
  close(fd);
  return err->code;
}

int unix_socket_claim(const char *address, int *claim, struct err *err) {
  const char *path = path_of(address);
  struct stat status;
  if (folder_open(address, claim, err))
    return err->code;
  while (flock(*claim, LOCK_EX) && errno == EINTR)
    continue;
  if (lstat(path, &status) == 0) {
    if (!S_ISSOCK(status.st_mode))
      err_set(err, ERR_INVALID, "cannot listen on %s: there is a file that is no socket", address);
    else if (socket_probe(address, err) == 0 && unlink(path))
      err_errno(err, errno, "cannot remove the socket of a process that has ended, %s", address);
  }
  if (err->code) {
    unix_socket_release(*claim);
    *claim = -1;
  }
  return err->code;
}

void unix_socket_release(int claim) {
  if (claim >= 0)
    close(claim);
}

char *unix_socket_beside(const char *address, const char *name) {
  char *folder = folder_of(address), *beside = mem_printf("%s%s/%s", scheme, folder, name);
  free(folder);
  return beside;
}
