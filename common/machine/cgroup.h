/* The control groups of this process, as the kernel shows them in files. */
#ifndef WEIR_COMMON_MACHINE_CGROUP_H
#define WEIR_COMMON_MACHINE_CGROUP_H

#include <stdbool.h>
#include <stdint.h>

/* A group's folder. */
struct cgroup {
  const char *folder; /* "/sys/fs/cgroup/a/b", with the root before it */
  bool is_first;      /* of version 1 */
};

/* Visits each group that limits this process by the controller ("memory"), of version 2 and of version 1, and
   those around it up to the mount. A container may see the path of its host and at the mount only its own:
   the way up to the mount finds that. root: before the paths of /proc and /sys; "" but in tests. */
void cgroup_each(const char *root, const char *controller,
                 void (*visit)(const struct cgroup *group, void *user), void *user);

/* The numbers that the file in the folder begins with: how many of at most n there are; 0 where it is not
   there, or says "max". */
int cgroup_read(const char *folder, const char *file, int64_t *numbers, int n);

#endif
