/* Options of a command, read through its table. */
#include "client/option.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/nearest.h"
#include "common/base/size.h"

/* Those of commands that talk to a coordinator, and, the last two, of all. */
static const struct option_def common_options[] = {
    {.name = "coordinator", .kind = OPTION_TEXT, .value = "HOST:PORT"},
    {.name = "tls",
     .kind = OPTION_TEXT,
     .value = "DIR",
     .help = "the folder of your certificate, as `weir certs` makes it: the cluster's members have theirs of "
             "the same authority, and connections are encrypted. Default: $WEIR_TLS, else plaintext to this "
             "machine alone."},
    {.name = "insecure",
     .kind = OPTION_FLAG,
     .help = "let plaintext go to a coordinator on another machine, without certificates. Default: where "
             "WEIR_INSECURE is 1."},
    {.name = "log-format",
     .kind = OPTION_TEXT,
     .value = "FORMAT",
     .help =
         "text or json: how lines of the log are written, also those of processes that the command starts. "
         "Default: $WEIR_LOG_FORMAT, else text."},
    {.name = "help", .letter = 'h', .kind = OPTION_FLAG, .help = "print this page"},
    {0}};
static const struct option_def *const format_option = &common_options[3], *const help_option =
                                                                              &common_options[4];
static const char default_coordinator[] = "127.0.0.1:7070";

/* What one word of argv names: its row, and the value that came with it behind '='. */
struct option_use {
  const struct option_def *option;
  const char *value;
  const char **slot; /* where the value goes */
};

static int option_find(struct args *args, const char *word, struct option_use *use, struct err *err);
static int option_take(struct args *args, const struct option_use *use, struct err *err);
static int option_unknown(const struct args *args, const char *word, struct err *err);
static int value_check(const struct option_def *option, const char *value, struct err *err);
static int count_check(const struct option_def *option, const char *value, struct err *err);
static int list_check(const struct option_def *option, const char *value, struct err *err);
static int number_check(const struct option_def *option, const char *value, struct err *err);
static int size_check(const struct option_def *option, const char *value, struct err *err);
static int list_read(const char *text, long least, long most, int64_t out[OPTION_LIST_MAX]);
static int args_index(const struct args *args, const char *name);

int args_parse(struct args *args, const struct command_syntax *syntax, int argc, char **argv,
               struct err *err) {
  static const struct option_def none[] = {{0}};
  bool options_ended = false;
  *args = (struct args){.options = syntax->options ? syntax->options : none,
                        .takes_coordinator = syntax->takes_coordinator};
  for (int i = 0; args->options[i].name; i++)
    args->values[i] = args->options[i].fallback;
  args->coordinator = getenv("WEIR_COORDINATOR");
  if (!args->coordinator || !args->coordinator[0])
    args->coordinator = default_coordinator;
  for (int i = 0; i < argc; i++) {
    struct option_use use;
    if (options_ended || argv[i][0] != '-' || argv[i][1] == '\0') {
      if (args->n_arguments == ARGUMENTS_MAX)
        return err_set(err, ERR_INVALID, "too many arguments, from '%s' on", argv[i]);
      args->arguments[args->n_arguments++] = argv[i];
      continue;
    }
    if (strcmp(argv[i], "--") == 0) {
      options_ended = true;
      continue;
    }
    if (option_find(args, argv[i], &use, err))
      return err->code;
    if (use.option->kind != OPTION_FLAG && !use.value) {
      if (i + 1 == argc)
        return err_set(err, ERR_INVALID, "option '%s' needs a value: %s", argv[i], use.option->value);
      use.value = argv[++i];
    }
    if (option_take(args, &use, err))
      return err->code;
  }
  args->has_coordinator = args->coordinator != default_coordinator;
  if (syntax->takes_coordinator)
    return rpc_security_choose(args->given_tls, args->given_insecure, &args->security, err);
  return ERR_OK;
}

