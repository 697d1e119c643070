/* The private cluster of `weir train`, with scripts in place of its programs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "client/cluster/child.h"
#include "client/cluster/launcher.h"
#include "client/cluster/stop.h"
#include "tests/support/common/patience.h"

/* Each prints its arguments and its store, then its pid, which tests wait for; a server announces an address.
 */
static const char server_script[] =
    "#!/bin/sh\n"
    "echo $* with $WEIR_STORE\n"
    "echo pid $$\n"
    "case $* in *parameters*) port=4343;; *) port=4242;; esac\n"
    "for a in \"$@\"; do case $a in\n"
    "--announce-fd=*) echo 127.0.0.1:$port > /proc/self/fd/${a#*=};;\n"
    "esac; done\n"
    "case $* in *parameters*) [ -z \"$SERVER_FAILS\" ] || { echo no luck; exit 3; };; esac\n"
    "exec sleep 1000\n";
static const char worker_script[] =
    "#!/bin/sh\necho $*\necho pid $$\n"
    "[ -z \"$WORKER_CANNOT\" ] || { echo weir-worker: --device cuda: no driver; exit 2; }\n"
    "exec sleep 1000\n";

static char folder[] = "/tmp/weir-launcher-XXXXXX";

static void write_script(const char *name, const char *text) {
  char path[256];
  FILE *file;
  snprintf(path, sizeof path, "%s/%s", folder, name);
  file = fopen(path, "w");
  assert_non_null(file);
  fputs(text, file);
  fclose(file);
  chmod(path, 0755);
}

static int folder_make(void **state) {
  char path[4096];
  (void)state;
  assert_non_null(mkdtemp(folder));
  snprintf(path, sizeof path, "%s:%s", folder, getenv("PATH"));
  setenv("PATH", path, 1);
  write_script("weir-server", server_script);
  write_script("weir-worker", worker_script);
  return 0;
}

static int folder_remove(void **state) {
  static const char *const names[] = {"weir-server",  "weir-worker",  "coordinator.log",
                                      "server-1.log", "worker-1.log", "worker-2.log",
                                      "empty"};
  char path[256];
  (void)state;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    snprintf(path, sizeof path, "%s/%s", folder, names[i]);
    remove(path);
  }
  return rmdir(folder);
}

/* The pid that a child's log names at its n-th start, from 1; waits for it. */
static pid_t logged_pid(const char *name, int n) {
  char path[256], line[512];
  snprintf(path, sizeof path, "%s/%s.log", folder, name);
  for (int attempt = 0; attempt < patience_ms() / 10; attempt++) {
    FILE *file = fopen(path, "r");
    int found = 0, pid = 0;
    while (file && found < n && fgets(line, sizeof line, file))
      if (strchr(line, '\n') && sscanf(line, "pid %d", &pid) == 1)
        found++;
    if (file)
      fclose(file);
    if (found == n)
      return pid;
    stop_wait(10);
  }
  fail_msg("%s was not started %d times", name, n);
  return 0;
}

/* How many lines of a child's log hold the text. */
static int logged_lines(const char *name, const char *text) {
  char path[256], line[512];
  int found = 0;
  FILE *file;
  snprintf(path, sizeof path, "%s/%s.log", folder, name);
  file = fopen(path, "r");
  assert_non_null(file);
  while (fgets(line, sizeof line, file))
    found += strstr(line, text) != NULL;
  fclose(file);
  return found;
}

/* Waits until n lines of a child's log hold the text. */
static void wait_logged(const char *name, const char *text, int n) {
  for (int attempt = 0; attempt < patience_ms() / 10 && logged_lines(name, text) < n; attempt++)
    stop_wait(10);
  assert_int_equal(logged_lines(name, text), n);
}

static struct launcher *start(struct launcher_options options) {
  struct launcher *launcher = NULL;
  struct err err = ERR_NONE;
  options.logs = folder;
  options.store = "file:///nowhere";
  options.data_root = "/";
  if (launcher_start(&options, &launcher, &err))
    fail_msg("%s", err.text);
  return launcher;
}

