#include "tests/support/model/model_bytes.h"

int model_bytes(const struct model_recipe *recipe, void **bytes, size_t *size_bytes, struct err *err) {
  const struct model_kind_def *kind = recipe->kind;
  struct onnx_writer writer;
  struct args args;
  int argc = 0;
  while (recipe->options[argc])
    argc++;
  if (args_parse(&args, &(struct command_syntax){.options = kind->command.options}, argc,
                 (char **)recipe->options, err))
    return err->code;
  args.command = &kind->command;
  onnx_writer_init(&writer, kind->command.name, recipe->seed);
  kind->build(&writer, &args);
  onnx_writer_pack(&writer, bytes, size_bytes, err);
  onnx_writer_fini(&writer);
  return err->code;
}
