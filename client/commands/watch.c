/* weir watch: follow a run to its end. */
#include <stdio.h>

#include "client/cluster/follow.h"
#include "client/cluster/stop.h"
#include "client/command.h"

static int watch_run(const struct args *args) {
  struct connection connection = {0};
  struct err err = ERR_NONE;
  int status;
  stop_on_signals();
  status = connection_open(&connection, args->coordinator, &args->security, &err)
               ? command_fail(&err)
               : follow_command(&connection, args->arguments[0], stdout, args_text(args, "metrics"));
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
        "Shows the progress of RUN (an id, a unique prefix of one, or a name: its newest run) until it has "
        "ended: a live bar "
        "on a terminal, plain lines elsewhere. A run that is paused is waited for until it is resumed and "
        "has "
        "ended. A coordinator that goes away is tried again for a minute. Ctrl-C detaches; the run goes on.",
    .options = watch_options,
    .if_failed = "the run failed or was cancelled",
    .if_interrupted = "interrupted: detached",
    .examples = "weir watch fashion-mnist\nweir watch fashion-mnist-k3f9a2 --metrics metrics.jsonl\n",
    .run = watch_run,
};
