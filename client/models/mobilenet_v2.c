/* mobilenet_v2 (Sandler et al., 2018): inverted residuals, whose convolutions in space are depthwise;
   torchvision's, with its names. */
#include "client/models/model_kind.h"

enum { STAGES = 7, STEM_CHANNELS = 32, LAST_CHANNELS = 1280, CHANNELS_DIVISOR = 8 };

/* Table 2 of the paper. */
static const struct {
  int expansion, channels, blocks, stride;
} stages[STAGES] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                    {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};

/* The nearest multiple of the divisor, but never less than nine tenths of it. */
static int64_t scale_channels(double channels) {
  int64_t scaled = (int64_t)(channels + CHANNELS_DIVISOR / 2.0) / CHANNELS_DIVISOR * CHANNELS_DIVISOR;
  if (scaled < CHANNELS_DIVISOR)
    scaled = CHANNELS_DIVISOR;
  return (double)scaled < 0.9 * channels ? scaled + CHANNELS_DIVISOR : scaled;
}

/* conv + BN, as NAME.0 and NAME.1 with ReLU6, or as NAME.INDEX and the next without. */
struct step {
  int64_t in, out, kernel, stride, groups;
};

static const char *add_conv(struct onnx_writer *writer, const char *name, const char *input,
                            const struct step *step) {
  struct conv conv = {.in = step->in,
                      .out = step->out,
                      .kernel = step->kernel,
                      .stride = step->stride,
                      .pad = step->kernel / 2,
                      .groups = step->groups,
                      .weight = initial_kaiming(step->out * step->kernel * step->kernel),
                      .has_no_bias = true};
  return layer_conv(writer, name, input, &conv);
}

static const char *add_activated(struct onnx_writer *writer, const char *name, const char *input,
                                 const struct step *step) {
  const char *at = add_conv(writer, layer_item(writer, name, 0), input, step);
  at = layer_batch_norm(writer, layer_item(writer, name, 1), at, step->out);
  return layer_relu6(writer, name, at);
}

static const char *add_inverted_residual(struct onnx_writer *writer, const char *name, const char *input,
                                         const struct step *block, int expansion) {
  const char *at = input, *conv = layer_part(writer, name, "conv");
  int64_t hidden = block->in * expansion;
  int item = 0;
  if (expansion != 1)
    at = add_activated(writer, layer_item(writer, conv, item++), at,
                       &(struct step){block->in, hidden, 1, 1, 1});
  at = add_activated(writer, layer_item(writer, conv, item++), at,
                     &(struct step){hidden, hidden, 3, block->stride, hidden});
  at = add_conv(writer, layer_item(writer, conv, item), at, &(struct step){hidden, block->out, 1, 1, 1});
  at = layer_batch_norm(writer, layer_item(writer, conv, item + 1), at, block->out);
  return block->stride == 1 && block->in == block->out
             ? layer_add(writer, layer_part(writer, name, "sum"), at, input)
             : at;
}

static void mobilenet_v2_build(struct onnx_writer *writer, const struct args *args) {
  double width = args_number(args, "width");
  int64_t classes = args_count(args, "classes"), channels = scale_channels(STEM_CHANNELS * width);
  int64_t last = scale_channels(LAST_CHANNELS * (width > 1 ? width : 1));
  struct linear head = {
      .in = last, .out = classes, .weight = initial_normal(0.01), .bias = initial_constant(0)};
  struct image image;
  const char *at;
  int item = 1;
  if (!model_image(writer, args, &image))
    return;
  at = add_activated(writer, "features.0", "image", &(struct step){image.channels, channels, 3, 2, 1});
  for (int s = 0; s < STAGES; s++)
    for (int b = 0; b < stages[s].blocks; b++) {
      struct step block = {.in = channels,
                           .out = scale_channels(stages[s].channels * width),
                           .stride = b == 0 ? stages[s].stride : 1};
      at = add_inverted_residual(writer, layer_item(writer, "features", item++), at, &block,
                                 stages[s].expansion);
      channels = block.out;
    }
  at = add_activated(writer, layer_item(writer, "features", item), at,
                     &(struct step){channels, last, 1, 1, 1});
  at = layer_global_pool(writer, "pool", at);
  at = layer_dropout(writer, "classifier.0", at, args_number(args, "dropout"));
  layer_logits(writer, layer_linear(writer, "classifier.1", at, &head), &classes, 1);
}

static const struct option_def mobilenet_v2_options[] = {
    MODEL_OUTPUT_OPTIONS,
    MODEL_IMAGE_OPTION("3,224,224"),
    MODEL_CLASSES_OPTION("1000"),
    {"width", 0, OPTION_RATIO, "RATIO", "1", 0, 16,
     "The paper's width multiplier: how many channels there are of the usual ones, in multiples of 8."},
    MODEL_DROPOUT_OPTION("0.2", "Share of the last layer's inputs that a training step drops."),
    {0},
};

const struct model_kind_def model_kind_mobilenet_v2 = {
    .command = {.name = "mobilenet_v2",
                .summary = "a network of inverted residuals, for little computation",
                .description =
                    "Writes torchvision's mobilenet_v2 as an ONNX model, from 'image' to 'logits'. "
                    "Initially convolutions are normal with a variance of two over the fan-out, "
                    "batch norms 1 and 0, the last layer normal with a deviation of 0.01.",
                .options = mobilenet_v2_options,
                .examples =
                    "weir model mobilenet_v2 -o mobilenet.onnx\n"
                    "weir model mobilenet_v2 --width 0.5 --input 3,96,96 --classes 10 -o small.onnx\n",
                MODEL_COMMAND},
    .build = mobilenet_v2_build,
};
