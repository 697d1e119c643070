/* Errors as values: a code from err.def and one line of text for people. */
#ifndef WEIR_COMMON_BASE_ERR_H
#define WEIR_COMMON_BASE_ERR_H

#include <stdbool.h>

enum err_code {
#define ERR(name, status, retryable, text) ERR_##name,
#include "common/base/err.def"
#undef ERR
  ERR_COUNT
};

/* Filled by the function that fails. The text is lower case, names what failed first and where (file:line,
   node, worker), and quotes its subjects. */
struct err {
  enum err_code code;
  char text[1536];
};

#define ERR_NONE ((struct err){.code = ERR_OK})

/* Sets code and text (printf format, cut to fit). Returns the code, so that `return err_set(...)` reads well.
 */
int err_set(struct err *err, enum err_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Appends the text of errno_value: "FILE: no such file or directory". */
int err_errno(struct err *err, int errno_value, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* What a spec or a command names could not be opened: NOT_FOUND where no file is to be had by that path
   (none, a folder on the way that is none, no permission), else IO, which is this machine's trouble. */
int err_open(struct err *err, int errno_value, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Puts "context: " before the text of an error that is already set. Returns its code. */
int err_prefix(struct err *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Puts text behind; the code stays. */
int err_append(struct err *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

const char *err_name(enum err_code code); /* "INVALID" */
int err_grpc_status(enum err_code code);  /* the gRPC status that carries it */
enum err_code err_from_grpc_status(int status);
bool err_is_retryable(enum err_code code);

/* A programmer's mistake: says where, and aborts, in release builds too. Never for outside input. */
#define CHECK(condition)                                                                                     \
  do {                                                                                                       \
    if (!(condition))                                                                                        \
      check_failed(#condition, __FILE__, __LINE__);                                                          \
  } while (0)
void check_failed(const char *condition, const char *file, int line) __attribute__((noreturn));

#endif
