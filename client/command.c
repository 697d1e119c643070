/* Finds the command, parses its arguments, runs it. */
#include "client/command.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/help.h"
#include "client/terminal/output.h"
#include "common/base/nearest.h"
#include "common/manager/environment.h"
#include "common/manager/standard_files.h"
#include "storage/checkpoint/checkpoint_parts.h"
#include "storage/store.h"

#define COMMANDS(title)
#define COMMAND(name) extern const struct command_def command_##name;
#include "client/command.def"
#undef COMMAND

static const struct command_def *const commands[] = {
#define COMMAND(name) &command_##name,
#include "client/command.def"
#undef COMMAND
#undef COMMANDS
    NULL};
enum { COMMANDS_COUNT = sizeof commands / sizeof *commands - 1 };

static const struct command_row rows[] = {
#define COMMANDS(title) {title, NULL},
#define COMMAND(name) {NULL, &command_##name},
#include "client/command.def"
#undef COMMAND
#undef COMMANDS
    {0}};

static int command_choose(int argc, char **argv);
static const struct command_def *command_find(const struct command_def *const *list, const char *name);
static int command_unknown(const char *name);
static int command_help(int argc, char **argv);
static int group_start(const struct command_def *group, int argc, char **argv);
static const struct command_def *subcommand_find(const struct command_def *group, const char *name);
static int command_start(const struct command_def *command, int argc, char **argv);
static bool takes_runs(const struct command_def *command);
static bool has_option(const struct command_def *command, const char *name);
static int usage_fail(const struct command_def *command, const char *what);

int command_main(int argc, char **argv) {
  struct err err = ERR_NONE;
  int status = command_choose(argc, argv);
  return standard_output_finish(&err) && status == EXIT_DONE ? command_fail(&err) : status;
}

int command_fail(const struct err *err) {
  struct err clean = *err;
  output_clean(clean.text);
  fprintf(stderr, "weir: %s\n", clean.text);
  switch (err->code) {
  case ERR_UNAVAILABLE:
  case ERR_TIMEOUT:
    return EXIT_UNREACHABLE;
  case ERR_CANCELLED:
    return EXIT_INTERRUPTED;
  case ERR_INTERNAL:
  case ERR_NO_MEMORY:
    return EXIT_RUN_FAILED;
  default:
    return EXIT_BAD_INPUT;
  }
}

const struct command_row *command_rows(void) {
  return rows;
}

static int command_choose(int argc, char **argv) {
  const struct command_def *command;
  if (argc < 2) {
    help_print(&(struct page){.file = stderr}, rows);
    return EXIT_BAD_INPUT;
  }
  if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0)
    return command_help(argc - 2, argv + 2);
  command = command_find(commands, strcmp(argv[1], "--version") == 0 ? "version" : argv[1]);
  if (!command)
    return command_unknown(argv[1]);
  return (command->subcommands ? group_start : command_start)(command, argc - 2, argv + 2);
}

static void show_page(const struct command_def *command) {
  help_print_command(&(struct page){.file = stdout}, command);
}

static const struct command_def *command_find(const struct command_def *const *list, const char *name) {
  while (*list && strcmp((*list)->name, name) != 0)
    list++;
  return *list;
}

static int command_unknown(const char *name) {
  const char *names[COMMANDS_COUNT + 1];
  const char *near;
  for (int i = 0; i < COMMANDS_COUNT; i++)
    names[i] = commands[i]->name;
  names[COMMANDS_COUNT] = "help";
  near = name[0] == '-' ? NULL : nearest_word(name, names, COMMANDS_COUNT + 1);
  if (near)
    fprintf(stderr, "weir: unknown command '%s'; did you mean '%s'?\n", name, near);
  else
    fprintf(stderr, "weir: unknown %s '%s'; `weir --help` lists the commands\n",
            name[0] == '-' ? "option" : "command", name);
  return EXIT_BAD_INPUT;
}

static int command_help(int argc, char **argv) {
  const struct command_def *command;
  if (argc == 0) {
    help_print(&(struct page){.file = stdout}, rows);
    return EXIT_DONE;
  }
  if (strcmp(argv[0], "--man") == 0) {
    struct err err = ERR_NONE;
    if (argc != 2)
      err_set(&err, ERR_INVALID, "help: --man is given the folder that the man pages are written into");
    else
      help_write_man(argv[1], rows, &err);
    return err.code ? command_fail(&err) : EXIT_DONE;
  }
  command = command_find(commands, argv[0]);
  if (!command)
    return command_unknown(argv[0]);
  if (command->subcommands && argc > 1) {
    command = subcommand_find(command, argv[1]);
    if (!command)
      return EXIT_BAD_INPUT;
  }
  show_page(command);
  return EXIT_DONE;
}

