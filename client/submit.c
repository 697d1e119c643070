/* weir submit: hand a run to a cluster. */
#include <stdio.h>
#include <stdlib.h>

#include "client/command.h"
#include "client/follow.h"
#include "client/stop.h"
#include "client/submission.h"

static int submit_follow(const struct args *args, struct connection *connection, const char *run,
                         struct err *err);

static int submit_run(const struct args *args) {
  struct submission submission = {0};
  struct connection connection = {0};
  struct err err = ERR_NONE;
  char *run = NULL;
  int status = EXIT_DONE;
  if (args_text(args, "metrics") && !args_flag(args, "follow")) {
    err_set(&err, ERR_INVALID, "--metrics needs --follow");
    return command_fail(&err);
  }
  stop_on_signals();
  if (submission_load(&submission, args->arguments[0], &err) ||
      connection_open(&connection, args->coordinator, &err) ||
      submission_send(&submission, &connection, &run, &err)) {
    status = command_fail(&err);
    goto out;
  }
  printf("%s\n", run);
  fflush(stdout);
  if (args_flag(args, "follow"))
    status = submit_follow(args, &connection, run, &err);
out:
  free(run);
  connection_close(&connection);
  submission_fini(&submission);
  return status;
}

/* All of it on stderr: stdout is the run's id alone. */
static int submit_follow(const struct args *args, struct connection *connection, const char *run,
                         struct err *err) {
  struct follow_options options = {.connection = connection, .run = run, .file = stderr};
  struct follow_result result = {0};
  int status;
  if ((args_text(args, "metrics") &&
       metrics_open(args_text(args, "metrics"), false, &options.metrics[0], err)) ||
      follow(&options, &result, err)) {
    if (stop_cause() == STOP_SIGNAL)
      err_set(err, ERR_CANCELLED, "no longer following; the run goes on: weir watch %s", run);
    status = command_fail(err);
  } else if ((status = follow_exit(&result)) == EXIT_DONE) {
    follow_summary(stderr, &result);
  }
  metrics_close(options.metrics[0]);
  follow_result_fini(&result);
  return status;
}

static const struct option_def submit_options[] = {
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
    .arguments = "SPEC",
    .min_arguments = 1,
    .max_arguments = 1,
    .takes_coordinator = true,
    .description =
        "Checks the spec and its model, uploads both to the coordinator, and prints the new run's id alone "
        "on "
        "stdout. The model travels with its external data files; the dataset does not: the spec names a "
        "folder that the workers can read. A run waits until servers and enough workers are there.",
    .options = submit_options,
    .if_failed = "the run failed (--follow)",
    .if_interrupted = "interrupted (--follow: detached)",
    .examples = "weir submit spec.yaml --coordinator 10.0.0.1:7070\n"
                "run=$(weir submit spec.yaml) && weir watch $run\n",
    .run = submit_run,
};
