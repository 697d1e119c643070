/* weir set: other limits for a run that is there, and a higher hold. */
#include <stdio.h>

#include "client/cluster/connect.h"
#include "client/command.h"
#include "client/terminal/output.h"

static int set_run(const struct args *args) {
  Weir__SetRequest request = WEIR__SET_REQUEST__INIT;
  struct connection connection = {0};
  Weir__RunInfo *info = NULL;
  struct err err = ERR_NONE;
  request.run = (char *)args->arguments[0];
  request.settings = (char **)args->arguments + 1;
  request.n_settings = (size_t)args->n_arguments - 1;
  if (connection_open(&connection, args->coordinator, &args->security, &err) == 0 &&
      connection_call(&connection, RPC_SET_RUN, &request, (void **)&info, &err) == 0) {
    output_run_line(stdout, info);
    weir__run_info__free_unpacked(info, NULL);
  }
  connection_close(&connection);
  return err.code ? command_fail(&err) : EXIT_DONE;
}

const struct command_def command_set = {
    .name = "set",
    .summary = "change the priority, the limits or the hold of a run that is there",
    .arguments = "RUN PATH=VALUE [PATH=VALUE]...",
    .min_arguments = 2,
    .max_arguments = ARGUMENTS_MAX,
    .takes_coordinator = true,
    .description =
        "Gives RUN (an id, a unique prefix of one, or a name: its newest run), whether it waits or trains, "
        "other values of\n"
        "  priority        runs with a higher one are given their workers.min first\n"
        "  workers.min     what it is given before others get more than theirs\n"
        "  workers.max     it is never given more; null takes the limit away\n"
        "  workers.weight  what runs have beyond their workers.min is shared in proportion to it\n"
        "  train.hold      the run is held at that version and gives back its workers; it is only ever\n"
        "                  raised, and null ends it: the run goes on from memory\n"
        "\n"
        "None of them changes the result. Workers that it has to give up leave it at once, and others of "
        "the run compute what they had; no step is lost.",
    .examples = "weir set fashion-mnist priority=10\n"
                "weir set fashion-mnist-k3f9a2 workers.max=2 workers.weight=0.5\n"
                "weir set fashion-mnist train.hold=900\n",
    .run = set_run,
};
