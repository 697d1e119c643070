/* lenet: LeNet-5 (LeCun et al., 1998) as it is trained today: 5x5 convolutions with ReLU and 2x2 max pooling,
   then fully connected layers. The first convolution keeps the image's size. */
#include "client/model_kind.h"

enum { KERNEL = 5 };

static const char *add_stage(struct onnx_writer *writer, int stage, const char *input, int64_t in,
                             int64_t out, int64_t pad, bool has_batch_norm) {
  const char *name = arena_printf(&writer->arena, "conv%d", stage + 1);
  const char *at = onnx_writer_conv2d(writer, name, input, in, out, KERNEL, pad);
  if (has_batch_norm)
    at = onnx_writer_batch_norm(writer, arena_printf(&writer->arena, "bn%d", stage + 1), at, out);
  at = onnx_writer_relu(writer, name, at);
  return onnx_writer_node(writer, "MaxPool", arena_printf(&writer->arena, "pool%d", stage + 1),
                          (const char *[]){at, NULL},
                          (struct onnx_ints[]){{"kernel_shape", 2, {2, 2}}, {"strides", 2, {2, 2}}, {0}});
}

static int lenet_build(struct onnx_writer *writer, const struct model_options *options, struct err *err) {
  static const struct model_options usual = {
      .hidden = {120, 84}, .n_hidden = 2, .channels = {6, 16}, .n_channels = 2};
  const struct model_options *convolutions = options->n_channels < 0 ? &usual : options;
  struct model_options own = *options;
  const char *at = "image";
  int64_t depth, height, width;
  if (options->input_rank != 3)
    return err_set(err, ERR_INVALID, "--input: lenet wants CHANNELS,HEIGHT,WIDTH");
  depth = options->input[0];
  height = options->input[1];
  width = options->input[2];
  onnx_writer_input(writer, "image", options->input, 3);
  for (int stage = 0; stage < convolutions->n_channels; stage++) {
    int64_t pad = stage == 0 ? KERNEL / 2 : 0, lost = KERNEL - 1 - 2 * pad;
    at = add_stage(writer, stage, at, depth, convolutions->channels[stage], pad, options->has_batch_norm);
    depth = convolutions->channels[stage];
    height = (height - lost) / 2;
    width = (width - lost) / 2;
    if (height < 1 || width < 1)
      return err_set(err, ERR_INVALID, "--input: the image is too small for %d convolutions",
                     convolutions->n_channels);
  }
  if (own.n_hidden < 0) {
    own.n_hidden = usual.n_hidden;
    own.hidden[0] = usual.hidden[0];
    own.hidden[1] = usual.hidden[1];
  }
  own.has_batch_norm = false;
  model_add_classifier(writer, at, depth * height * width, &own);
  return 0;
}

const struct model_kind_def model_kind_lenet = {
    "lenet", "5x5 convolutions, ReLU, 2x2 max pooling; --channels 6,16 --hidden 120,84 unless given",
    lenet_build};
