/* weir-worker: computes gradients for the cluster. */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "build_id.h"
#include "common/agree/float_setting.h"
#include "common/base/size.h"
#include "common/rpc/address.h"
#include "worker/trace/trace.h"
#include "worker/worker.h"

enum { EXIT_LOST_DEVICE = 1, EXIT_USAGE = 2, THREADS_MAX = 1024 };

static const char help[] =
    "weir-worker - computes the gradients of training runs for a Weir cluster\n"
    "\n"
    "USAGE\n"
    "  weir-worker --data-root DIR [--follow-links] [--coordinator HOST:PORT[,...]] [--device DEVICE]\n"
    "              [--threads N] [--memory SIZE] [--label KEY=VALUE]... [--backend NAME]\n"
    "              [--trace FILE] [--listen HOST:PORT] [--advertise HOST:PORT]\n"
    "              [--tls DIR | --insecure]\n"
    "\n"
    "DESCRIPTION\n"
    "  Joins the cluster of a coordinator and computes what it is given: microbatches of a run's steps and\n"
    "  chunks of its evaluations. It may join and leave at any time; the weights that a run ends with do\n"
    "  not depend on it. While the coordinator is away it goes on with what it has, and keeps trying to\n"
    "  reach it.\n"
    "\n"
    "OPTIONS\n"
    "  --coordinator HOST:PORT  where the coordinator listens; several, separated by commas, where it may "
    "be:\n"
    "                           one of them leads, the others stand by\n"
    "                           (default: $WEIR_COORDINATOR, else 127.0.0.1:7070)\n"
    "  --data-root DIR          datasets are read below this directory only: a run's data.root is joined to\n"
    "                           it, or, when absolute, must lie below it; / allows every file that the\n"
    "                           worker may read (no default but $WEIR_DATA_ROOT). Neither in it nor around\n"
    "                           it may the folder of --tls be\n"
    "  --follow-links           follow symbolic links below the data root that lead out of it; without it\n"
    "                           they are refused\n"
    "  --device DEVICE          what computes: cpu; cuda, the first GPU; cuda:N or cuda:N,N..., those GPUs, "
    "of\n"
    "                           which each computes one microbatch at a time, or its stage of one\n"
    "                           (workers.stages); auto, all GPUs that there are, or else the CPU\n"
    "                           (default: $WEIR_DEVICE, else auto)\n"
    "  --threads N              executors of a CPU, each of which computes one microbatch at a time on one\n"
    "                           core; beside GPUs, threads that read ahead (default: the number of online\n"
    "                           cores)\n"
    "  --memory SIZE            what executors may take together for what they compute, as 8GB or 1.5GiB; "
    "of\n"
    "                           several GPUs, on each: of runs whose spec has workers.recompute: auto\n"
    "                           or workers.stages: auto (default: what is free)\n"
    "  --label KEY=VALUE        what this machine has, or where it is, for runs whose spec requires it\n"
    "                           (workers.require: {gpu: h200}); again for each label, or several with\n"
    "                           commas between them: at most 16, of letters, digits, '.', '_', '-' and '/'\n"
    "                           (default: $WEIR_LABELS)\n"
    "  --backend NAME           how a CPU computes: cpu, fast; ref, plain loops to compare with\n"
    "                           (default: cpu)\n"
    "  --trace FILE             write a timeline of what it does to FILE, in Chrome's trace format: for\n"
    "                           ui.perfetto.dev or chrome://tracing; a file that is there already is\n"
    "                           kept as FILE.1, FILE.2, ...\n"
    "  --listen HOST:PORT       where other workers reach this one, if each has some stages of a model\n"
    "                           (workers.stages); port 0 takes a free one (default: a free port of the\n"
    "                           address from which the coordinator is reached)\n"
    "  --advertise HOST:PORT    the same as others see it; port 0 is the bound port (default: the listen\n"
    "                           address; this host's name when that is 0.0.0.0 or [::])\n"
    "  --tls DIR                the folder of this process's certificate, as `weir certs` makes it: ca.pem,\n"
    "                           cert.pem and key.pem, of the role worker or all. Connections are encrypted, "
    "and\n"
    "                           both ends need a certificate of ca.pem's authorities (default: $WEIR_TLS, "
    "else\n"
    "                           plaintext, on this machine alone)\n"
    "  --insecure               let plaintext go beyond this machine: to a coordinator, servers and workers "
    "there,\n"
    "                           without certificates. This worker then obeys whatever answers at these "
    "addresses.\n"
    "                           Not needed for localhost, 127.0.0.0/8 and [::1]\n"
    "  --help                   this text\n"
    "  --version                the version, alone\n"
    "\n"
    "ENVIRONMENT\n"
    "  WEIR_COORDINATOR         the coordinator, unless --coordinator says otherwise\n"
    "  WEIR_DATA_ROOT           the directory of datasets, unless --data-root says otherwise\n"
    "  WEIR_DEVICE              the device, unless --device says otherwise\n"
    "  WEIR_TLS                 the folder of certificates, unless --tls or --insecure says otherwise\n"
    "  WEIR_INSECURE            1: as --insecure, where there are no certificates\n"
    "  WEIR_LABELS              KEY=VALUE,...: the labels, unless --label says otherwise\n"
    "  WEIR_CUDA                the file of weir-cuda.so, which computes on GPUs (default: beside "
    "weir-worker,\n"
    "                           else in ../lib)\n"
    "  WEIR_NODE                workers with the same take themselves to share memory (train.collective), "
    "as\n"
    "                           containers may that were given one /dev/shm (default: found out)\n"
    "  WEIR_LOG                 the least level that is logged: debug, info, warn, error (default: info)\n"
    "\n"
    "SIGNALS\n"
    "  SIGTERM, SIGINT          leave: the coordinator gives the work to others, then the worker exits, "
    "after\n"
    "                           five seconds at the latest. A second one ends it at once.\n"
    "\n"
    "EXIT STATUS\n"
    "  0 it left; 1 it left because its device had failed; 2 wrong usage, or a device that this machine does "
    "not have\n"
    "\n"
    "EXAMPLE\n"
    "  weir-worker --coordinator 10.0.0.5:7070 --data-root /usr/share/datasets --threads 8 \\\n"
    "      --tls certs/worker\n";

