/* The files that `weir model` writes, in memory. */
#ifndef WEIR_TESTS_SUPPORT_MODEL_BYTES_H
#define WEIR_TESTS_SUPPORT_MODEL_BYTES_H

#include "client/models/model_kind.h"

/* A model of the kind with options as on its command line, which end with NULL. bytes are the caller's to
 * free. */
static inline int model_bytes(const struct model_kind_def *kind, const char *const *options, uint64_t seed,
                              void **bytes, size_t *size_bytes, struct err *err) {
  struct onnx_writer writer;
  struct args args;
  int argc = 0;
  while (options[argc])
    argc++;
  if (args_parse(&args, &(struct command_syntax){.options = kind->command.options}, argc, (char **)options,
                 err))
    return err->code;
  args.command = &kind->command;
  onnx_writer_init(&writer, kind->command.name, seed);
  kind->build(&writer, &args);
  onnx_writer_pack(&writer, bytes, size_bytes, err);
  onnx_writer_fini(&writer);
  return err->code;
}

#endif
