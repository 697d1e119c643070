/* Help texts and man pages, from the commands' tables. */
#ifndef WEIR_CLIENT_HELP_H
#define WEIR_CLIENT_HELP_H

#include "client/command.h"
#include "common/base/page.h"

/* `weir --help`: what weir is, every command with its summary. rows: as of client/command.def; ends with {0}.
 */
void help_print(const struct page *page, const struct command_row *rows);

/* `weir help NAME`: the command's page. */
void help_print_command(const struct page *page, const struct command_def *command);

/* weir.1 and a man page for each command and subcommand into the folder, which is there. Errors: IO. */
int help_write_man(const char *folder, const struct command_row *rows, struct err *err);

#endif