static void a_missing_program_is_named(void **state) {
  struct launcher_options options = {
      .logs = folder, .store = "file:///nowhere", .data_root = "/", .servers = 1, .workers = 1};
  struct launcher *launcher = NULL;
  struct err err = ERR_NONE;
  char path[4096];
  (void)state;
  snprintf(path, sizeof path, "%s", getenv("PATH"));
  setenv("PATH", "/nonexistent", 1);
  assert_int_equal(launcher_start(&options, &launcher, &err), ERR_NOT_FOUND);
  assert_non_null(strstr(err.text, "weir-server"));
  setenv("PATH", path, 1);
}

static void children_run_until_the_launcher_stops(void **state) {
  struct launcher *launcher = start((struct launcher_options){.servers = 1, .workers = 2, .threads = 3});
  static const char *const names[] = {"coordinator", "server-1", "worker-1", "worker-2"};
  pid_t pids[4];
  (void)state;
  assert_string_equal(launcher_address(launcher), "127.0.0.1:4242");
  for (int i = 0; i < 4; i++) {
    pids[i] = logged_pid(names[i], 1);
    assert_int_equal(kill(pids[i], 0), 0);
    assert_int_equal(getpgid(pids[i]), pids[i]);
  }
  launcher_stop(launcher);
  for (int i = 0; i < 4; i++)
    assert_int_equal(kill(pids[i], 0), -1);
}

static void a_dead_worker_is_started_again(void **state) {
  struct launcher *launcher = start((struct launcher_options){.workers = 1, .threads = 1, .restart = true});
  int starts = 2; /* one by the test before */
  (void)state;
  for (int i = 0; i < 2; i++)
    assert_int_equal(kill(logged_pid("worker-1", starts++), SIGKILL), 0);
  assert_int_equal(kill(logged_pid("worker-1", starts), 0), 0);
  assert_int_equal(stop_cause(), STOP_NONE);
  launcher_stop(launcher);
}

static void dead_servers_and_coordinators_are_started_again_where_they_listened(void **state) {
  struct launcher *launcher =
      start((struct launcher_options){.servers = 1, .workers = 1, .threads = 1, .restart = true});
  (void)state;
  assert_int_equal(kill(logged_pid("server-1", 2), SIGKILL), 0); /* one start by a test before */
  logged_pid("server-1", 3);
  assert_int_equal(kill(logged_pid("coordinator", 3), SIGKILL), 0);
  logged_pid("coordinator", 4);
  logged_pid("worker-1", 5); /* else it is stopped before it has said so, and later starts are miscounted */
  wait_logged("coordinator", "--listen=127.0.0.1:4242", 1);
  wait_logged("server-1", "--listen=127.0.0.1:4343", 1);
  assert_int_equal(stop_cause(), STOP_NONE);
  launcher_stop(launcher);
}

static void the_store_is_told_by_the_environment_alone(void **state) {
  (void)state; /* of the test before */
  assert_int_equal(logged_lines("coordinator", "with file:///nowhere"), 4);
  assert_int_equal(logged_lines("server-1", "with file:///nowhere"), 3);
  assert_int_equal(logged_lines("coordinator", "--store"), 0);
  assert_int_equal(logged_lines("server-1", "--store"), 0);
}

static void without_restart_the_others_go_on(void **state) {
  struct launcher *launcher = start((struct launcher_options){.workers = 2, .threads = 1});
  pid_t first = logged_pid("worker-1", 6), second = logged_pid("worker-2", 2);
  (void)state;
  kill(first, SIGKILL);
  for (int attempt = 0; attempt < patience_ms() / 10 && kill(first, 0) == 0; attempt++)
    stop_wait(10);
  assert_int_equal(kill(first, 0), -1);
  assert_int_equal(stop_cause(), STOP_NONE);
  assert_int_equal(kill(second, 0), 0);
  launcher_stop(launcher);
}

static void servers_share_the_cores_out(void **state) {
  int cores = launcher_threads(0, 1);
  struct launcher *launcher = start((struct launcher_options){.servers = 1, .threads = 1});
  char argument[32];
  (void)state;
  snprintf(argument, sizeof argument, "--threads=%d ", launcher_server_threads(1));
  logged_pid("server-1", 4);
  wait_logged("server-1", argument, 4); /* with the starts by tests before */
  launcher_stop(launcher);
  assert_int_equal(launcher_server_threads(1), cores < 2 ? 2 : cores < 16 ? cores : 16);
  assert_int_equal(launcher_server_threads(cores), 2);
  if (cores >= 8 && cores <= 64)
    assert_int_equal(launcher_server_threads(4), cores / 4);
}

