/* weir resume: go on with a run from a checkpoint. */
#include <stdio.h>

#include "client/cluster/follow.h"
#include "client/cluster/stop.h"
#include "client/cluster/stored.h"
#include "client/command.h"
#include "client/terminal/output.h"

static int resume_run(const struct args *args) {
  Weir__ResumeRequest request = WEIR__RESUME_REQUEST__INIT;
  struct connection connection = {0};
  Weir__RunInfo *info = NULL;
  struct err err = ERR_NONE;
  int status = EXIT_DONE;
  request.run = (char *)args->arguments[0];
  request.has_step = stored_step(args, &request.step) != NULL;
  if (args_text(args, "metrics") && !args_flag(args, "follow")) {
    err_set(&err, ERR_INVALID, "--metrics needs --follow");
    return command_fail(&err);
  }
  stop_on_signals();
  if (connection_open(&connection, args->coordinator, &args->security, &err) ||
      connection_call(&connection, RPC_RESUME, &request, (void **)&info, &err)) {
    status = command_fail(&err);
  } else {
    output_run_line(stdout, info);
    if (args_flag(args, "follow"))
      status = follow_command(&connection, info->run, stdout, args_text(args, "metrics"));
    weir__run_info__free_unpacked(info, NULL);
  }
  connection_close(&connection);
  return status;
}

static const struct option_def resume_options[] = {
    {.name = "step",
     .kind = OPTION_COUNT,
     .value = "N",
     .most = OPTION_COUNT_MAX,
     .help =
         "go on from the checkpoint at this step; 0 is the start. Later checkpoints are deleted. Default: "
         "the newest."},
    {.name = "follow",
     .kind = OPTION_FLAG,
     .help = "stay until the run has ended and show its progress. Ctrl-C detaches; the run goes on."},
    {.name = "metrics",
     .kind = OPTION_TEXT,
     .value = "FILE",
     .help = "with --follow: append one JSON object a line to FILE for each step and evaluation, from the "
             "run's first, and for the end."},
    {0}};

const struct command_def command_resume = {
    .name = "resume",
    .summary = "go on with a paused, failed or cancelled run from a checkpoint",
    .arguments = "RUN",
    .min_arguments = 1,
    .max_arguments = 1,
    .takes_coordinator = true,
    .description =
        "RUN (an id, a unique prefix of one, or a name: its newest run), which is paused, failed or "
        "cancelled, goes on from a "
        "checkpoint, on the servers and workers that are there now. Steps after that checkpoint come again, "
        "with a higher incarnation in the metrics.",
    .options = resume_options,
    .if_failed = "the run failed or was cancelled (--follow)",
    .if_interrupted = "interrupted: detached (--follow)",
    .examples = "weir resume fashion-mnist --follow\nweir resume fashion-mnist-k3f9a2 --step 500\n",
    .run = resume_run,
};
