/* Commands of `weir`: a row in command.def and a const struct command_def at the bottom of the command's own
   file. From the row come the dispatch, `weir --help` and `weir help NAME`. A command may be a group, as
   `model` is: its first argument names one of its own commands, whose options are theirs alone. */
#ifndef WEIR_CLIENT_COMMAND_H
#define WEIR_CLIENT_COMMAND_H

#include "client/option.h"

enum exit_status {
  EXIT_DONE = 0,
  EXIT_RUN_FAILED = 1,
  EXIT_BAD_INPUT = 2, /* wrong usage, or a spec, model or dataset that cannot be used */
  EXIT_UNREACHABLE = 3,
  EXIT_INTERRUPTED = 130,
};

enum { SUBCOMMANDS_MAX = 32 };

struct command_def {
  const char *name;
  const char *group;                /* the command whose subcommand it is; NULL: none */
  const char *summary;              /* half a line: "train a model on this machine" */
  const char *arguments;            /* of the usage line: "SPEC"; "" for none */
  int min_arguments, max_arguments; /* at most ARGUMENTS_MAX */
  bool takes_coordinator;           /* --coordinator and --tls are among its options */
  const char *without_coordinator;  /* what it does where none is named; NULL: it asks 127.0.0.1:7070 */
  const char *description;          /* paragraphs, separated by an empty line; wrapped by the printer */
  const struct option_def *options; /* ends with {0}; NULL: none */
  const char *if_failed;            /* what exit status 1 means; NULL: it does not occur */
  const char *if_interrupted;       /* likewise 130 */
  const char *examples;             /* lines of shell, each with its line end; indented by the printer */
  /* Of a group; ends with NULL. A group has no options and no `run`, unless it is a command of its own where
     its first argument is none of these. */
  const struct command_def *const *subcommands;
  /* The command itself, on the main thread. Returns the process's exit status; on an error it has printed
     one line through command_fail. */
  int (*run)(const struct args *args);
};

/* A row of client/command.def: a command, or the title of those that follow. */
struct command_row {
  const char *title; /* "training"; NULL: it is a command */
  const struct command_def *command;
};

/* All rows, in order; ends with {0}. */
const struct command_row *command_rows(void);

/* The whole client: parses argv, runs the command. Returns the exit status. */
int command_main(int argc, char **argv);

/* Prints "weir: TEXT" on stderr and returns the exit status that fits the error's code: EXIT_UNREACHABLE for
   UNAVAILABLE and TIMEOUT, EXIT_INTERRUPTED for CANCELLED, EXIT_RUN_FAILED for INTERNAL and NO_MEMORY,
   EXIT_BAD_INPUT for the rest. */
int command_fail(const struct err *err);

#endif
