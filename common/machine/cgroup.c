/* Finding control groups, and reading their files. */
#include "common/machine/cgroup.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define MOUNT "/sys/fs/cgroup"

/* Whether the list, with commas, has the word. */
static bool has_word(const char *list, const char *word) {
  size_t length = strlen(word);
  for (; list; list = strchr(list, ',')) {
    list += *list == ',';
    if (strncmp(list, word, length) == 0 && (!list[length] || list[length] == ','))
      return true;
  }
  return false;
}

/* path: below the mount; it is cut at each of its slashes. */
static void visit_all(const char *mount, char *path, bool is_first,
                      void (*visit)(const struct cgroup *group, void *user), void *user) {
  char folder[PATH_MAX], *slash;
  do {
    if ((size_t)snprintf(folder, sizeof folder, "%s%s", mount, path) >= sizeof folder)
      return;
    visit(&(struct cgroup){folder, is_first}, user);
    if ((slash = strrchr(path, '/')))
      *slash = '\0';
  } while (slash);
}

/* Lines of /proc/self/cgroup: "0::/path" of version 2, "5:cpu,cpuacct:/path" of version 1. */
void cgroup_each(const char *root, const char *controller,
                 void (*visit)(const struct cgroup *group, void *user), void *user) {
  char line[PATH_MAX], mount[PATH_MAX];
  FILE *file;
  snprintf(line, sizeof line, "%s/proc/self/cgroup", root);
  file = fopen(line, "re");
  while (file && fgets(line, sizeof line, file)) {
    char *list = strchr(line, ':'), *path = list ? strchr(list + 1, ':') : NULL;
    bool is_first = list && list[1] != ':';
    if (!path)
      continue;
    *path++ = '\0';
    path[strcspn(path, "\n")] = '\0';
    if (is_first && !has_word(list + 1, controller))
      continue;
    snprintf(mount, sizeof mount, "%s" MOUNT "%s%s", root, is_first ? "/" : "", is_first ? controller : "");
    visit_all(mount, path, is_first, visit, user);
  }
  if (file)
    fclose(file);
}

int cgroup_read(const char *folder, const char *file, int64_t *numbers, int n) {
  char path[PATH_MAX];
  FILE *stream;
  int read = 0;
  if ((size_t)snprintf(path, sizeof path, "%s/%s", folder, file) >= sizeof path ||
      !(stream = fopen(path, "re")))
    return 0;
  while (read < n && fscanf(stream, "%" SCNd64, &numbers[read]) == 1)
    read++;
  fclose(stream);
  return read;
}
