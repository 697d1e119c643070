/* Cores by affinity and by quota. */
#include "common/machine/cores.h"

#include <sched.h>
#include <unistd.h>

#include "common/machine/cgroup.h"

static int count_online(void) {
  cpu_set_t set;
  long online;
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    return CPU_COUNT(&set);
  online = sysconf(_SC_NPROCESSORS_ONLN); /* as on a machine of more cores than the set holds */
  return online > 0 ? (int)online : 1;
}

static void take_quota(const struct cgroup *group, void *user) {
  int *cores = user;
  int64_t time[2]; /* in each period, and the period */
  bool has_quota = group->is_first ? cgroup_read(group->folder, "cpu.cfs_quota_us", &time[0], 1) == 1 &&
                                         cgroup_read(group->folder, "cpu.cfs_period_us", &time[1], 1) == 1
                                   : cgroup_read(group->folder, "cpu.max", time, 2) == 2;
  if (!has_quota || time[0] <= 0 || time[1] <= 0)
    return;
  if (time[0] / time[1] < *cores)
    *cores = (int)(time[0] / time[1] + (time[0] % time[1] > 0));
}

int cores_available(const char *root) {
  int cores = count_online();
  cgroup_each(root, "cpu", take_quota, &cores);
  return cores > 1 ? cores : 1;
}
