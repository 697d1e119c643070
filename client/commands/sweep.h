/* What the subcommands of `weir sweep` share. */
#ifndef WEIR_CLIENT_COMMANDS_SWEEP_H
#define WEIR_CLIENT_COMMANDS_SWEEP_H

#include <stdbool.h>

#include "client/cluster/connect.h"
#include "client/command.h"
#include "training.pb-c.h"

typedef int sweep_shown(const struct args *args, struct connection *connection, Weir__SweepInfo *info,
                        struct err *err);

/* Asks for the sweep that the command line names, with its log or without, and shows it. Returns the exit
   status. */
int sweep_show(const struct args *args, bool has_records, sweep_shown *shown);

extern const struct command_def command_sweep_importance;                   /* sweep_importance.c */
extern const struct command_def command_sweep_extend, command_sweep_delete; /* sweep_change.c */

#endif
