/* lenet: LeNet-5 (LeCun et al., 1998) as it is trained today: 5x5 convolutions with ReLU and 2x2 max pooling,
   then fully connected layers. The first convolution keeps the image's size. */
#include "client/models/model_kind.h"

enum { KERNEL = 5, POOL = 2 };

static const char *add_stage(struct onnx_writer *writer, int stage, const char *input,
                             const struct conv *conv, bool has_batch_norm) {
  const char *name = arena_printf(&writer->arena, "conv%d", stage + 1);
  const char *at = layer_conv(writer, name, input, conv);
  if (has_batch_norm)
    at = layer_batch_norm(writer, arena_printf(&writer->arena, "bn%d", stage + 1), at, conv->out);
  at = layer_relu(writer, name, at);
  return layer_max_pool(writer, arena_printf(&writer->arena, "pool%d", stage + 1), at,
                        &(struct max_pool){POOL, POOL, 0});
}

static void lenet_build(struct onnx_writer *writer, const struct args *args) {
  int64_t channels[OPTION_LIST_MAX];
  int stages = args_list(args, "channels", channels);
  const char *at = "image";
  struct image image;
  if (!model_image(writer, args, &image))
    return;
  for (int stage = 0; stage < stages; stage++) {
    int64_t fan_in = image.channels * KERNEL * KERNEL;
    struct conv conv = {.in = image.channels,
                        .out = channels[stage],
                        .kernel = KERNEL,
                        .pad = stage == 0 ? KERNEL / 2 : 0,
                        .weight = initial_usual(fan_in),
                        .bias = initial_usual(fan_in)};
    at = add_stage(writer, stage, at, &conv, args_flag(args, "batch-norm"));
    image = (struct image){channels[stage], model_windows(image.height, KERNEL, 1, conv.pad) / POOL,
                           model_windows(image.width, KERNEL, 1, conv.pad) / POOL};
    if (image.height < 1 || image.width < 1) {
      onnx_writer_fail(writer, "--input: the image is too small for %d convolutions", stages);
      return;
    }
  }
  model_add_classifier(writer, args, at, image.channels * image.height * image.width, false);
}

static const struct option_def lenet_options[] = {
    MODEL_OUTPUT_OPTIONS,
    MODEL_IMAGE_OPTION("1,28,28"),
    MODEL_CLASSES_OPTION("10"),
    {"channels", 0, OPTION_LIST, "WIDTHS", "6,16", 1, MODEL_WIDTH_MAX, "Channels of the convolutions."},
    {"hidden", 0, OPTION_LIST, "WIDTHS", "120,84", 1, MODEL_WIDTH_MAX,
     "Widths of the fully connected layers before the last."},
    {"batch-norm", 0, OPTION_FLAG, NULL, NULL, 0, 0, "Batch normalization after each convolution."},
    MODEL_DROPOUT_OPTION("0", "Share of each hidden fully connected layer's outputs that a training step "
                              "drops, as 0.5."),
    {0},
};

const struct model_kind_def model_kind_lenet = {
    .command = {.name = "lenet",
                .summary = "5x5 convolutions, 2x2 max pooling, fully connected layers",
                .description =
                    "Writes LeNet-5 as an ONNX model, from 'image' to 'logits': 5x5 convolutions with "
                    "ReLU and 2x2 max pooling, then fully connected layers. Initial weights and "
                    "biases are uniform within one over the square root of the fan-in.",
                .options = lenet_options,
                .examples = "weir model lenet -o lenet.onnx\n"
                            "weir model lenet --channels 32,64 --hidden 128 --batch-norm -o cnn.onnx\n",
                MODEL_COMMAND},
    .build = lenet_build,
};