static void gpus_are_dealt_out_to_the_workers(void **state) {
  static const struct {
    const char *device;
    int worker, workers;
    const char *dealt;
  } cases[] = {{"cuda:4,5,6", 0, 1, "cuda:4,5,6"},
               {"cuda:4,5,6", 0, 2, "cuda:4,6"},
               {"cuda:4,5,6", 1, 2, "cuda:5"},
               {"cuda:4,5", 1, 2, "cuda:5"},
               {"cuda:4,5", 2, 3, "cuda:4"},
               {"cuda:7", 1, 2, "cuda:7"},
               {"cuda", 1, 2, "cuda"},
               {"auto", 1, 2, "auto"},
               {"cuda:", 1, 2, "cuda:"},
               {"cuda:0,", 1, 2, "cuda:"}};
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char *dealt = launcher_deal_device(cases[i].device, cases[i].worker, cases[i].workers);
    assert_string_equal(dealt, cases[i].dealt);
    free(dealt);
  }
}

static void workers_are_told_their_device_and_the_file_of_their_timeline(void **state) {
  struct launcher *launcher = start((struct launcher_options){
      .workers = 2, .threads = 1, .device = "cuda:0,1", .trace = "some.where/time.json"});
  (void)state;
  logged_pid("worker-1", 7);
  logged_pid("worker-2", 3);
  wait_logged("worker-1", "--device=cuda:0 --trace=some.where/time-1.json", 1);
  wait_logged("worker-2", "--device=cuda:1 --trace=some.where/time-2.json", 1);
  launcher_stop(launcher);
}

/* The last but one: a stop stays. */
static void a_server_that_dies_over_and_over_is_final_and_its_last_words_are_shown(void **state) {
  struct launcher *launcher;
  struct err err = ERR_NONE;
  (void)state;
  setenv("SERVER_FAILS", "1", 1);
  launcher = start((struct launcher_options){.servers = 1, .workers = 1, .threads = 1, .restart = true});
  assert_true(stop_wait(patience_ms()));
  assert_int_equal(stop_cause(), STOP_CHILD);
  launcher_explain(launcher, &err);
  assert_int_equal(err.code, ERR_INTERNAL);
  assert_non_null(strstr(err.text, "server-1 died (exit status 3): no luck"));
  launcher_stop(launcher);
}

/* The stop of the test before stays: nothing says when this one comes. */
static void a_worker_that_cannot_work_here_is_final_and_its_line_is_the_error(void **state) {
  struct launcher *launcher;
  struct err err = ERR_NONE;
  (void)state;
  setenv("WORKER_CANNOT", "1", 1);
  launcher = start((struct launcher_options){.servers = 1, .workers = 1, .threads = 1, .restart = true});
  for (int attempt = 0; attempt < patience_ms() / 10 && err.code != ERR_INVALID; attempt++) {
    usleep(10000);
    launcher_explain(launcher, &err);
  }
  assert_int_equal(err.code, ERR_INVALID);
  assert_string_equal(err.text, "--device cuda: no driver");
  launcher_stop(launcher);
  unsetenv("WORKER_CANNOT");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_missing_program_is_named),
      cmocka_unit_test(children_run_until_the_launcher_stops),
      cmocka_unit_test(a_dead_worker_is_started_again),
      cmocka_unit_test(dead_servers_and_coordinators_are_started_again_where_they_listened),
      cmocka_unit_test(the_store_is_told_by_the_environment_alone),
      cmocka_unit_test(without_restart_the_others_go_on),
      cmocka_unit_test(servers_share_the_cores_out),
      cmocka_unit_test(gpus_are_dealt_out_to_the_workers),
      cmocka_unit_test(workers_are_told_their_device_and_the_file_of_their_timeline),
      cmocka_unit_test(a_server_that_dies_over_and_over_is_final_and_its_last_words_are_shown),
      cmocka_unit_test(a_worker_that_cannot_work_here_is_final_and_its_line_is_the_error),
  };
  return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
