/* What /proc/meminfo and the control groups say. */
#include "common/machine/memory_available.h"

#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "common/machine/cgroup.h"

/* The number behind `key` in a file of "key number" lines. */
static bool read_keyed(const char *folder, const char *name, const char *key, uint64_t *out) {
  char path[PATH_MAX];
  FILE *file =
      (size_t)snprintf(path, sizeof path, "%s/%s", folder, name) < sizeof path ? fopen(path, "re") : NULL;
  char line[256];
  bool found = false;
  size_t length = strlen(key);
  while (file && !found && fgets(line, sizeof line, file))
    found = strncmp(line, key, length) == 0 && sscanf(line + length, " %" SCNu64, out) == 1;
  if (file)
    fclose(file);
  return found;
}

struct group_files {
  const char *limit, *used, *cache; /* cache: key of memory.stat for files that can be dropped */
};

static const struct group_files first_version = {"memory.limit_in_bytes", "memory.usage_in_bytes",
                                                 "total_inactive_file"};
static const struct group_files second_version = {"memory.max", "memory.current", "inactive_file"};

static void take_least(const struct cgroup *group, void *user) {
  const struct group_files *files = group->is_first ? &first_version : &second_version;
  uint64_t *least = user, used, available, cache = 0;
  int64_t limit, taken;
  if (!cgroup_read(group->folder, files->limit, &limit, 1) ||
      !cgroup_read(group->folder, files->used, &taken, 1))
    return;
  read_keyed(group->folder, "memory.stat", files->cache, &cache);
  used = (uint64_t)taken - (cache < (uint64_t)taken ? cache : (uint64_t)taken);
  available = used < (uint64_t)limit ? (uint64_t)limit - used : 0;
  if (available < *least)
    *least = available;
}

/* The number behind `key` in a file of /proc. */
static bool read_proc(const char *root, const char *name, const char *key, uint64_t *out) {
  char folder[PATH_MAX];
  return (size_t)snprintf(folder, sizeof folder, "%s/proc", root) < sizeof folder &&
         read_keyed(folder, name, key, out);
}

uint64_t memory_available_bytes(const char *root) {
  uint64_t kilobytes, least = UINT64_MAX;
  if (read_proc(root, "meminfo", "MemAvailable:", &kilobytes))
    least = kilobytes * 1024;
  cgroup_each(root, "memory", take_least, &least);
  return least;
}

uint64_t memory_own_bytes(const char *root) {
  uint64_t kilobytes;
  return read_proc(root, "self/status", "RssAnon:", &kilobytes) ? kilobytes * 1024 : 0;
}
