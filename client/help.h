/* Help texts, from the commands' tables. */
#ifndef WEIR_CLIENT_HELP_H
#define WEIR_CLIENT_HELP_H

#include <stdio.h>

#include "client/command.h"

/* `weir --help`: what weir is, every command with its summary. */
void help_print(FILE *file, const struct command_def *const *commands, int n);

/* `weir help NAME`: the command's page. */
void help_print_command(FILE *file, const struct command_def *command);

#endif
