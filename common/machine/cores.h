/* On how many cores this process may compute. */
#ifndef WEIR_COMMON_MACHINE_CORES_H
#define WEIR_COMMON_MACHINE_CORES_H

/* At least 1: the cores that its affinity (taskset) names, or fewer where a control group's quota (that of a
   container's --cpus) gives less time than theirs; part of a core counts as one. root: before the paths of
   /proc and /sys; "" but in tests. */
int cores_available(const char *root);

#endif