/* One of the group's, or nearly: no option, and no file. */
static bool is_meant_as_subcommand(const struct command_def *group, const char *word) {
  const char *names[SUBCOMMANDS_MAX];
  int n = 0;
  for (; group->subcommands[n]; n++)
    names[n] = group->subcommands[n]->name;
  return command_find(group->subcommands, word) ||
         (word[0] != '-' && access(word, F_OK) != 0 && nearest_word(word, names, n));
}

static int group_start(const struct command_def *group, int argc, char **argv) {
  const struct command_def *command;
  struct err err = ERR_NONE;
  if (argc > 0 && (strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0)) {
    show_page(group);
    return EXIT_DONE;
  }
  if (group->run && (argc == 0 || !is_meant_as_subcommand(group, argv[0])))
    return command_start(group, argc, argv);
  if (argc == 0 || argv[0][0] == '-') {
    err_set(&err, ERR_INVALID, "an argument is missing: weir %s %s", group->name, group->arguments);
    return usage_fail(group, err.text);
  }
  command = subcommand_find(group, argv[0]);
  return command ? command_start(command, argc - 1, argv + 1) : EXIT_BAD_INPUT;
}

/* NULL: there is none, which has been said. */
static const struct command_def *subcommand_find(const struct command_def *group, const char *name) {
  const struct command_def *command = command_find(group->subcommands, name);
  const char *names[SUBCOMMANDS_MAX];
  const char *near;
  struct err err = ERR_NONE;
  int n = 0;
  if (command)
    return command;
  for (; group->subcommands[n]; n++)
    names[n] = group->subcommands[n]->name;
  near = nearest_word(name, names, n);
  err_set(&err, ERR_INVALID, "there is no '%s'%s%s%s", name, near ? "; did you mean '" : "", near ? near : "",
          near ? "'?" : "");
  usage_fail(group, err.text);
  return NULL;
}

static int command_start(const struct command_def *command, int argc, char **argv) {
  struct args args;
  struct err err = ERR_NONE;
  if (args_parse(&args,
                 &(struct command_syntax){.options = command->options,
                                          .takes_coordinator = command->takes_coordinator},
                 argc, argv, &err))
    return usage_fail(command, err.text);
  if (args.wants_help) {
    show_page(command);
    return EXIT_DONE;
  }
  if (args.n_arguments < command->min_arguments) {
    err_set(&err, ERR_INVALID, "an argument is missing: weir %s%s%s %s", command->group ? command->group : "",
            command->group ? " " : "", command->name, command->arguments);
    return usage_fail(command, err.text);
  }
  if (args.n_arguments > command->max_arguments) {
    err_set(&err, ERR_INVALID, "superfluous argument '%s'", args.arguments[command->max_arguments]);
    return usage_fail(command, err.text);
  }
  for (int i = 0; i < args.n_arguments && takes_runs(command); i++)
    if (!checkpoint_is_run_id(args.arguments[i])) {
      err_set(&err, ERR_INVALID, "'%s' is no run's id, which is of a-z, 0-9 and '-'%s", args.arguments[i],
              has_option(command, "store") ? "; of a folder that `weir train` left, give that id and --store "
                                             "file:///PATH/OF/FOLDER/store"
                                           : "");
      return usage_fail(command, err.text);
    }
  if (environment_check(&err))
    return command_fail(&err);
  args.command = command;
  if (args.security.is_insecure || (has_option(command, "insecure") && args_flag(&args, "insecure")))
    store_allow_plaintext();
  return command->run(&args);
}

/* Its arguments name runs, and nothing else. */
static bool takes_runs(const struct command_def *command) {
  return strcmp(command->arguments, "RUN") == 0 || strcmp(command->arguments, "[RUN]...") == 0;
}

static bool has_option(const struct command_def *command, const char *name) {
  const struct option_def *option = command->options;
  while (option && option->name && strcmp(option->name, name) != 0)
    option++;
  return option && option->name;
}

static int usage_fail(const struct command_def *command, const char *what) {
  const char *group = command->group ? command->group : "", *blank = command->group ? " " : "";
  fprintf(stderr, "weir: %s%s%s: %s (see `weir help %s%s%s`)\n", group, blank, command->name, what, group,
          blank, command->name);
  return EXIT_BAD_INPUT;
}
