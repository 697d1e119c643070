/* Help texts, from the commands' tables. */
#include "client/help.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "build_id.h"
#include "common/base/memory.h"

static void option_print(const struct page *page, const struct option_def *option) {
  char term[128], letter[] = {'-', option->letter, ',', ' ', '\0'}, text[1024];
  snprintf(term, sizeof term, "%s--%s%s%s", option->letter ? letter : "", option->name,
           option->value ? " " : "", option->value ? option->value : "");
  snprintf(text, sizeof text, "%s%s%s%s", option->help, option->fallback ? " Default: " : "",
           option->fallback ? option->fallback : "", option->fallback ? "." : "");
  page_item(page, term, text);
}

static void coordinator_print(const struct page *page, struct option_def option, const char *otherwise) {
  char help[512];
  snprintf(help, sizeof help,
           "the coordinator to talk to; of several, separated by commas, the one that leads. Default: "
           "$WEIR_COORDINATOR, else %s.",
           otherwise ? otherwise : "127.0.0.1:7070");
  option.help = help;
  option_print(page, &option);
}

static void options_print(const struct page *page, const struct command_def *command) {
  page_heading(page, "options");
  for (const struct option_def *option = command->options; option && option->name; option++)
    option_print(page, option);
  for (const struct option_def *option = option_common(command->takes_coordinator); option->name; option++)
    if (option->help)
      option_print(page, option);
    else
      coordinator_print(page, *option, command->without_coordinator);
}

/* command: NULL for `weir` itself. */
static void exits_print(const struct page *page, const struct command_def *command) {
  page_heading(page, "exit status");
  page_row(page, "0", 4, "done");
  if (!command || command->if_failed)
    page_row(page, "1", 4, command ? command->if_failed : "the run failed");
  page_row(page, "2", 4, "wrong usage or bad input");
  if (!command || command->takes_coordinator)
    page_row(page, "3", 4, command ? "the coordinator cannot be reached" : "the cluster cannot be reached");
  if (!command || command->if_interrupted)
    page_row(page, "130", 4, command ? command->if_interrupted : "interrupted");
}

void help_print(const struct page *page, const struct command_row *rows) {
  page_title(page, "weir", "train ONNX models on a cluster of parameter servers and workers");
  page_usage(page, "weir COMMAND [ARGUMENT]... [OPTION]...");
  for (const struct command_row *row = rows; row->title || row->command; row++)
    if (row->title)
      page_heading(page, row->title);
    else
      page_row(page, row->command->name, 11, row->command->summary);
  page_description(
      page, "A model is an ONNX file, a run is described by a YAML file (its spec). `weir train` does "
            "everything on this "
            "machine, and so does `weir sweep` where no coordinator is named. The other commands talk to the "
            "coordinator of a cluster, found through --coordinator HOST:PORT or WEIR_COORDINATOR (default "
            "127.0.0.1:7070).");
  exits_print(page, NULL);
  page_heading(page, "examples");
  page_lines(page, "weir model lenet -o lenet.onnx\n"
                   "weir train examples/fashion-mnist.yaml\n"
                   "weir help train\n");
}

void help_print_command(const struct page *page, const struct command_def *command) {
  char name[128], usage[512];
  snprintf(name, sizeof name, "weir %s%s%s", command->group ? command->group : "", command->group ? " " : "",
           command->name);
  snprintf(usage, sizeof usage, "%s%s%s [OPTION]...", name, command->arguments[0] ? " " : "",
           command->arguments);
  page_title(page, name, command->summary);
  page_usage(page, usage);
  page_description(page, command->description);
  if (command->subcommands && page->style == PAGE_TEXT)
    fputc('\n', page->file);
  else if (command->subcommands)
    page_heading(page, "commands");
  for (const struct command_def *const *sub = command->subcommands; sub && *sub; sub++)
    page_row(page, (*sub)->name, 13, (*sub)->summary);
  options_print(page, command);
  exits_print(page, command);
  page_heading(page, "examples");
  page_lines(page, command->examples);
}

/* Into the folder, by the command's name. */
static int man_write(const char *folder, const struct command_row *rows, const struct command_def *command,
                     struct err *err) {
  const char *group = command && command->group ? command->group : "", *name = command ? command->name : "";
  char *path = mem_printf("%s/weir%s%s%s%s.1", folder, *group ? "-" : "", group, *name ? "-" : "", name);
  const struct page page = {fopen(path, "we"), PAGE_MAN, "weir " WEIR_BUILD, WEIR_BUILD_DATE};
  if (!page.file)
    err_errno(err, errno, "cannot write '%s'", path);
  else if (command)
    help_print_command(&page, command);
  else
    help_print(&page, rows);
  if (page.file && fclose(page.file))
    err_errno(err, errno, "cannot write '%s'", path);
  free(path);
  return err->code;
}

int help_write_man(const char *folder, const struct command_row *rows, struct err *err) {
  man_write(folder, rows, NULL, err);
  for (const struct command_row *row = rows; !err->code && (row->title || row->command); row++) {
    if (row->command)
      man_write(folder, rows, row->command, err);
    for (const struct command_def *const *sub = row->command ? row->command->subcommands : NULL;
         !err->code && sub && *sub; sub++)
      man_write(folder, rows, *sub, err);
  }
  return err->code;
}
