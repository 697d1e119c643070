/* How to make a model that is missing. */
#include "client/cluster/model_hint.h"

#include <stdio.h>
#include <string.h>

enum { LINE_MAX_BYTES = 512 };

/* The command in a line of a comment: its text, without what encloses it. */
static char *command_of(char *line) {
  char *remark, *end;
  line += strspn(line, "# \t");
  remark = strstr(line, "  #");
  end = remark ? remark : line + strlen(line);
  while (end > line && strchr(" \t\r\n", end[-1]))
    end--;
  *end = '\0';
  return line;
}

/* Where the command has the file's name, with whichever folder, it is to write where the spec looks. */
static void say_command(const char *spec_path, const char *model_path, const char *name, const char *command,
                        struct err *err) {
  const char *at = strstr(command, name);
  const char *begin = at, *end = at ? at + strlen(name) : NULL;
  char said[sizeof err->text];
  while (at && begin > command && begin[-1] != ' ')
    begin--;
  if (at)
    snprintf(said, sizeof said, "%.*s%s%s", (int)(begin - command), command, model_path, end);
  else
    snprintf(said, sizeof said, "%s", command);
  err_set(err, err->code, "%s: there is no such file; the top of %s says how to make it: %s", model_path,
          spec_path, said);
}

void model_hint_add(const char *spec_path, const char *model_path, struct err *err) {
  const char *slash = strrchr(model_path, '/'), *name = slash ? slash + 1 : model_path;
  char line[LINE_MAX_BYTES];
  FILE *file = fopen(spec_path, "r");
  while (file && fgets(line, sizeof line, file) && (line[0] == '#' || line[0] == '\n')) {
    if (!strstr(line, name))
      continue;
    say_command(spec_path, model_path, name, command_of(line), err);
    break;
  }
  if (file)
    fclose(file);
}
