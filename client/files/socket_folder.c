/* The folder of a private cluster's sockets. */
#include "client/files/socket_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/memory.h"
#include "common/door/unix_socket.h"

static const char scheme[] = "unix:";

/* The longest name of a process is "worker-4194304". */
static bool fits(const char *place) {
  char *address = mem_printf("%s%s/weir-XXXXXX/worker-4194304", scheme, place);
  struct err err = ERR_NONE;
  bool is_good = unix_socket_check(address, &err) == 0;
  free(address);
  return is_good;
}

bool socket_folder_is_wanted(bool is_given) {
  const char *usual = getenv("WEIR_SOCKETS");
  return is_given || (usual && strcmp(usual, "1") == 0);
}

int socket_folder_make(char **address, struct err *err) {
  const char *place = getenv("TMPDIR");
  *address = mem_printf("%s%s/weir-XXXXXX", scheme, place && fits(place) ? place : "/tmp");
  if (mkdtemp(*address + strlen(scheme)))
    return ERR_OK;
  err_errno(err, errno, "cannot make a folder for sockets, '%s'", *address + strlen(scheme));
  free(*address);
  *address = NULL;
  return err->code;
}

void socket_folder_remove(char *address) {
  const char *path = address ? address + strlen(scheme) : NULL;
  DIR *folder = path ? opendir(path) : NULL;
  struct dirent *entry;
  while (folder && (entry = readdir(folder)))
    unlinkat(dirfd(folder), entry->d_name, 0); /* "." and ".." stay */
  if (folder)
    closedir(folder);
  if (path)
    rmdir(path);
  free(address);
}
