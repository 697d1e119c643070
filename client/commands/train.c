/* weir train: a private cluster on this machine, one run, its results. */
#include <signal.h>
#include <stdio.h>

#include "client/cluster/stop.h"
#include "client/cluster/training.h"
#include "client/command.h"

static void summary_print(const struct training *training);

static int train_run(const struct args *args) {
  struct training training = {.args = args};
  struct err err = ERR_NONE;
  int status;
  stop_on_signals();
  signal(SIGPIPE, SIG_IGN); /* a reader of our output that leaves does not end the training */
  if (training_prepare(&training, &err) == 0 && training_launch(&training, &err) == 0)
    training_run(&training, &err);
  training_stop(&training, &err);
  if (err.code)
    status = command_fail(&err);
  else if ((status = follow_exit(&training.result)) == EXIT_DONE)
    summary_print(&training);
  if (training.run.run && (status == EXIT_INTERRUPTED || status == EXIT_RUN_FAILED)) {
    printf("to resume: ");
    training_print_resume(&training, stdout);
    fflush(stdout);
  }
  training_fini(&training);
  return status;
}

static void summary_print(const struct training *training) {
  const char *out = training->out;
  printf("\n");
  follow_summary(stdout, &training->result);
  printf("files      %s/model.onnx\n           %s/model.safetensors\n", out, out);
  if (training_has_average(training))
    printf("           %s/model.average.onnx\n           %s/model.average.safetensors\n", out, out);
  printf("           %s/metrics.jsonl\n           %s/spec.yaml\n", out, out);
  fflush(stdout);
}

static const struct option_def train_options[] = {
    {.name = "workers",
     .kind = OPTION_COUNT,
     .value = "N",
     .least = 1,
     .most = 256,
     .help = "worker processes to start, which compute gradients. Default: the spec's workers.min."},
    {.name = "servers",
     .kind = OPTION_COUNT,
     .value = "N",
     .fallback = "1",
     .least = 1,
     .most = 256,
     .help = "parameter server processes to start, which hold the weights."},
    {.name = "threads",
     .kind = OPTION_COUNT,
     .value = "N",
     .least = 1,
     .most = 1024,
     .help =
         "executors of each worker, each of which computes one microbatch at a time; beside GPUs, threads "
         "that read ahead. Default: this machine's cores, shared out among the workers."},
    {.name = "device",
     .kind = OPTION_TEXT,
     .value = "DEVICE",
     .help =
         "what the workers compute on: cpu; cuda, the first GPU; cuda:N or cuda:N,N..., GPUs that are dealt "
         "out to the workers; auto. Default: $WEIR_DEVICE, else auto: all GPUs, or else the CPU."},
    {.name = "memory",
     .kind = OPTION_SIZE,
     .value = "SIZE",
     .help = "the memory that each worker's executors may take together for what they compute, as 8GB or "
             "1.5GiB: of a run whose spec has workers.recompute: auto or workers.stages: auto. Default: what "
             "is free when it is "
             "loaded."},
    {.name = "label",
     .kind = OPTION_TEXTS,
     .value = "KEY=VALUE",
     .help = "a label of the workers, for a spec that requires it (workers.require); again for each label. "
             "Default: $WEIR_LABELS."},
    {.name = "data-root",
     .kind = OPTION_TEXT,
     .value = "DIR",
     .help = "the spec's data.root lies below this folder, or is joined to it if it is relative. "
             "Default: its data.root itself, or / where that is relative."},
    {.name = "store",
     .kind = OPTION_TEXT,
     .value = "URL",
     .help = "where checkpoints are kept: file:///absolute/folder, redis://HOST[:PORT][/DB] and others, see "
             "`weir-server --help`; no other cluster's. A password in it is refused: set "
             "WEIR_STORE_PASSWORD_FILE or WEIR_STORE_PASSWORD. Default: the folder store in --out."},
    {.name = "out",
     .kind = OPTION_TEXT,
     .value = "DIR",
     .help = "where the results go. Default: weir-out/NAME, after the spec's name."},
    {.name = "metrics",
     .kind = OPTION_TEXT,
     .value = "FILE",
     .help = "append one JSON object a line to FILE for each step and evaluation and for the end, beside "
             "DIR/metrics.jsonl."},
    {.name = "trace",
     .kind = OPTION_TEXT,
     .value = "FILE.json",
     .help =
         "a timeline of what each worker does, for ui.perfetto.dev or chrome://tracing; of several workers "
         "FILE-1.json, FILE-2.json, ..."},
    {.name = "from",
     .kind = OPTION_TEXT,
     .value = "FILE.safetensors",
     .help = "start from the weights in this file in place of the model's. Every tensor that training would "
             "change must be there, by its name and in its shape; what is frozen is taken where it is there, "
             "others are ignored."},
    {.name = "resume",
     .kind = OPTION_FLAG,
     .help = "go on with the run that --out holds, from its newest checkpoint, with the same spec and store; "
             "the metrics are appended to. A run that is done has its files written again."},
    {.name = "force",
     .kind = OPTION_FLAG,
     .help = "replace the run that --out already holds: its files, logs and store are removed."},
    {.name = "tls",
     .kind = OPTION_TEXT,
     .value = "DIR",
     .help =
         "encrypt the connections among the processes: the folder of a certificate of the role all, as `weir "
         "certs` makes it. Default: plaintext on 127.0.0.1, whatever WEIR_TLS says."},
    {.name = "insecure",
     .kind = OPTION_FLAG,
     .help =
         "let a --store on another machine be asked in plaintext, on a network that you trust. Default: it "
         "is refused; rediss:// is TLS."},
    {.name = "sockets",
     .kind = OPTION_FLAG,
     .help = "the processes listen at sockets in a folder that only you may enter (unix:/PATH), and not on "
             "ports of "
             "127.0.0.1, which every user of this machine reaches. Also where WEIR_SOCKETS is 1."},
    {.name = "no-restart", .kind = OPTION_FLAG, .help = "leave a process that died dead."},
    {0}};

