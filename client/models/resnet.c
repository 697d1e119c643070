/* Residual networks. */
#include "client/models/resnet.h"

#include <string.h>

enum { BOTTLENECK_EXPANSION = 4, SMALL_PIXELS = 64 };

/* conv + BN, as NAME_OF_CONV and NAME_OF_NORM under `block`. */
struct step {
  const char *conv, *norm;
  int64_t in, out, kernel, stride;
};

static const char *add_step(struct onnx_writer *writer, const char *block, const char *input,
                            const struct step *step) {
  struct conv conv = {.in = step->in,
                      .out = step->out,
                      .kernel = step->kernel,
                      .stride = step->stride,
                      .pad = step->kernel / 2,
                      .weight = initial_kaiming(step->out * step->kernel * step->kernel),
                      .has_no_bias = true};
  const char *at =
      layer_conv(writer, *block ? layer_part(writer, block, step->conv) : step->conv, input, &conv);
  return layer_batch_norm(writer, *block ? layer_part(writer, block, step->norm) : step->norm, at, step->out);
}

/* The block's input goes around it, through a 1x1 convolution where its shape changes. */
static const char *add_block(struct onnx_writer *writer, const char *name, const char *input,
                             const struct step *steps, int n_steps) {
  const struct step *last = &steps[n_steps - 1];
  const char *at = input, *around = input;
  int64_t stride = 1;
  for (int i = 0; i < n_steps; i++) {
    at = add_step(writer, name, at, &steps[i]);
    stride *= steps[i].stride;
    if (&steps[i] != last)
      at = layer_relu(writer, layer_part(writer, name, steps[i].norm), at);
  }
  if (stride != 1 || steps[0].in != last->out)
    around = add_step(writer, name, input,
                      &(struct step){"downsample.0", "downsample.1", steps[0].in, last->out, 1, stride});
  return layer_relu(writer, name, layer_add(writer, layer_part(writer, name, "sum"), at, around));
}

/* Of one residual block: channels that come in, channels of its convolutions, and its stride. */
struct residual {
  int64_t in, width, stride;
};

/* The stride is the 3x3 convolution's (ResNet v1.5). */
static const char *add_bottleneck(struct onnx_writer *writer, const char *name, const char *input,
                                  const struct residual *residual) {
  int64_t width = residual->width;
  const struct step steps[] = {{"conv1", "bn1", residual->in, width, 1, 1},
                               {"conv2", "bn2", width, width, 3, residual->stride},
                               {"conv3", "bn3", width, width * BOTTLENECK_EXPANSION, 1, 1}};
  return add_block(writer, name, input, steps, 3);
}

static const char *add_basic(struct onnx_writer *writer, const char *name, const char *input,
                             const struct residual *residual) {
  int64_t width = residual->width;
  const struct step steps[] = {{"conv1", "bn1", residual->in, width, 3, residual->stride},
                               {"conv2", "bn2", width, width, 3, 1}};
  return add_block(writer, name, input, steps, 2);
}

static bool wants_small_stem(struct onnx_writer *writer, const struct args *args, const struct image *image) {
  const char *stem = args_text(args, "stem");
  if (!stem)
    return image->height < SMALL_PIXELS || image->width < SMALL_PIXELS;
  if (strcmp(stem, "small") != 0 && strcmp(stem, "large") != 0)
    onnx_writer_fail(writer, "--stem: it is large or small, not '%s'", stem);
  return strcmp(stem, "small") == 0;
}

static const char *add_stem(struct onnx_writer *writer, const struct image *image, int64_t width,
                            bool is_small) {
  const struct step step = {"conv1", "bn1", image->channels, width, is_small ? 3 : 7, is_small ? 1 : 2};
  const char *at = layer_relu(writer, "bn1", add_step(writer, "", "image", &step));
  return is_small ? at : layer_max_pool(writer, "maxpool", at, &(struct max_pool){3, 2, 1});
}

void resnet_build(struct onnx_writer *writer, const struct args *args, bool has_bottlenecks) {
  int64_t blocks[OPTION_LIST_MAX], classes = args_count(args, "classes");
  int64_t width = args_count(args, "width"), channels = width;
  struct linear head;
  struct image image;
  const char *at;
  if (args_list(args, "depth", blocks) != RESNET_STAGES)
    onnx_writer_fail(writer, "--depth: name the blocks of all %d stages, as 2,2,2,2", RESNET_STAGES);
  if (!model_image(writer, args, &image) || writer->err.code)
    return;
  at = add_stem(writer, &image, width, wants_small_stem(writer, args, &image));
  for (int stage = 0; stage < RESNET_STAGES; stage++, width *= 2)
    for (int block = 0; block < blocks[stage]; block++) {
      const char *name = arena_printf(&writer->arena, "layer%d.%d", stage + 1, block);
      struct residual residual = {channels, width, stage > 0 && block == 0 ? 2 : 1};
      at = (has_bottlenecks ? add_bottleneck : add_basic)(writer, name, at, &residual);
      channels = has_bottlenecks ? width * BOTTLENECK_EXPANSION : width;
    }
  at = layer_global_pool(writer, "avgpool", at);
  head = linear_usual(channels, classes);
  layer_logits(writer, layer_linear(writer, "fc", at, &head), &classes, 1);
}