/* Long forms match by their whole name, short ones by their letter (with the value in the next word). */
static int option_find(struct args *args, const char *word, struct option_use *use, struct err *err) {
  bool is_long = word[1] == '-';
  const char *name = word + (is_long ? 2 : 1);
  const struct option_def *tables[] = {args->options, option_common(args->takes_coordinator)};
  size_t length = strcspn(name, "=");
  *use = (struct option_use){.value = name[length] == '=' ? name + length + 1 : NULL};
  for (int t = 0; t < 2; t++)
    for (const struct option_def *option = tables[t]; option->name; option++) {
      if (is_long ? strncmp(option->name, name, length) != 0 || option->name[length] != '\0'
                  : length != 1 || option->letter != name[0])
        continue;
      use->option = option;
      use->slot = t == 0                         ? &args->values[option - args->options]
                  : option == &common_options[0] ? &args->coordinator
                  : option == &common_options[1] ? &args->given_tls
                  : option == &common_options[2] ? &args->given_insecure
                                                 : NULL;
      return ERR_OK;
    }
  return option_unknown(args, word, err);
}

/* By the environment, which children inherit. */
static int option_set_format(const char *name, struct err *err) {
  enum log_format format;
  if (!log_format_find(name, &format))
    return err_set(err, ERR_INVALID, "--log-format: '%s' is neither text nor json", name);
  log_set_format(format);
  setenv("WEIR_LOG_FORMAT", name, 1);
  return 0;
}

static int option_take(struct args *args, const struct option_use *use, struct err *err) {
  if (use->option->kind == OPTION_FLAG && use->value)
    return err_set(err, ERR_INVALID, "option '--%s' takes no value, but got '%s'", use->option->name,
                   use->value);
  if (value_check(use->option, use->value, err))
    return err->code;
  if (use->option == help_option)
    args->wants_help = true;
  else if (use->option == format_option)
    return option_set_format(use->value, err);
  else if (use->option->kind == OPTION_TEXTS) {
    if (args->n_texts == OPTION_TEXTS_MAX)
      return err_set(err, ERR_INVALID, "option '--%s' is given more than %d times", use->option->name,
                     OPTION_TEXTS_MAX);
    args->texts[args->n_texts++] = use->value;
  } else
    *use->slot = use->option->kind == OPTION_FLAG ? use->option->name : use->value;
  return ERR_OK;
}

static int option_unknown(const struct args *args, const char *word, struct err *err) {
  const char *names[OPTIONS_MAX + 5];
  const char *near;
  char name[64];
  int n = 0;
  for (int i = 0; args->options[i].name; i++)
    names[n++] = args->options[i].name;
  for (const struct option_def *option = option_common(args->takes_coordinator); option->name; option++)
    names[n++] = option->name;
  snprintf(name, sizeof name, "%.*s", (int)strcspn(word, "="), word);
  near = nearest_word(name + strspn(name, "-"), names, n);
  if (near)
    return err_set(err, ERR_INVALID, "unknown option '%s'; did you mean '--%s'?", name, near);
  return err_set(err, ERR_INVALID, "unknown option '%s'", name);
}

static int value_check(const struct option_def *option, const char *value, struct err *err) {
  switch (option->kind) {
  case OPTION_FLAG:
  case OPTION_TEXT:
  case OPTION_TEXTS:
    break;
  case OPTION_COUNT:
    return count_check(option, value, err);
  case OPTION_LIST:
    return list_check(option, value, err);
  case OPTION_SHARE:
  case OPTION_RATIO:
    return number_check(option, value, err);
  case OPTION_SIZE:
    return size_check(option, value, err);
  }
  return ERR_OK;
}