const struct command_def command_train = {
    .name = "train",
    .summary = "train a model on this machine, with a cluster of its own",
    .arguments = "SPEC [PATH=VALUE]...",
    .min_arguments = 1,
    .max_arguments = ARGUMENTS_MAX,
    .description =
        "Starts a private cluster on this machine (a coordinator, parameter servers and workers, each a "
        "process), trains the model that SPEC describes, shows the progress, and leaves the results.\n"
        "\n"
        "The spec and its model are checked before anything is started. A process that dies is started again "
        "and the run goes on; the result does not change. The cluster listens on a free port of 127.0.0.1, "
        "which is printed: `weir status`, `weir workers` and the others reach it with --coordinator.\n"
        "\n"
        "PATH=VALUE gives a key of the spec another value for this run: PATH as errors name it "
        "(train.optimizer.lr, 'data.transforms[0].scale'), VALUE as the spec would have it ('[1, 2]', "
        "'{every_steps: 100}'); null takes the key away.\n"
        "\n"
        "In --out DIR:\n"
        "  model.onnx         the trained model in inference form\n"
        "  model.safetensors  the trained weights by name\n"
        "  model.average.*    likewise, of the average, where SPEC has train.average\n"
        "  metrics.jsonl      one JSON object a line: steps, evaluations, the end\n"
        "  spec.yaml          a copy of SPEC, with what PATH=VALUE gave\n"
        "  run                which run this is, for --resume\n"
        "  logs/              what each process wrote\n"
        "  store/             checkpoints, unless --store is given\n"
        "\n"
        "Ctrl-C checkpoints the run, stops the cluster and prints the command that resumes; a second Ctrl-C "
        "does not wait for the checkpoint. A run whose processes were all killed is resumed likewise.",
    .options = train_options,
    .if_failed = "the run failed",
    .if_interrupted = "interrupted or paused; the command that resumes is printed",
    .examples = "weir train examples/fashion-mnist.yaml --workers 2 --servers 2\n"
                "weir train spec.yaml --out /tmp/run --force --metrics all.jsonl\n"
                "weir train spec.yaml train.steps=100 train.optimizer.lr=0.01 --out /tmp/trial\n"
                "weir train spec.yaml --out /tmp/run --resume\n",
    .run = train_run,
};
