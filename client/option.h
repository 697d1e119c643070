/* Options of a command: one table gives parsing, defaults, ranges and help. */
#ifndef WEIR_CLIENT_OPTION_H
#define WEIR_CLIENT_OPTION_H

#include <stdbool.h>
#include <stdint.h>

#include "common/rpc/tls.h"

enum { OPTIONS_MAX = 24, ARGUMENTS_MAX = 64, OPTION_LIST_MAX = 64, OPTION_TEXTS_MAX = 32 };
#define OPTION_COUNT_MAX 9007199254740992L /* 2^53: a `most` where nothing else bounds a count */

enum option_kind {
  OPTION_FLAG,  /* --force */
  OPTION_TEXT,  /* --out DIR */
  OPTION_COUNT, /* --workers N: an integer in [least, most] */
  OPTION_LIST,  /* --hidden 256,128 or 64x3: at most OPTION_LIST_MAX such integers; NxTIMES repeats N */
  OPTION_SHARE, /* --dropout 0.1: a number from 0 to below 1 */
  OPTION_RATIO, /* --width 0.5: a number in [least, most] */
  OPTION_SIZE,  /* --memory 1.5GiB: bytes, as common/base/size.h reads them */
  OPTION_TEXTS, /* --label gpu=h200 --label zone=a: as often as it is given, OPTION_TEXTS_MAX at most */
};

/* A table of them ends with {0}. --help, --log-format, --coordinator, --tls and --insecure need no row:
   every command knows the first two, and every command with `takes_coordinator` the others. */
struct option_def {
  const char *name; /* without the dashes */
  char letter;      /* of the short form (-o); 0: none */
  enum option_kind kind;
  const char *value;    /* its name in the help: "DIR"; NULL for a flag */
  const char *fallback; /* the value when it is not given; NULL: none */
  long least, most;     /* OPTION_COUNT, OPTION_LIST, OPTION_RATIO */
  const char *help;     /* one or more sentences, wrapped by the printer */
};

/* These, as a table; the help of --coordinator depends on the command. */
const struct option_def *option_common(bool takes_coordinator);

struct command_def;

/* What a command line may hold. */
struct command_syntax {
  const struct option_def *options; /* NULL: none of its own */
  bool takes_coordinator;           /* --coordinator, --tls and --insecure are known, too */
};

/* A parsed command line: what args_* read. Texts belong to argv and the tables. */
struct args {
  const struct command_def *command; /* that is run; NULL outside of one */
  const struct option_def *options;
  bool takes_coordinator;
  const char *values[OPTIONS_MAX];     /* by index in options; NULL: not given and no fallback */
  const char *texts[OPTION_TEXTS_MAX]; /* of the one OPTION_TEXTS that a table may have, in order */
  int n_texts;
  const char *coordinator;      /* HOST:PORT: --coordinator, else WEIR_COORDINATOR, else 127.0.0.1:7070 */
  bool has_coordinator;         /* it is one of the first two */
  struct rpc_security security; /* by --tls, --insecure, WEIR_TLS and WEIR_INSECURE */
  const char *given_tls;        /* --tls alone: for clusters of our own */
  const char *given_insecure;   /* --insecure; NULL: not given */
  const char *arguments[ARGUMENTS_MAX]; /* what is not an option, in order */
  int n_arguments;
  bool wants_help;
};

/* Reads argv[0..argc) (without the command's own name): "--name VALUE", "--name=VALUE", "-o VALUE", "--" ends
   options. Errors: INVALID for an unknown option (the nearest known one named), a missing or a superfluous
   value, a count, list or number that is none or out of its range. */
int args_parse(struct args *args, const struct command_syntax *syntax, int argc, char **argv,
               struct err *err);

/* The value of an option of the table; the names are the programmer's (CHECKed). */
bool args_flag(const struct args *args, const char *name);
const char *args_text(const struct args *args, const char *name); /* NULL: not given and no fallback */
long args_count(const struct args *args, const char *name);       /* 0: not given and no fallback */
double args_number(const struct args *args, const char *name);    /* likewise */
/* Returns how many there are; they belong to argv. */
int args_texts(const struct args *args, const char *name, const char *const **texts);
/* Returns how many there are. */
int args_list(const struct args *args, const char *name, int64_t out[OPTION_LIST_MAX]);

#endif
