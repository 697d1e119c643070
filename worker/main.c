/* weir-worker: computes gradients for the cluster. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "build_id.h"
#include "common/agree/float_setting.h"
#include "common/base/log.h"
#include "common/base/size.h"
#include "common/http/http.h"
#include "common/machine/cores.h"
#include "common/manager/environment.h"
#include "common/manager/standard_files.h"
#include "common/rpc/address.h"
#include "common/share/segment.h"
#include "worker/help.h"
#include "common/trace/trace.h"
#include "worker/worker.h"

enum { EXIT_FAILED = 1, EXIT_USAGE = 2, THREADS_MAX = 1024 };

static int usage_error(const char *what, const char *value) {
  fprintf(stderr, "weir-worker: %s '%s' (see weir-worker --help)\n", what, value);
  return EXIT_USAGE;
}

static int threads_usual(void) {
  int cores = cores_available("");
  return cores < THREADS_MAX ? cores : THREADS_MAX;
}

static int threads_read(const char *text, int *threads) {
  char *end;
  long value;
  errno = 0;
  value = strtol(text, &end, 10);
  if (errno || end == text || *end || value < 1 || value > THREADS_MAX)
    return usage_error("--threads is a number from 1 to 1024, not", text);
  *threads = (int)value;
  return 0;
}

static int log_format_read(const char *text) {
  enum log_format format;
  if (!log_format_find(text, &format))
    return usage_error("--log-format is text or json, not", text);
  log_set_format(format);
  return 0;
}

static int memory_read(const char *text, uint64_t *bytes) {
  return size_parse(text, bytes) ? 0 : usage_error("--memory is an amount, as 8GB or 1.5GiB, not", text);
}

/* text: of --label; NULL: there are no more. */
static int label_read(const char *text, struct labels *labels) {
  struct err err = ERR_NONE;
  if ((text ? labels_read(labels, text, &err) : labels_read_usual(labels, &err)) == 0)
    return 0;
  fprintf(stderr, "weir-worker: %s%s\n", text ? "--label: " : "", err.text);
  return EXIT_USAGE;
}

static int address_read(const char *text, const char **address) {
  struct err err = ERR_NONE;
  *address = text;
  return rpc_address_check(text, &err) ? usage_error("--listen and --advertise are HOST:PORT, not", text) : 0;
}

/* tls: of --tls, or NULL. insecure: --insecure is given. */
static int security_read(const char *tls, bool insecure, struct worker_options *worker) {
  const struct rpc_security *security = &worker->security;
  struct err err = ERR_NONE;
  if (environment_check(&err) || rpc_security_choose(tls, insecure, &worker->security, &err) ||
      rpc_tls_open(security->folder, &worker->tls, &err) || rpc_tls_require(worker->tls, CERT_WORKER, &err))
    ;
  else if (rpc_addresses_check(worker->coordinator, &err) ||
           rpc_security_check(security, worker->coordinator, &err))
    err_prefix(&err, "--coordinator");
  else if (worker->listen && rpc_security_check(security, worker->listen, &err))
    err_prefix(&err, "--listen");
  else if (worker->http && http_address_check(security, worker->http, &err))
    err_prefix(&err, "--http");
  else if (worker->advertise && rpc_security_check(security, worker->advertise, &err))
    err_prefix(&err, "--advertise");
  if (!err.code)
    return 0;
  fprintf(stderr, "weir-worker: %s\n", err.text);
  return EXIT_USAGE;
}

/* text: of --device, cpu: of --backend; NULL where they are not given. */
static int device_read(const char *text, const char *cpu, struct device_choice *choice) {
  const char *usual = getenv("WEIR_DEVICE"), *name = cpu ? "cpu" : usual && *usual ? usual : "auto";
  struct err err = ERR_NONE;
  if (!backend_find(cpu ? cpu : "cpu"))
    return usage_error("there is no backend", cpu);
  if (cpu && text && strncmp(text, "cuda", 4) == 0)
    return usage_error("--backend is of a CPU: it does not go with --device", text);
  if (device_choose(text ? text : name, backend_find(cpu ? cpu : "cpu"), choice, &err) == 0)
    return 0;
  fprintf(stderr, "weir-worker: --device %s: %s\n", text ? text : name, err.text);
  return EXIT_USAGE;
}

/* A spec names the files that it wants read, and whoever reaches the coordinator may submit one. */
static int check_root(const struct worker_options *worker) {
  struct err err = ERR_NONE;
  if (!worker->data_root.path)
    err_set(
        &err, ERR_INVALID,
        "--data-root DIR is missing: the folder that datasets are read below; '--data-root /' allows every "
        "file that this user may read");
  else if (access(worker->data_root.path, X_OK))
    err_set(&err, ERR_INVALID,
            "--data-root must be a folder that can be read, not '%s' (see weir-worker --help)",
            worker->data_root.path);
  else
    data_root_check(&worker->data_root, worker->tls ? worker->tls->folder : NULL, &err);
  if (err.code)
    fprintf(stderr, "weir-worker: %s\n", err.text);
  return err.code ? EXIT_USAGE : 0;
}

