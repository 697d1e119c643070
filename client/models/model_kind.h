/* Kinds of models that `weir model` writes: rows of model_kind.def. A kind is a command of its own, with its
   own options: `weir model KIND --help` lists them, and what is not among them is refused. */
#ifndef WEIR_CLIENT_MODELS_MODEL_KIND_H
#define WEIR_CLIENT_MODELS_MODEL_KIND_H

#include "client/command.h"
#include "client/models/layers.h"

enum { MODEL_WIDTH_MAX = 1 << 20, MODEL_DEPTH_MAX = 1000 };

struct model_kind_def {
  struct command_def command; /* of the group "model", run by model_run */
  /* Adds the whole network: inputs, layers, the output "logits". What the options make impossible is an
     onnx_writer_fail. */
  void (*build)(struct onnx_writer *writer, const struct args *args);
};

/* The rest of a kind's command: every kind writes a file. */
#define MODEL_COMMAND .group = "model", .arguments = "", .run = model_run
int model_run(const struct args *args);

/* Rows of options that every kind has, or many. */
#define MODEL_OUTPUT_OPTIONS                                                                                 \
  {"output", 'o', OPTION_TEXT, "FILE.onnx", NULL, 0, 0, "The file to write. Required."}, {                   \
    "seed", 0, OPTION_COUNT, "N", "0", 0, 1L << 53, "Of the initial weights: the same seed, the same file."  \
  }
#define MODEL_CLASSES_OPTION(usual)                                                                          \
  { "classes", 0, OPTION_COUNT, "N", usual, 1, MODEL_WIDTH_MAX, "Number of classes." }
#define MODEL_IMAGE_OPTION(usual)                                                                            \
  { "input", 0, OPTION_LIST, "DIMS", usual, 1, MODEL_WIDTH_MAX, "Shape of one image: CHANNELS,HEIGHT,WIDTH." }
#define MODEL_DROPOUT_OPTION(usual, what)                                                                    \
  { "dropout", 0, OPTION_SHARE, "SHARE", usual, 0, 0, what }

/* Reads --input as an image and adds the model's input "image"; false (and onnx_writer_fail) if it is none.
 */
struct image {
  int64_t channels, height, width;
};
bool model_image(struct onnx_writer *writer, const struct args *args, struct image *image);

/* What a window that moves by `stride` leaves of a length; below 1: it does not fit. */
int64_t model_windows(int64_t length, int64_t kernel, int64_t stride, int64_t pad);

/* The fully connected end of a network, f32[batch,...] of `features` values: Flatten, layers of --hidden with
   ReLU and --dropout, the logits f32[batch,classes]. */
void model_add_classifier(struct onnx_writer *writer, const struct args *args, const char *input,
                          int64_t features, bool has_batch_norm);

#endif
