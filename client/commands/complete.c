/* weir complete: what a shell asks when somebody presses Tab. */
#include <stdio.h>
#include <string.h>

#include "client/command.h"
#include "client/completion/candidates.h"
#include "client/completion/scripts.h"

static int complete_run(const struct args *args) {
  const char *shell = args->arguments[0];
  const char *script = shell_script(shell);
  struct err err = ERR_NONE;
  if (strcmp(shell, "words") == 0) {
    candidates_print(stdout, args->arguments + 1, args->n_arguments - 1);
    return EXIT_DONE;
  }
  if (!script)
    err_set(&err, ERR_INVALID, "complete: '%s' is none of bash, zsh, fish", shell);
  else if (args->n_arguments > 1)
    err_set(&err, ERR_INVALID, "complete: superfluous argument '%s'", args->arguments[1]);
  else
    fputs(script, stdout);
  return err.code ? command_fail(&err) : EXIT_DONE;
}

const struct command_def command_complete = {
    .name = "complete",
    .summary = "print what makes a shell complete commands by Tab",
    .arguments = "bash|zsh|fish",
    .min_arguments = 1,
    .max_arguments = ARGUMENTS_MAX,
    .description = "Prints a script for the shell that is named. With it Tab completes commands, options, "
                   "files, and the ids of runs, "
                   "sweeps, workers and servers, for which the coordinator is asked. `make install` puts the "
                   "scripts where the shells "
                   "look for them.\n"
                   "\n"
                   "The scripts call `weir complete words -- WORD...`, which prints the candidates for the "
                   "last word, with a tab "
                   "before what each of them is. A line `:files` says that files are meant. A coordinator "
                   "that does not answer within a "
                   "second, and every other error, gives no candidates.",
    .examples = "eval \"$(weir complete bash)\"                                # in ~/.bashrc\n"
                "weir complete zsh > ~/.zfunc/_weir                          # in a folder of $fpath\n"
                "weir complete fish > ~/.config/fish/completions/weir.fish\n",
    .run = complete_run,
};
