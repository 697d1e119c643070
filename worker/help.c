/* The options of weir-worker, and its help. */
#include "worker/help.h"

const struct program_option worker_program_options[] = {
    {"coordinator", "HOST:PORT", WORKER_COORDINATOR,
     "where the coordinator listens; several, separated by commas, where it may be: one of them leads, the "
     "others stand by. "
     "Default: $WEIR_COORDINATOR, else 127.0.0.1:7070."},
    {"data-root", "DIR", WORKER_DATA_ROOT,
     "datasets are read below this directory only: a run's data.root is joined to it, or, when absolute, "
     "must lie below it; / "
     "allows every file that the worker may read. Neither in it nor around it may the folder of --tls be. No "
     "default but "
     "$WEIR_DATA_ROOT."},
    {"follow-links", NULL, WORKER_FOLLOW_LINKS,
     "follow symbolic links below the data root that lead out of it; without it they are refused."},
    {"device", "DEVICE", WORKER_DEVICE,
     "what computes: cpu; cuda, the first GPU; cuda:N or cuda:N,N..., those GPUs, of which each computes one "
     "microbatch at a "
     "time, or its stage of one (workers.stages); auto, all GPUs that there are, or else the CPU. Default: "
     "$WEIR_DEVICE, else "
     "auto."},
    {"threads", "N", WORKER_THREADS,
     "executors of a CPU, each of which computes one microbatch at a time on one core; beside GPUs, threads "
     "that read ahead. "
     "Default: the cores that the process may use."},
    {"memory", "SIZE", WORKER_MEMORY,
     "what executors may take together for what they compute, as 8GB or 1.5GiB; of several GPUs, on each: of "
     "runs whose spec "
     "has workers.recompute: auto or workers.stages: auto. Default: what is free."},
    {"label", "KEY=VALUE", WORKER_LABEL,
     "what this machine has, or where it is, for runs whose spec requires it (workers.require: {gpu: h200}); "
     "again for each "
     "label, or several with commas between them: at most 16, of letters, digits, '.', '_', '-' and '/'. "
     "Default: "
     "$WEIR_LABELS."},
    {"backend", "NAME", WORKER_BACKEND,
     "how a CPU computes: cpu, fast; ref, plain loops to compare with. Default: cpu."},
    {"trace", "FILE", WORKER_TRACE,
     "write a timeline of what it does to FILE, in Chrome's trace format: for ui.perfetto.dev or "
     "chrome://tracing; a file that "
     "is there already is kept as FILE.1, FILE.2, ..."},
    {"http", "HOST:PORT", WORKER_HTTP,
     "serve /metrics there, for Prometheus; port 0 takes a free one, which the log names. Beyond this "
     "machine it "
     "needs --tls, and whoever asks a certificate of ca.pem's authorities. Default: $WEIR_HTTP, else no such "
     "port."},
    {"log-format", "FORMAT", WORKER_LOG_FORMAT,
     "text or json: how lines of the log are written, one an event. Default: $WEIR_LOG_FORMAT, else text."},
    {"listen", "HOST:PORT", WORKER_LISTEN,
     "where other workers reach this one, if each has some stages of a model (workers.stages); port 0 takes "
     "a free one. "
     "Default: a free port of the address from which the coordinator is reached, or a socket beside its."},
    {"advertise", "HOST:PORT", WORKER_ADVERTISE,
     "the same as others see it; port 0 is the bound port. Default: the listen address; this host's name "
     "when that is 0.0.0.0 "
     "or [::]."},
    {"tls", "DIR", WORKER_TLS,
     "the folder of this process's certificate, as `weir certs` makes it: ca.pem, cert.pem and key.pem, of "
     "the role worker or "
     "all. Connections are encrypted, and both ends need a certificate of ca.pem's authorities. Default: "
     "$WEIR_TLS, else "
     "plaintext, on this machine alone."},
    {"no-shm", NULL, WORKER_NO_SHM,
     "send blocks through sockets also to servers of this host and user, with which memory is shared "
     "otherwise."},
    {"insecure", NULL, WORKER_INSECURE,
     "let plaintext go beyond this machine: to a coordinator, servers and workers there, without "
     "certificates. This worker "
     "then obeys whatever answers at these addresses. Not needed for localhost, 127.0.0.0/8 and [::1]."},
    {"help", NULL, WORKER_HELP, "print this page."},
    {"man", NULL, WORKER_MAN, "print this page as a man page."},
    {"version", NULL, WORKER_VERSION, "print the version, alone."},
    {0}};

static void environment_print(const struct page *page) {
  page_heading(page, "environment");
  page_item(page, "WEIR_COORDINATOR", "the coordinator, unless --coordinator says otherwise.");
  page_item(page, "WEIR_DATA_ROOT", "the directory of datasets, unless --data-root says otherwise.");
  page_item(page, "WEIR_DEVICE", "the device, unless --device says otherwise.");
  page_item(page, "WEIR_TLS", "the folder of certificates, unless --tls or --insecure says otherwise.");
  page_item(page, "WEIR_INSECURE", "1: as --insecure, where there are no certificates.");
  page_item(page, "WEIR_HTTP", "where /metrics is served, unless --http says otherwise.");
  page_item(page, "WEIR_SHM", "off: as --no-shm.");
  page_item(page, "WEIR_LABELS", "KEY=VALUE,...: the labels, unless --label says otherwise.");
  page_item(page, "WEIR_CUDA",
            "the file of weir-cuda.so, which computes on GPUs. Default: beside weir-worker, else in "
            "../lib/weir or ../lib.");
  page_item(page, "WEIR_NODE",
            "workers with the same take themselves to share memory (train.collective), as containers may "
            "that were given one "
            "/dev/shm. Default: found out.");
  page_item(page, "WEIR_LOG", "the least level that is logged: debug, info, warn, error. Default: info.");
  page_item(page, "WEIR_LOG_FORMAT", "text or json, unless --log-format says otherwise.");
}

void worker_help_print(const struct page *page) {
  page_title(page, "weir-worker", "computes the gradients of training runs for a Weir cluster");
  page_usage(page, "weir-worker --data-root DIR [OPTION]...");
  page_description(
      page, "Joins the cluster of a coordinator and computes what it is given: microbatches of a run's steps "
            "and chunks "
            "of its evaluations. It may join and leave at any time; the weights that a run ends with do not "
            "depend on "
            "it. While the coordinator is away it goes on with what it has, and keeps trying to reach it.");
  page_heading(page, "options");
  program_options_print(worker_program_options, page);
  environment_print(page);
  page_heading(page, "signals");
  page_item(page, "SIGTERM, SIGINT",
            "leave: the coordinator gives the work to others, then the worker exits, after five seconds at "
            "the latest. A "
            "second one ends it at once.");
  page_heading(page, "exit status");
  page_row(page, "0", 4, "it left");
  page_row(page, "1", 4, "it left because its device had failed, or could not listen at --http");
  page_row(page, "2", 4, "wrong usage, or a device that this machine does not have");
  page_heading(page, "examples");
  page_lines(page, "weir-worker --coordinator 10.0.0.5:7070 --data-root /usr/share/datasets --threads 8 \\\n"
                   "    --tls certs/worker\n");
}
