/* weir submit: hand a run to a cluster. */
#include <stdio.h>
#include <stdlib.h>

#include "client/cluster/follow.h"
#include "client/cluster/start_weights.h"
#include "client/cluster/stop.h"
#include "client/cluster/submission.h"
#include "client/command.h"

static int submit_run(const struct args *args) {
  struct submission submission = {0};
  struct connection connection = {0};
  const struct spec_source source = submission_source(args);
  struct err err = ERR_NONE;
  char *run = NULL;
  int status = EXIT_DONE;
  if (args_text(args, "metrics") && !args_flag(args, "follow")) {
    err_set(&err, ERR_INVALID, "--metrics needs --follow");
    return command_fail(&err);
  }
  stop_on_signals();
  if (submission_load(&submission, &source, &err) ||
      connection_open(&connection, args->coordinator, &args->security, &err) ||
      (args_text(args, "from") &&
       start_weights_apply(&submission, args_text(args, "from"), &connection, &err)) ||
      submission_send(&submission, &connection, &run, &err)) {
    status = command_fail(&err);
    goto out;
  }
  printf("%s\n", run);
  fflush(stdout);
  if (args_flag(args, "follow")) /* all of it on stderr: stdout is the run's id alone */
    status = follow_command(&connection, run, stderr, args_text(args, "metrics"));
out:
  free(run);
  connection_close(&connection);
  submission_fini(&submission);
  return status;
}

static const struct option_def submit_options[] = {
    {.name = "from",
     .kind = OPTION_TEXT,
     .value = "RUN[@STEP]|FILE.safetensors",
     .help =
         "start from existing weights in place of the model's: those of a run of this cluster (its newest "
         "checkpoint, or that at STEP), or of a file. Every tensor that training would change must be "
         "there, by its name and in its shape; what is frozen is taken where it is there, others are "
         "ignored. The optimizer starts anew."},
    {.name = "follow",
     .kind = OPTION_FLAG,
     .help =
         "stay until the run has ended and show its progress on stderr. Ctrl-C detaches; the run goes on."},
    {.name = "metrics",
     .kind = OPTION_TEXT,
     .value = "FILE",
     .help = "with --follow: append one JSON object a line to FILE for each step and evaluation and for the "
             "end."},
    {0}};

const struct command_def command_submit = {
    .name = "submit",
    .summary = "hand a run to a cluster; prints the run's id",
    .arguments = "SPEC [PATH=VALUE]...",
    .min_arguments = 1,
    .max_arguments = ARGUMENTS_MAX,
    .takes_coordinator = true,
    .description =
        "Checks the spec and its model, uploads both to the coordinator, and prints the new run's id alone "
        "on "
        "stdout. The model travels with its external data files; the dataset does not: the spec names a "
        "folder that the workers can read. A run waits until servers and enough workers are there.\n\n"
        "PATH=VALUE gives a key of the spec another value for this run: PATH as errors name it "
        "(train.optimizer.lr, 'data.transforms[0].scale'), VALUE as the spec would have it ('[1, 2]', "
        "'{every_steps: 100}'); null takes the key away.",
    .options = submit_options,
    .if_failed = "a quota refuses the run, or the run failed (--follow)",
    .if_interrupted = "interrupted (--follow: detached)",
    .examples = "weir submit spec.yaml --coordinator 10.0.0.1:7070\n"
                "weir submit spec.yaml name=slower train.optimizer.lr=0.01\n"
                "weir submit finer.yaml --from fashion-mnist@500\n"
                "run=$(weir submit spec.yaml) && weir watch $run\n",
    .run = submit_run,
};
