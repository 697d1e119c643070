/* Errors as values. */
#include "common/base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct err_def {
  const char *name;
  int status;
  bool is_retryable;
  const char *text;
};

static const struct err_def err_defs[ERR_COUNT];

int err_set(struct err *err, enum err_code code, const char *format, ...) {
  va_list args;
  err->code = code;
  va_start(args, format);
  vsnprintf(err->text, sizeof err->text, format, args);
  va_end(args);
  return code;
}

static int set_errno(struct err *err, enum err_code code, int errno_value, const char *format, va_list args) {
  size_t length;
  err->code = code;
  vsnprintf(err->text, sizeof err->text, format, args);
  length = strlen(err->text);
  snprintf(err->text + length, sizeof err->text - length, ": %s", strerror(errno_value));
  return err->code;
}

int err_errno(struct err *err, int errno_value, const char *format, ...) {
  va_list args;
  va_start(args, format);
  set_errno(err, ERR_IO, errno_value, format, args);
  va_end(args);
  return err->code;
}

int err_open(struct err *err, int errno_value, const char *format, ...) {
  bool is_missing = errno_value == ENOENT || errno_value == ENOTDIR || errno_value == EACCES ||
                    errno_value == ELOOP || errno_value == ENAMETOOLONG;
  va_list args;
  va_start(args, format);
  set_errno(err, is_missing ? ERR_NOT_FOUND : ERR_IO, errno_value, format, args);
  va_end(args);
  return err->code;
}

int err_prefix(struct err *err, const char *format, ...) {
  char text[sizeof err->text];
  va_list args;
  size_t length;
  memcpy(text, err->text, sizeof text);
  va_start(args, format);
  vsnprintf(err->text, sizeof err->text, format, args);
  va_end(args);
  length = strlen(err->text);
  snprintf(err->text + length, sizeof err->text - length, ": %s", text);
  return err->code;
}

int err_append(struct err *err, const char *format, ...) {
  size_t length = strlen(err->text);
  va_list args;
  va_start(args, format);
  vsnprintf(err->text + length, sizeof err->text - length, format, args);
  va_end(args);
  return err->code;
}

const char *err_name(enum err_code code) {
  return err_defs[code].name;
}

int err_grpc_status(enum err_code code) {
  return err_defs[code].status;
}

enum err_code err_from_grpc_status(int status) {
  for (int code = 0; code < ERR_COUNT; code++)
    if (err_defs[code].status == status)
      return code;
  return status == 2 ? ERR_INTERNAL : ERR_UNAVAILABLE;
}

bool err_is_retryable(enum err_code code) {
  return err_defs[code].is_retryable;
}

void check_failed(const char *condition, const char *file, int line) {
  fprintf(stderr, "%s:%d: check failed: %s\n", file, line, condition);
  abort();
}

static const struct err_def err_defs[ERR_COUNT] = {
#define ERR(name, status, retryable, text) [ERR_##name] = {#name, status, retryable, text},
#include "common/base/err.def"
#undef ERR
};