static int count_check(const struct option_def *option, const char *value, struct err *err) {
  char *end;
  long count = strtol(value, &end, 10);
  if (end == value || *end != '\0')
    return err_set(err, ERR_INVALID, "option '--%s' needs a whole number, but got '%s'", option->name, value);
  if (count < option->least || count > option->most)
    return err_set(err, ERR_INVALID, "option '--%s' must be from %ld to %ld, but is %s", option->name,
                   option->least, option->most, value);
  return ERR_OK;
}

static int list_check(const struct option_def *option, const char *value, struct err *err) {
  int64_t unused[OPTION_LIST_MAX];
  if (list_read(value, option->least, option->most, unused) < 0)
    return err_set(
        err, ERR_INVALID,
        "option '--%s' is a list of at most %d whole numbers from %ld to %ld, as 32,64 or 64x3, not "
        "'%s'",
        option->name, OPTION_LIST_MAX, option->least, option->most, value);
  return ERR_OK;
}

static int number_check(const struct option_def *option, const char *value, struct err *err) {
  char *end;
  double number = strtod(value, &end);
  if (end == value || *end != '\0')
    return err_set(err, ERR_INVALID, "option '--%s' needs a number, but got '%s'", option->name, value);
  if (option->kind == OPTION_SHARE && !(number >= 0 && number < 1))
    return err_set(err, ERR_INVALID, "option '--%s' must be from 0 to below 1, but is %s", option->name,
                   value);
  if (option->kind == OPTION_RATIO && !(number >= (double)option->least && number <= (double)option->most))
    return err_set(err, ERR_INVALID, "option '--%s' must be from %ld to %ld, but is %s", option->name,
                   option->least, option->most, value);
  return ERR_OK;
}

static int size_check(const struct option_def *option, const char *value, struct err *err) {
  uint64_t bytes;
  if (!size_parse(value, &bytes))
    return err_set(err, ERR_INVALID,
                   "option '--%s' needs an amount of memory, as 2GB or 1.5GiB, but got '%s'", option->name,
                   value);
  return ERR_OK;
}

/* The length of the list; -1 if it is none. Nothing at all is a list of length 0. */
static int list_read(const char *text, long least, long most, int64_t out[OPTION_LIST_MAX]) {
  int n = 0;
  while (*text) {
    char *end;
    long times = 1, value = strtol(text, &end, 10);
    if (end == text || value < least || value > most)
      return -1;
    if (*end == 'x') {
      text = end + 1;
      times = strtol(text, &end, 10);
      if (end == text || times < 1)
        return -1;
    }
    if (times > OPTION_LIST_MAX - n || (*end == ',' && !end[1]) || (*end && *end != ','))
      return -1;
    while (times-- > 0)
      out[n++] = value;
    text = *end ? end + 1 : end;
  }
  return n;
}

const struct option_def *option_common(bool takes_coordinator) {
  return takes_coordinator ? common_options : format_option;
}

bool args_flag(const struct args *args, const char *name) {
  return args->values[args_index(args, name)] != NULL;
}

const char *args_text(const struct args *args, const char *name) {
  return args->values[args_index(args, name)];
}

long args_count(const struct args *args, const char *name) {
  const char *value = args->values[args_index(args, name)];
  return value ? strtol(value, NULL, 10) : 0;
}

double args_number(const struct args *args, const char *name) {
  const char *value = args->values[args_index(args, name)];
  return value ? strtod(value, NULL) : 0;
}

int args_texts(const struct args *args, const char *name, const char *const **texts) {
  CHECK(args->options[args_index(args, name)].kind == OPTION_TEXTS);
  *texts = args->texts;
  return args->n_texts;
}

int args_list(const struct args *args, const char *name, int64_t out[OPTION_LIST_MAX]) {
  int index = args_index(args, name);
  const char *value = args->values[index];
  return value ? list_read(value, args->options[index].least, args->options[index].most, out) : 0;
}

static int args_index(const struct args *args, const char *name) {
  int i = 0;
  while (args->options[i].name && strcmp(args->options[i].name, name) != 0)
    i++;
  CHECK(args->options[i].name);
  return i;
}
