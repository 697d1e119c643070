/* How much memory and how many cores there are for a process, by the machine and by control groups. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/memory.h"
#include "common/machine/cores.h"
#include "common/machine/memory_available.h"

static char root[] = "/tmp/weir-machine-XXXXXX"; /* of each test */

static int make_root(void **state) {
  (void)state;
  strcpy(root, "/tmp/weir-machine-XXXXXX");
  return !mkdtemp(root);
}

static int remove_root(void **state) {
  char *command = mem_printf("rm -r %s", root);
  int rc = system(command);
  (void)state;
  free(command);
  return rc;
}

static void write_at(const char *path, const char *text) {
  char *full = mem_printf("%s%s", root, path), *command = mem_printf("mkdir -p $(dirname %s)", full);
  FILE *file;
  assert_int_equal(system(command), 0);
  file = fopen(full, "w");
  assert_non_null(file);
  fputs(text, file);
  fclose(file);
  free(full);
  free(command);
}

static int count_affine(void) {
  cpu_set_t set;
  assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
  return CPU_COUNT(&set);
}

static void without_a_quota_the_affinity_counts(void **state) {
  cpu_set_t all, one;
  (void)state;
  assert_int_equal(cores_available(root), count_affine());
  assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
  CPU_ZERO(&one);
  for (int core = 0; CPU_COUNT(&one) == 0; core++)
    if (CPU_ISSET(core, &all))
      CPU_SET(core, &one);
  assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
  assert_int_equal(cores_available(root), 1);
  assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
}

/* Of version 2, and of the groups around. 500000 of 100000 are five cores. */
static void a_quota_counts_where_it_is_less(void **state) {
  int cores = count_affine();
  (void)state;
  write_at("/proc/self/cgroup", "0::/a/b\n");
  write_at("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  assert_int_equal(cores_available(root), cores);
  write_at("/sys/fs/cgroup/a/b/cpu.max", "500000 100000\n");
  assert_int_equal(cores_available(root), cores < 5 ? cores : 5);
  write_at("/sys/fs/cgroup/a/cpu.max", "110000 100000\n");
  assert_int_equal(cores_available(root), cores < 2 ? cores : 2);
  write_at("/sys/fs/cgroup/a/cpu.max", "100000 100000\n");
  assert_int_equal(cores_available(root), 1);
  write_at("/sys/fs/cgroup/a/cpu.max", "1000 100000\n");
  assert_int_equal(cores_available(root), 1);
}

static void version_1_has_files_of_its_own(void **state) {
  int cores = count_affine();
  (void)state;
  write_at("/proc/self/cgroup", "7:cpuset:/\n4:cpu,cpuacct:/docker/x\n1:memory:/\n");
  write_at("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"); /* of the mount: the group's path is not there */
  write_at("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  assert_int_equal(cores_available(root), cores);
  write_at("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000\n");
  assert_int_equal(cores_available(root), 1);
  write_at("/proc/self/cgroup", "7:cpuset:/\n4:cpuacct:/\n");
  assert_int_equal(cores_available(root), cores);
}

static void files_that_say_nothing_limit_nothing(void **state) {
  int cores = count_affine();
  (void)state;
  write_at("/proc/self/cgroup", "\n:\n0:\n0::\n0::/c\n");
  write_at("/sys/fs/cgroup/c/cpu.max", "");
  assert_int_equal(cores_available(root), cores);
  write_at("/sys/fs/cgroup/c/cpu.max", "5\n");
  assert_int_equal(cores_available(root), cores);
  write_at("/sys/fs/cgroup/c/cpu.max", "-5 100\n");
  assert_int_equal(cores_available(root), cores);
  write_at("/sys/fs/cgroup/c/cpu.max", "100 0\n");
  assert_int_equal(cores_available(root), cores);
  write_at("/sys/fs/cgroup/c/cpu.max", "99999999999999999999999 1\n");
  assert_int_equal(cores_available(root), cores);
}

static void the_least_of_machine_and_control_groups_is_available(void **state) {
  (void)state;
  assert_true(memory_available_bytes(root) == UINT64_MAX);
  write_at("/proc/meminfo", "MemTotal:  100 kB\nMemAvailable:   80 kB\n");
  assert_int_equal(memory_available_bytes(root), 80 * 1024);
  write_at("/proc/self/cgroup", "0::/a/b\n");
  write_at("/sys/fs/cgroup/a/b/memory.max", "max\n");
  write_at("/sys/fs/cgroup/a/b/memory.current", "10\n");
  assert_int_equal(memory_available_bytes(root), 80 * 1024);
  write_at("/sys/fs/cgroup/a/memory.max", "50000\n"); /* of the group around it */
  write_at("/sys/fs/cgroup/a/memory.current", "30000\n");
  assert_int_equal(memory_available_bytes(root), 20000);
  write_at("/sys/fs/cgroup/a/memory.stat", "anon 20000\ninactive_file 10000\n");
  assert_int_equal(memory_available_bytes(root), 30000);
  write_at("/sys/fs/cgroup/a/memory.current", "70000\n");
  assert_int_equal(memory_available_bytes(root), 0);
  write_at("/proc/self/cgroup", "12:cpu:/\n5:memory:/not/here\n");
  write_at("/sys/fs/cgroup/memory/memory.limit_in_bytes", "4000\n");
  write_at("/sys/fs/cgroup/memory/memory.usage_in_bytes", "1000\n");
  assert_int_equal(memory_available_bytes(root), 3000);
}

static void this_machine_has_memory(void **state) {
  (void)state;
  assert_true(memory_available_bytes("") > 1 << 20);
  assert_true(memory_own_bytes("") >= 1 << 12);
}

static void own_memory_is_that_of_no_file(void **state) {
  (void)state;
  assert_int_equal(memory_own_bytes(root), 0);
  write_at("/proc/self/status", "VmRSS:\t  900 kB\nRssAnon:\t  120 kB\nRssFile:\t 780 kB\n");
  assert_int_equal(memory_own_bytes(root), 120 * 1024);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(without_a_quota_the_affinity_counts, make_root, remove_root),
      cmocka_unit_test_setup_teardown(a_quota_counts_where_it_is_less, make_root, remove_root),
      cmocka_unit_test_setup_teardown(version_1_has_files_of_its_own, make_root, remove_root),
      cmocka_unit_test_setup_teardown(files_that_say_nothing_limit_nothing, make_root, remove_root),
      cmocka_unit_test_setup_teardown(the_least_of_machine_and_control_groups_is_available, make_root,
                                      remove_root),
      cmocka_unit_test_setup_teardown(this_machine_has_memory, make_root, remove_root),
      cmocka_unit_test_setup_teardown(own_memory_is_that_of_no_file, make_root, remove_root),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
