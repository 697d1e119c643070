/* Options of weir-server and weir-worker, by getopt_long. */
#include "common/manager/program_option.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "common/base/nearest.h"

enum { TERM_MAX = 128 };

static void fill_table(const struct program_option *options, struct option table[PROGRAM_OPTIONS_MAX]);
static int explain_unknown(const struct program_line *line, struct err *err);
static const struct program_option *find_option(const struct program_option *options, int key);

void program_options_print(const struct program_option *options, const struct page *page) {
  for (const struct program_option *option = options; option->name; option++) {
    char term[TERM_MAX];
    snprintf(term, sizeof term, "--%s%s%s", option->name, option->value ? " " : "",
             option->value ? option->value : "");
    page_item(page, term, option->help);
  }
}

int program_option_read(struct program_line *line, struct err *err) {
  struct option table[PROGRAM_OPTIONS_MAX];
  int key;
  fill_table(line->options, table);
  if (!line->has_begun)
    optind = 0; /* getopt forgets the line before */
  line->has_begun = true;
  opterr = 0;
  key = getopt_long(line->argc, line->argv, ":", table, NULL);
  line->value = optarg;
  if (key == ':')
    err_set(err, ERR_INVALID, "option '%s' needs a value: %s", line->argv[optind - 1],
            find_option(line->options, optopt)->value);
  else if (key == '?')
    explain_unknown(line, err);
  else if (key == -1 && optind < line->argc)
    err_set(err, ERR_INVALID, "unexpected argument '%s'", line->argv[optind]);
  else
    return key == -1 ? 0 : key;
  return -1;
}

static void fill_table(const struct program_option *options, struct option table[PROGRAM_OPTIONS_MAX]) {
  int n = 0;
  for (; options[n].name; n++) {
    CHECK(n < PROGRAM_OPTIONS_MAX - 1 && options[n].key >= PROGRAM_OPTION_KEYS);
    table[n] = (struct option){options[n].name, options[n].value ? required_argument : no_argument, NULL,
                               options[n].key};
  }
  table[n] = (struct option){0};
}

/* optopt is the key of a flag that came with a value, the letter of a short option, or 0. */
static int explain_unknown(const struct program_line *line, struct err *err) {
  const char *names[PROGRAM_OPTIONS_MAX], *near;
  const char *word = line->argv[optind - 1];
  char name[64];
  int n = 0;
  if (optopt >= PROGRAM_OPTION_KEYS)
    return err_set(err, ERR_INVALID, "option '--%s' takes no value, but got '%s'",
                   find_option(line->options, optopt)->name, word + strcspn(word, "=") + 1);
  if (optopt)
    return err_set(err, ERR_INVALID, "unknown option '-%c'", optopt);
  for (; line->options[n].name; n++)
    names[n] = line->options[n].name;
  snprintf(name, sizeof name, "%.*s", (int)strcspn(word, "="), word);
  near = nearest_word(name + strspn(name, "-"), names, n);
  if (near)
    return err_set(err, ERR_INVALID, "unknown option '%s'; did you mean '--%s'?", name, near);
  return err_set(err, ERR_INVALID, "unknown option '%s'", name);
}

static const struct program_option *find_option(const struct program_option *options, int key) {
  while (options->key != key)
    options++;
  return options;
}
