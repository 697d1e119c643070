/* weir model: writes a freshly initialised model. */
#include <stdio.h>
#include <stdlib.h>

#include "client/files/output_file.h"
#include "client/models/model_kind.h"
#include "client/terminal/output.h"

#define MODEL_KIND(name) extern const struct model_kind_def model_kind_##name;
#include "client/models/model_kind.def"
#undef MODEL_KIND

static const struct model_kind_def *const kinds[] = {
#define MODEL_KIND(name) &model_kind_##name,
#include "client/models/model_kind.def"
#undef MODEL_KIND
};

static const struct command_def *const kind_commands[] = {
#define MODEL_KIND(name) &model_kind_##name.command,
#include "client/models/model_kind.def"
#undef MODEL_KIND
    NULL};

static const struct model_kind_def *kind_of(const struct command_def *command) {
  int i = 0;
  while (&kinds[i]->command != command)
    i++;
  return kinds[i];
}

static void print_summary(const struct onnx_writer *writer, const char *path) {
  char count[OUTPUT_TEXT_MAX];
  printf("%s: %s with %s parameters\n", path, writer->graph.name,
         output_count((double)writer->parameters, count));
}

int model_run(const struct args *args) {
  const char *path = args_text(args, "output");
  struct err err = ERR_NONE;
  struct onnx_writer writer;
  void *bytes = NULL;
  size_t size_bytes;
  if (!path) {
    err_set(&err, ERR_INVALID, "model: name the file to write with -o FILE.onnx");
    return command_fail(&err);
  }
  onnx_writer_init(&writer, args->command->name, (uint64_t)args_count(args, "seed"));
  kind_of(args->command)->build(&writer, args);
  if (!onnx_writer_pack(&writer, &bytes, &size_bytes, &err) &&
      !output_file_save(path, bytes, size_bytes, &err))
    print_summary(&writer, path);
  free(bytes);
  onnx_writer_fini(&writer);
  return err.code ? command_fail(&err) : EXIT_DONE;
}

const struct command_def command_model = {
    .name = "model",
    .summary = "write a freshly initialised model",
    .arguments = "KIND",
    .description =
        "Writes an ONNX model of the given kind in training form, with the initial weights that its "
        "framework "
        "gives it. Tensors have the names of the PyTorch modules, so that an export of the trained weights "
        "loads there. `weir help model KIND` lists what a kind takes. The kinds:",
    .subcommands = kind_commands,
    .examples = "weir model lenet -o lenet.onnx\n"
                "weir model resnet18 --input 3,32,32 --classes 10 -o resnet.onnx\n"
                "weir help model gpt\n",
};
