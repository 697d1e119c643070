/* Help texts, from the commands' tables. */
#include "client/help.h"

#include <string.h>

#include "common/base/err.h"

enum { HELP_WIDTH = 80 };

static void print_wrapped(FILE *file, const char *text, int indent);
static void option_print(FILE *file, const struct option_def *option);

static const struct option_def common_options[] = {
    {.name = "help", .letter = 'h', .kind = OPTION_FLAG, .help = "print this page"}, {0}};
static const struct option_def tls_option = {
    .name = "tls",
    .kind = OPTION_TEXT,
    .value = "DIR",
    .help = "the folder of your certificate, as `weir certs` makes it: the cluster's members have theirs of "
            "the same authority, and connections are encrypted. Default: $WEIR_TLS, else plaintext to this "
            "machine alone."};
static const struct option_def insecure_option = {
    .name = "insecure",
    .kind = OPTION_FLAG,
    .help = "let plaintext go to a coordinator on another machine, without certificates. Default: where "
            "WEIR_INSECURE is 1."};

static void coordinator_print(FILE *file, const char *otherwise) {
  char help[512];
  const struct option_def option = {
      .name = "coordinator", .kind = OPTION_TEXT, .value = "HOST:PORT", .help = help};
  snprintf(help, sizeof help,
           "the coordinator to talk to; of several, separated by commas, the one that leads. Default: "
           "$WEIR_COORDINATOR, else %s.",
           otherwise ? otherwise : "127.0.0.1:7070");
  option_print(file, &option);
  option_print(file, &tls_option);
  option_print(file, &insecure_option);
}

void help_print(FILE *file, const struct command_def *const *commands, int n) {
  fputs("weir - train ONNX models on a cluster of parameter servers and workers\n\n", file);
  fputs("usage: weir COMMAND [ARGUMENT]... [OPTION]...\n\ncommands:\n", file);
  for (int i = 0; i < n; i++)
    fprintf(file, "  %-11s %s\n", commands[i]->name, commands[i]->summary);
  fputs("\nA model is an ONNX file, a run is described by a YAML file (its spec). `weir train` does\n"
        "everything on this machine, and so does `weir sweep` where no coordinator is named. The other\n"
        "commands talk to the coordinator of a cluster, found through --coordinator HOST:PORT or\n"
        "WEIR_COORDINATOR (default 127.0.0.1:7070).\n\n"
        "exit status:\n"
        "  0    done\n"
        "  1    the run failed\n"
        "  2    wrong usage or bad input\n"
        "  3    the cluster cannot be reached\n"
        "  130  interrupted\n\n"
        "examples:\n"
        "  weir model lenet -o lenet.onnx\n"
        "  weir train examples/fashion-mnist.yaml\n"
        "  weir help train\n",
        file);
}

void help_print_command(FILE *file, const struct command_def *command) {
  const char *group = command->group ? command->group : "", *blank = command->group ? " " : "";
  fprintf(file, "weir %s%s%s - %s\n\n", group, blank, command->name, command->summary);
  fprintf(file, "usage: weir %s%s%s%s%s [OPTION]...\n\n", group, blank, command->name,
          command->arguments[0] ? " " : "", command->arguments);
  print_wrapped(file, command->description, 0);
  for (const struct command_def *const *sub = command->subcommands; sub && *sub; sub++)
    fprintf(file, "%s  %-13s %s\n", sub == command->subcommands ? "\n" : "", (*sub)->name, (*sub)->summary);
  fputs("\noptions:\n", file);
  for (const struct option_def *option = command->options; option && option->name; option++)
    option_print(file, option);
  if (command->takes_coordinator)
    coordinator_print(file, command->without_coordinator);
  option_print(file, common_options);
  fputs("\nexit status:\n  0    done\n", file);
  if (command->if_failed)
    fprintf(file, "  1    %s\n", command->if_failed);
  fputs("  2    wrong usage or bad input\n", file);
  if (command->takes_coordinator)
    fputs("  3    the coordinator cannot be reached\n", file);
  if (command->if_interrupted)
    fprintf(file, "  130  %s\n", command->if_interrupted);
  fputs("\nexamples:\n", file);
  for (const char *line = command->examples; *line; line += strcspn(line, "\n") + 1)
    fprintf(file, "  %.*s\n", (int)strcspn(line, "\n"), line);
}

static void option_print(FILE *file, const struct option_def *option) {
  char text[1024];
  if (option->letter)
    fprintf(file, "  -%c, --%s", option->letter, option->name);
  else
    fprintf(file, "  --%s", option->name);
  if (option->value)
    fprintf(file, " %s", option->value);
  fputc('\n', file);
  if (option->fallback)
    snprintf(text, sizeof text, "%s Default: %s.", option->help, option->fallback);
  else
    snprintf(text, sizeof text, "%s", option->help);
  print_wrapped(file, text, 6);
}

/* Fills lines of HELP_WIDTH columns; an empty line in the text parts paragraphs, other line ends are blanks,
   and a line that begins with a blank is printed as it is. */
static void print_wrapped(FILE *file, const char *text, int indent) {
  int column = 0;
  while (*text) {
    size_t length = strcspn(text, " \n");
    if (text[0] == '\n' && (text[1] == '\n' || text[1] == ' ')) {
      size_t line = strcspn(text + 1, "\n");
      fprintf(file, "%s%.*s", column ? "\n" : "", (int)line, text + 1);
      column = line > 0 ? HELP_WIDTH : 0;
      if (line == 0)
        fputc('\n', file);
      text += line > 0 ? line + 1 : 1; /* the second line end may begin a line that is printed as it is */
      continue;
    }
    if (length == 0) {
      text++;
      continue;
    }
    if (column > 0 && column + 1 + (int)length > HELP_WIDTH) {
      fputc('\n', file);
      column = 0;
    }
    if (column == 0)
      column = fprintf(file, "%*s%.*s", indent, "", (int)length, text);
    else
      column += fprintf(file, " %.*s", (int)length, text);
    text += length;
  }
  if (column > 0)
    fputc('\n', file);
}