/* The exit status. */
static int answer(int key) {
  const struct page page = {stdout, key == WORKER_MAN ? PAGE_MAN : PAGE_TEXT, "weir " WEIR_BUILD,
                            WEIR_BUILD_DATE};
  struct err err = ERR_NONE;
  if (key == WORKER_VERSION)
    puts("weir-worker " WEIR_BUILD);
  else
    worker_help_print(&page);
  if (!standard_output_finish(&err))
    return 0;
  fprintf(stderr, "weir-worker: %s\n", err.text);
  return EXIT_USAGE;
}

/* 0: serve; otherwise, or when *is_answered, exit with that status. */
static int options_read(int argc, char **argv, struct worker_options *worker, bool *is_answered) {
  const char *backend = NULL, *device = NULL, *tls = NULL;
  bool insecure = false;
  struct program_line line = {.options = worker_program_options, .argc = argc, .argv = argv};
  struct err err = ERR_NONE;
  int key, status = 0;
  while (!status && (key = program_option_read(&line, &err)) > 0) {
    if (key == WORKER_COORDINATOR)
      worker->coordinator = line.value;
    else if (key == WORKER_DATA_ROOT)
      worker->data_root.path = line.value;
    else if (key == WORKER_FOLLOW_LINKS)
      worker->data_root.follows_links = true;
    else if (key == WORKER_DEVICE)
      device = line.value;
    else if (key == WORKER_THREADS)
      status = threads_read(line.value, &worker->threads);
    else if (key == WORKER_MEMORY)
      status = memory_read(line.value, &worker->memory_bytes);
    else if (key == WORKER_LABEL)
      status = label_read(line.value, &worker->labels);
    else if (key == WORKER_BACKEND)
      backend = line.value;
    else if (key == WORKER_HTTP)
      worker->http = line.value;
    else if (key == WORKER_LOG_FORMAT)
      status = log_format_read(line.value);
    else if (key == WORKER_TRACE)
      worker->trace = line.value;
    else if (key == WORKER_TLS)
      tls = line.value;
    else if (key == WORKER_NO_SHM)
      segment_turn_off();
    else if (key == WORKER_INSECURE)
      insecure = true;
    else if (key == WORKER_LISTEN || key == WORKER_ADVERTISE)
      status = address_read(line.value, key == WORKER_LISTEN ? &worker->listen : &worker->advertise);
    else {
      *is_answered = true;
      return answer(key);
    }
  }
  if (err.code) {
    fprintf(stderr, "weir-worker: %s (see weir-worker --help)\n", err.text);
    status = EXIT_USAGE;
  }
  if (!status)
    status = label_read(NULL, &worker->labels);
  if (!status)
    status = security_read(tls, insecure, worker);
  if (!status)
    status = device_read(device, backend, &worker->device);
  return status ? status : check_root(worker);
}

static int serve(const struct worker_options *worker) {
  struct err err = ERR_NONE;
  int status;
  signal(SIGPIPE, SIG_IGN); /* who leaves off reading our log or timeline does not end the worker */
  if (worker->trace && trace_open(worker->trace, &err)) {
    fprintf(stderr, "weir-worker: --trace: %s\n", err.text);
    return EXIT_USAGE;
  }
  status = worker_serve(worker, &err) ? 0 : EXIT_FAILED;
  if (status && err.code != ERR_LOST_DEVICE)
    fprintf(stderr, "weir-worker: %s\n", err.text);
  trace_close();
  return status;
}

STANDARD_FILES_OPEN_FIRST;

int main(int argc, char **argv) {
  const char *coordinator = getenv("WEIR_COORDINATOR"), *data_root = getenv("WEIR_DATA_ROOT");
  const char *http = getenv("WEIR_HTTP");
  struct worker_options worker = {.coordinator = coordinator && *coordinator ? coordinator : "127.0.0.1:7070",
                                  .data_root.path = data_root && *data_root ? data_root : NULL,
                                  .http = http && *http ? http : NULL,
                                  .threads = threads_usual()};
  bool is_answered = false;
  int status;
  float_setting_apply();
  worker_block_signals();
  status = options_read(argc, argv, &worker, &is_answered);
  if (!status && !is_answered)
    status = serve(&worker);
  labels_free(&worker.labels);
  rpc_tls_close(worker.tls);
  return status;
}