static int usage_error(const char *what, const char *value) {
  fprintf(stderr, "weir-worker: %s '%s' (see weir-worker --help)\n", what, value);
  return EXIT_USAGE;
}

static int threads_online(void) {
  long online = sysconf(_SC_NPROCESSORS_ONLN);
  return online < 1 ? 1 : online > THREADS_MAX ? THREADS_MAX : (int)online;
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
  if (rpc_security_choose(tls, insecure, &worker->security, &err) ||
      rpc_tls_open(security->folder, &worker->tls, &err) || rpc_tls_require(worker->tls, CERT_WORKER, &err))
    ;
  else if (rpc_addresses_check(worker->coordinator, &err) ||
           rpc_security_check(security, worker->coordinator, &err))
    err_prefix(&err, "--coordinator");
  else if (worker->listen && rpc_security_check(security, worker->listen, &err))
    err_prefix(&err, "--listen");
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

enum option_key {
  OPTION_COORDINATOR = 256,
  OPTION_DATA_ROOT,
  OPTION_FOLLOW_LINKS,
  OPTION_DEVICE,
  OPTION_THREADS,
  OPTION_MEMORY,
  OPTION_LABEL,
  OPTION_BACKEND,
  OPTION_TRACE,
  OPTION_LISTEN,
  OPTION_ADVERTISE,
  OPTION_TLS,
  OPTION_INSECURE,
  OPTION_HELP,
  OPTION_VERSION
};

static const struct option options[] = {
    {"coordinator", required_argument, NULL, OPTION_COORDINATOR},
    {"data-root", required_argument, NULL, OPTION_DATA_ROOT},
    {"follow-links", no_argument, NULL, OPTION_FOLLOW_LINKS},
    {"device", required_argument, NULL, OPTION_DEVICE},
    {"threads", required_argument, NULL, OPTION_THREADS},
    {"memory", required_argument, NULL, OPTION_MEMORY},
    {"label", required_argument, NULL, OPTION_LABEL},
    {"backend", required_argument, NULL, OPTION_BACKEND},
    {"trace", required_argument, NULL, OPTION_TRACE},
    {"listen", required_argument, NULL, OPTION_LISTEN},
    {"advertise", required_argument, NULL, OPTION_ADVERTISE},
    {"tls", required_argument, NULL, OPTION_TLS},
    {"insecure", no_argument, NULL, OPTION_INSECURE},
    {"help", no_argument, NULL, OPTION_HELP},
    {"version", no_argument, NULL, OPTION_VERSION},
    {0},
};

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

/* 0: serve; otherwise, or when *is_answered, exit with that status. */
static int options_read(int argc, char **argv, struct worker_options *worker, bool *is_answered) {
  const char *backend = NULL, *device = NULL, *tls = NULL;
  bool insecure = false;
  int key, status = 0;
  while (!status && (key = getopt_long(argc, argv, "", options, NULL)) != -1) {
    if (key == OPTION_COORDINATOR)
      worker->coordinator = optarg;
    else if (key == OPTION_DATA_ROOT)
      worker->data_root.path = optarg;
    else if (key == OPTION_FOLLOW_LINKS)
      worker->data_root.follows_links = true;
    else if (key == OPTION_DEVICE)
      device = optarg;
    else if (key == OPTION_THREADS)
      status = threads_read(optarg, &worker->threads);
    else if (key == OPTION_MEMORY)
      status = memory_read(optarg, &worker->memory_bytes);
    else if (key == OPTION_LABEL)
      status = label_read(optarg, &worker->labels);
    else if (key == OPTION_BACKEND)
      backend = optarg;
    else if (key == OPTION_TRACE)
      worker->trace = optarg;
    else if (key == OPTION_TLS)
      tls = optarg;
    else if (key == OPTION_INSECURE)
      insecure = true;
    else if (key == OPTION_LISTEN || key == OPTION_ADVERTISE)
      status = address_read(optarg, key == OPTION_LISTEN ? &worker->listen : &worker->advertise);
    else if (key == OPTION_HELP || key == OPTION_VERSION) {
      fputs(key == OPTION_HELP ? help : "weir-worker " WEIR_BUILD "\n", stdout);
      *is_answered = true;
      return 0;
    } else
      status = EXIT_USAGE; /* getopt has said why */
  }
  if (!status && optind < argc)
    status = usage_error("unexpected argument", argv[optind]);
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
  status = worker_serve(worker) ? 0 : EXIT_LOST_DEVICE;
  trace_close();
  return status;
}

int main(int argc, char **argv) {
  const char *coordinator = getenv("WEIR_COORDINATOR"), *data_root = getenv("WEIR_DATA_ROOT");
  struct worker_options worker = {.coordinator = coordinator && *coordinator ? coordinator : "127.0.0.1:7070",
                                  .data_root.path = data_root && *data_root ? data_root : NULL,
                                  .threads = threads_online()};
  bool is_answered = false;
  int status;
  float_setting_apply();
  status = options_read(argc, argv, &worker, &is_answered);
  if (!status && !is_answered)
    status = serve(&worker);
  labels_free(&worker.labels);
  rpc_tls_close(worker.tls);
  return status;
}
