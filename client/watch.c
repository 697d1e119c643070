/* weir watch: follow a run to its end. */
#include <stdio.h>

#include "client/command.h"
#include "client/follow.h"
#include "client/stop.h"

static int watch_run(const struct args *args) {
  struct connection connection = {0};
  struct follow_options options = {.connection = &connection, .run = args->arguments[0], .file = stdout};
  struct follow_result result = {0};
  struct err err = ERR_NONE;
  int status;
  stop_on_signals();
  if (connection_open(&connection, args->coordinator, &err) ||
      (args_text(args, "metrics") &&
       metrics_open(args_text(args, "metrics"), false, &options.metrics[0], &err)) ||
      follow(&options, &result, &err)) {
    if (stop_cause() == STOP_SIGNAL)
      err_set(&err, ERR_CANCELLED, "no longer watching; run '%s' goes on", args->arguments[0]);
    status = command_fail(&err);
  } else if ((status = follow_exit(&result)) == EXIT_DONE) {
    follow_summary(stdout, &result);
  }
  metrics_close(options.metrics[0]);
  follow_result_fini(&result);
  connection_close(&connection);
  return status;
}

static const struct option_def watch_options[] = {
    {.name = "metrics",
     .kind = OPTION_TEXT,
     .value = "FILE",
     .help = "append one JSON object a line to FILE for each step and evaluation, from the run's first, and "
             "for the end."},
    {0}};

const struct command_def command_watch = {
    .name = "watch",
    .summary = "show a run's progress until it ends",
    .arguments = "RUN",
    .min_arguments = 1,
    .max_arguments = 1,
    .takes_coordinator = true,
    .description =
        "Shows the progress of RUN (an id or a unique prefix of one) until it has ended: a live bar "
        "on a terminal, plain lines elsewhere. Ctrl-C detaches; the run goes on.",
    .options = watch_options,
    .if_failed = "the run failed or was cancelled",
    .if_interrupted = "interrupted: detached",
    .examples = "weir watch fashion-mnist\nweir watch fashion-mnist-k3f9a2 --metrics metrics.jsonl\n",
    .run = watch_run,
};
