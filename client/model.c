/* weir model: writes a freshly initialised model. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/command.h"
#include "client/model_file.h"
#include "client/model_kind.h"
#include "client/output.h"
#include "common/nearest.h"

#define MODEL_KIND(name) extern const struct model_kind_def model_kind_##name;
#include "client/model_kind.def"
#undef MODEL_KIND

enum { WIDTH_MOST = 1 << 20 };

static const struct model_kind_def *const kinds[] = {
#define MODEL_KIND(name) &model_kind_##name,
#include "client/model_kind.def"
#undef MODEL_KIND
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

static const struct model_kind_def *find_kind(const char *name, struct err *err) {
  const char *names[N_KINDS], *near;
  for (int i = 0; i < N_KINDS; i++) {
    names[i] = kinds[i]->name;
    if (strcmp(name, names[i]) == 0)
      return kinds[i];
  }
  near = nearest_word(name, names, N_KINDS);
  err_set(err, ERR_INVALID, "there is no model kind '%s'%s%s%s; see `weir help model`", name,
          near ? ": did you mean '" : "", near ? near : "", near ? "'?" : "");
  return NULL;
}

/* "32,64" -> 2 numbers of at least 1. text NULL: n is left as it is. */
static int read_widths(const char *option, const char *text, int64_t *out, int *n, struct err *err) {
  if (!text)
    return 0;
  for (*n = 0; *text; (*n)++) {
    char *end;
    long long width = strtoll(text, &end, 10);
    if (end == text || width < 1 || width > WIDTH_MOST || (*end && *end != ',') || *n == MODEL_DIMS_MAX)
      return err_set(err, ERR_INVALID,
                     "--%s: '%s' is not a list of at most %d whole numbers from 1 to %d, as 32,64", option,
                     text, MODEL_DIMS_MAX, WIDTH_MOST);
    out[*n] = width;
    text = *end ? end + 1 : end;
  }
  return 0;
}

static int read_dropout(const char *text, double *out, struct err *err) {
  char *end;
  *out = strtod(text, &end);
  if (end == text || *end || !(*out >= 0 && *out < 1))
    return err_set(err, ERR_INVALID, "--dropout: '%s' is not a share: a number from 0 to below 1, as 0.5",
                   text);
  return 0;
}

static int read_options(const struct args *args, struct model_options *options, struct err *err) {
  *options = (struct model_options){.classes = args_count(args, "classes"),
                                    .has_batch_norm = args_flag(args, "batch-norm"),
                                    .n_hidden = -1,
                                    .n_channels = -1};
  if (read_widths("input", args_text(args, "input"), options->input, &options->input_rank, err) ||
      read_widths("hidden", args_text(args, "hidden"), options->hidden, &options->n_hidden, err) ||
      read_dropout(args_text(args, "dropout"), &options->dropout, err))
    return err->code;
  return read_widths("channels", args_text(args, "channels"), options->channels, &options->n_channels, err);
}

static int write_model(const struct onnx_writer *writer, const char *path, struct err *err) {
  size_t size = onnx__model_proto__get_packed_size(&writer->model);
  uint8_t *bytes = mem_new(size);
  int code;
  onnx__model_proto__pack(&writer->model, bytes);
  code = model_file_write(path, bytes, size, err);
  free(bytes);
  return code;
}

static void print_summary(const struct onnx_writer *writer, const char *kind, const char *path) {
  char count[OUTPUT_TEXT_MAX];
  uint64_t elems = 0;
  for (size_t i = 0; i < writer->graph.n_initializer; i++)
    elems += writer->graph.initializer[i]->raw_data.len / sizeof(float);
  printf("%s: %s with %s values in %zu tensors\n", path, kind, output_count((double)elems, count),
         writer->graph.n_initializer);
}

static int model_run(const struct args *args) {
  struct err err = ERR_NONE;
  struct model_options options;
  struct onnx_writer writer;
  const char *path = args_text(args, "output");
  const struct model_kind_def *kind = find_kind(args->arguments[0], &err);
  if (!kind || read_options(args, &options, &err))
    return command_fail(&err);
  if (!path) {
    err_set(&err, ERR_INVALID, "model: name the file to write with -o FILE.onnx");
    return command_fail(&err);
  }
  onnx_writer_init(&writer, kind->name, (uint64_t)args_count(args, "seed"));
  if (kind->build(&writer, &options, &err) || write_model(&writer, path, &err)) {
    onnx_writer_fini(&writer);
    return command_fail(&err);
  }
  print_summary(&writer, kind->name, path);
  onnx_writer_fini(&writer);
  return EXIT_DONE;
}

static const struct option_def model_option_defs[] = {
    {"output", 'o', OPTION_TEXT, "FILE.onnx", NULL, 0, 0, "The file to write. Required."},
    {"input", 0, OPTION_TEXT, "DIMS", "1,28,28", 0, 0, "Shape of one sample: CHANNELS,HEIGHT,WIDTH."},
    {"classes", 0, OPTION_COUNT, "N", "10", 1, WIDTH_MOST, "Number of classes."},
    {"hidden", 0, OPTION_TEXT, "WIDTHS", NULL, 0, 0,
     "Widths of the fully connected layers before the last, as 256,128."},
    {"channels", 0, OPTION_TEXT, "WIDTHS", NULL, 0, 0, "Channels of the convolutions, as 32,64 (lenet)."},
    {"batch-norm", 0, OPTION_FLAG, NULL, NULL, 0, 0,
     "Batch normalization after each convolution (lenet) or hidden layer (mlp)."},
    {"dropout", 0, OPTION_TEXT, "SHARE", "0", 0, 0,
     "Share of each hidden fully connected layer's outputs that a training step drops, as 0.5."},
    {"seed", 0, OPTION_COUNT, "N", "0", 0, 1L << 53, "Of the initial weights: the same seed, the same file."},
    {0},
};

const struct command_def command_model = {
    .name = "model",
    .summary = "write a freshly initialised model",
    .arguments = "KIND",
    .min_arguments = 1,
    .max_arguments = 1,
    .description =
        "Writes an ONNX model of the given kind in training form, with the usual initial weights: uniform "
        "within one over the square root of the fan-in. Its input is 'image', its output 'logits'.\n\n"
        "Kinds: mlp, fully connected layers with ReLU (--hidden 256 unless given); lenet, 5x5 "
        "convolutions with ReLU and 2x2 max pooling, then fully connected layers (--channels 6,16 "
        "--hidden 120,84 unless given).",
    .options = model_option_defs,
    .examples = "weir model lenet -o lenet.onnx\n"
                "weir model lenet --channels 32,64 --hidden 128 --batch-norm -o cnn.onnx\n"
                "weir model mlp --input 784 --hidden 512,256 -o mlp.onnx\n",
    .run = model_run,
};
