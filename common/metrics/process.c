/* This process, by /proc. */
#include "common/metrics/process.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "common/metrics/metric.h"

static double resident_bytes(void) {
  FILE *file = fopen("/proc/self/statm", "r");
  unsigned long pages = 0;
  if (file && fscanf(file, "%*s %lu", &pages) != 1)
    pages = 0;
  if (file)
    fclose(file);
  return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

/* Unix seconds; 0: not known. The file counts ticks since the machine began. */
static double start_time(void) {
  FILE *file = fopen("/proc/self/stat", "r");
  char text[1024];
  size_t size = file ? fread(text, 1, sizeof text - 1, file) : 0;
  const char *at;
  unsigned long long ticks;
  struct timespec wall, since_boot;
  text[size] = '\0';
  if (file)
    fclose(file);
  at = strrchr(text, ')'); /* behind the name; the state is field 3, the start is field 22 */
  for (int field = 2; at && field < 22; field++)
    at = strchr(at + 1, ' ');
  if (!at || sscanf(at, "%llu", &ticks) != 1)
    return 0;
  clock_gettime(CLOCK_REALTIME, &wall);
  clock_gettime(CLOCK_BOOTTIME, &since_boot);
  return (double)(wall.tv_sec - since_boot.tv_sec) + (double)(wall.tv_nsec - since_boot.tv_nsec) * 1e-9 +
         (double)ticks / (double)sysconf(_SC_CLK_TCK);
}

static double open_files(void) {
  DIR *folder = opendir("/proc/self/fd");
  int count = -3; /* ".", ".." and the folder itself */
  while (folder && readdir(folder))
    count++;
  if (folder)
    closedir(folder);
  return count;
}

static double seconds(struct timeval time) {
  return (double)time.tv_sec + (double)time.tv_usec * 1e-6;
}

void metric_tell_process(struct metric_page *page) {
  struct rusage usage;
  struct rlimit limit;
  double value;
  metric_tell_value(page, METRIC_BUILD_INFO, 0, 1);
  if ((value = start_time()) > 0)
    metric_tell(page, METRIC_START_TIME, value);
  if (getrusage(RUSAGE_SELF, &usage) == 0)
    metric_tell(page, METRIC_CPU_SECONDS, seconds(usage.ru_utime) + seconds(usage.ru_stime));
  if ((value = resident_bytes()) > 0)
    metric_tell(page, METRIC_RESIDENT_BYTES, value);
  if ((value = open_files()) > 0)
    metric_tell(page, METRIC_OPEN_FDS, value);
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
    metric_tell(page, METRIC_MAX_FDS, (double)limit.rlim_cur);
}
