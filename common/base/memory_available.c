/* What /proc/meminfo and the control groups say. */
#include "common/base/memory_available.h"

#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static FILE *open_at(const char *root, const char *folder, const char *name) {
  char path[PATH_MAX];
  int length = snprintf(path, sizeof path, "%s%s/%s", root, folder, name);
  return length > 0 && (size_t)length < sizeof path ? fopen(path, "r") : NULL;
}

/* The number behind `key` in a file of "key number" lines. */
static bool read_keyed(const char *root, const char *folder, const char *name, const char *key,
                       uint64_t *out) {
  FILE *file = open_at(root, folder, name);
  char line[256];
  bool found = false;
  size_t length = strlen(key);
  while (file && !found && fgets(line, sizeof line, file))
    found = strncmp(line, key, length) == 0 && sscanf(line + length, " %" SCNu64, out) == 1;
  if (file)
    fclose(file);
  return found;
}

/* A file that holds one number; false for "max" and where there is none. */
static bool read_number(const char *root, const char *folder, const char *name, uint64_t *out) {
  FILE *file = open_at(root, folder, name);
  bool found = file && fscanf(file, "%" SCNu64, out) == 1;
  if (file)
    fclose(file);
  return found;
}

struct group_files {
  const char *limit, *used, *cache; /* cache: key of memory.stat for files that can be dropped */
};

static uint64_t group_available(const char *root, const char *folder, const struct group_files *files) {
  uint64_t limit, used, cache = 0;
  if (!read_number(root, folder, files->limit, &limit) || !read_number(root, folder, files->used, &used))
    return UINT64_MAX;
  read_keyed(root, folder, "memory.stat", files->cache, &cache);
  used -= cache < used ? cache : used;
  return used < limit ? limit - used : 0;
}

/* The least of the group and those around it, up to the mount. */
static uint64_t groups_available(const char *root, const char *mount, char *path,
                                 const struct group_files *files) {
  uint64_t least = UINT64_MAX;
  for (;;) {
    char folder[PATH_MAX], *slash;
    uint64_t own;
    if ((size_t)snprintf(folder, sizeof folder, "%s%s", mount, path) >= sizeof folder)
      return least;
    own = group_available(root, folder, files);
    if (own < least)
      least = own;
    slash = strrchr(path, '/');
    if (!slash)
      return least;
    *slash = 0;
  }
}

/* Lines of /proc/self/cgroup: "0::/path" of version 2, "5:memory:/path" of version 1. A container may see the
   path of its host and at the mount only its own: the loop up to the mount finds that. */
static uint64_t cgroup_available(const char *root) {
  static const struct group_files version_2 = {"memory.max", "memory.current", "inactive_file"};
  static const struct group_files version_1 = {"memory.limit_in_bytes", "memory.usage_in_bytes",
                                               "total_inactive_file"};
  FILE *file = open_at(root, "/proc/self", "cgroup");
  char line[PATH_MAX];
  uint64_t least = UINT64_MAX;
  while (file && fgets(line, sizeof line, file)) {
    char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
    uint64_t own = UINT64_MAX;
    if (!path)
      continue;
    *path++ = 0;
    path[strcspn(path, "\n")] = 0;
    if (controllers[1] == 0)
      own = groups_available(root, "/sys/fs/cgroup", path, &version_2);
    else if (strstr(controllers, "memory"))
      own = groups_available(root, "/sys/fs/cgroup/memory", path, &version_1);
    least = own < least ? own : least;
  }
  if (file)
    fclose(file);
  return least;
}

uint64_t memory_available_bytes(const char *root) {
  uint64_t kilobytes, machine = UINT64_MAX, group = cgroup_available(root);
  if (read_keyed(root, "/proc", "meminfo", "MemAvailable:", &kilobytes))
    machine = kilobytes * 1024;
  return machine < group ? machine : group;
}

uint64_t memory_own_bytes(const char *root) {
  uint64_t kilobytes;
  return read_keyed(root, "/proc/self", "status", "RssAnon:", &kilobytes) ? kilobytes * 1024 : 0;
}
