/* vit (Dosovitskiy et al., 2020): an image's patches as the tokens of a transformer's encoder; torchvision's,
   with its names: vit_b_16 unless options say otherwise. */
#include <math.h>

#include "client/models/attention.h"
#include "client/models/model_kind.h"

static const float EPSILON = 1e-6f;

struct vit {
  int64_t width, hidden, heads, tokens;
  double dropout;
};

/* One token a patch: f32[batch,channels,height,width] -> f32[batch,patches,vit->width]. */
static const char *add_patches(struct onnx_writer *writer, const struct image *image, int64_t patch,
                               int64_t width) {
  struct conv conv = {.in = image->channels,
                      .out = width,
                      .kernel = patch,
                      .stride = patch,
                      .weight = initial_truncated(sqrt(1.0 / (double)(image->channels * patch * patch))),
                      .bias = initial_constant(0)};
  const char *shape = onnx_writer_ints(writer, "patches.shape", (int64_t[]){0, width, -1}, 3);
  const char *at = layer_conv(writer, "conv_proj", "image", &conv);
  at = onnx_writer_node(writer, "Reshape", "patches.flat", ONNX_NAMES(at, shape), NULL);
  return onnx_writer_node(writer, "Transpose", "patches", ONNX_NAMES(at),
                          ONNX_ATTRS(onnx_ints("perm", 3, (int64_t[]){0, 2, 1})));
}

/* The class's token goes before those of each sample, and every token learns its place. */
static const char *add_places(struct onnx_writer *writer, const char *patches, const struct vit *vit) {
  const char *token =
      onnx_writer_parameter(writer, "class_token", (int64_t[]){1, 1, vit->width}, 3, initial_constant(0));
  const char *batch = onnx_writer_node(writer, "Shape", "batch_size", ONNX_NAMES(patches),
                                       ONNX_ATTRS(onnx_int("start", 0), onnx_int("end", 1)));
  const char *rest = onnx_writer_ints(writer, "class_tokens.rest", (int64_t[]){1, vit->width}, 2);
  const char *shape = onnx_writer_node(writer, "Concat", "class_tokens.shape", ONNX_NAMES(batch, rest),
                                       ONNX_ATTRS(onnx_int("axis", 0)));
  const char *tokens = onnx_writer_node(writer, "Expand", "class_tokens", ONNX_NAMES(token, shape), NULL);
  const char *all = onnx_writer_node(writer, "Concat", "tokens", ONNX_NAMES(tokens, patches),
                                     ONNX_ATTRS(onnx_int("axis", 1)));
  const char *places = onnx_writer_parameter(
      writer, "encoder.pos_embedding", (int64_t[]){1, vit->tokens, vit->width}, 3, initial_normal(0.02));
  return layer_add(writer, "encoder.input", all, places);
}

static const char *add_self_attention(struct onnx_writer *writer, const char *name, const char *input,
                                      const struct vit *vit) {
  int64_t width = vit->width;
  struct linear out = {
      .in = width, .out = width, .weight = initial_usual(width), .bias = initial_constant(0)};
  struct attention attention = {.width = width, .heads = vit->heads};
  struct linear in = {.in = width,
                      .out = 3 * width,
                      .weight = initial_xavier(width, 3 * width),
                      .bias = initial_constant(0),
                      .weight_name = layer_part(writer, name, "in_proj_weight"),
                      .bias_name = layer_part(writer, name, "in_proj_bias")};
  const char *at = layer_token_linear(writer, layer_part(writer, name, "in_proj"), input, vit->tokens, &in);
  at = layer_attention(writer, name, at, &attention);
  return layer_token_linear(writer, layer_part(writer, name, "out_proj"), at, vit->tokens, &out);
}

static const char *add_mlp(struct onnx_writer *writer, const char *name, const char *input,
                           const struct vit *vit) {
  int64_t width = vit->width, hidden = vit->hidden;
  struct linear up = {.in = width,
                      .out = hidden,
                      .weight = initial_xavier(width, hidden),
                      .bias = initial_normal(1e-6)},
                down = {.in = hidden,
                        .out = width,
                        .weight = initial_xavier(hidden, width),
                        .bias = initial_normal(1e-6)};
  const char *at = layer_token_linear(writer, layer_item(writer, name, 0), input, vit->tokens, &up);
  at = layer_gelu(writer, name, at, "none");
  at = layer_dropout(writer, layer_item(writer, name, 2), at, vit->dropout);
  at = layer_token_linear(writer, layer_item(writer, name, 3), at, vit->tokens, &down);
  return layer_dropout(writer, layer_item(writer, name, 4), at, vit->dropout);
}

static const char *add_block(struct onnx_writer *writer, const char *name, const char *input,
                             const struct vit *vit) {
  const char *at = layer_norm(writer, layer_part(writer, name, "ln_1"), input, vit->width, EPSILON), *middle;
  at = add_self_attention(writer, layer_part(writer, name, "self_attention"), at, vit);
  at = layer_dropout(writer, layer_part(writer, name, "dropout"), at, vit->dropout);
  middle = layer_add(writer, layer_part(writer, name, "attended"), at, input);
  at = layer_norm(writer, layer_part(writer, name, "ln_2"), middle, vit->width, EPSILON);
  at = add_mlp(writer, layer_part(writer, name, "mlp"), at, vit);
  return layer_add(writer, layer_part(writer, name, "sum"), middle, at);
}

static bool read_options(struct onnx_writer *writer, const struct args *args, const struct image *image,
                         struct vit *vit) {
  int64_t patch = args_count(args, "patch");
  *vit = (struct vit){.width = args_count(args, "width"),
                      .hidden = args_count(args, "hidden"),
                      .heads = args_count(args, "heads"),
                      .tokens = 1 + image->height / patch * (image->width / patch),
                      .dropout = args_number(args, "dropout")};
  vit->hidden = vit->hidden ? vit->hidden : 4 * vit->width;
  if (image->height % patch || image->width % patch)
    onnx_writer_fail(writer, "--patch: patches of %lld x %lld do not fill an image of %lld x %lld",
                     (long long)patch, (long long)patch, (long long)image->height, (long long)image->width);
  if (vit->width % vit->heads)
    onnx_writer_fail(writer, "--heads: %lld do not divide a --width of %lld", (long long)vit->heads,
                     (long long)vit->width);
  return !writer->err.code;
}

static void vit_build(struct onnx_writer *writer, const struct args *args) {
  int64_t classes = args_count(args, "classes"), depth = args_count(args, "depth");
  const char *at, *class_place;
  struct linear head;
  struct image image;
  struct vit vit;
  if (!model_image(writer, args, &image) || !read_options(writer, args, &image, &vit))
    return;
  at = add_patches(writer, &image, args_count(args, "patch"), vit.width);
  at = add_places(writer, at, &vit);
  at = layer_dropout(writer, "encoder.dropout", at, vit.dropout);
  for (int64_t i = 0; i < depth; i++)
    at = add_block(writer, arena_printf(&writer->arena, "encoder.layers.encoder_layer_%lld", (long long)i),
                   at, &vit);
  at = layer_norm(writer, "encoder.ln", at, vit.width, EPSILON);
  class_place = onnx_writer_int(writer, "class_place", 0);
  at = onnx_writer_node(writer, "Gather", "class", ONNX_NAMES(at, class_place),
                        ONNX_ATTRS(onnx_int("axis", 1)));
  head = (struct linear){
      .in = vit.width, .out = classes, .weight = initial_constant(0), .bias = initial_constant(0)};
  layer_logits(writer, layer_linear(writer, "heads.head", at, &head), &classes, 1);
}

static const struct option_def vit_options[] = {
    MODEL_OUTPUT_OPTIONS,
    MODEL_IMAGE_OPTION("3,224,224"),
    MODEL_CLASSES_OPTION("1000"),
    {"patch", 0, OPTION_COUNT, "PIXELS", "16", 1, MODEL_WIDTH_MAX,
     "Height and width of the patches that become tokens."},
    {"width", 0, OPTION_COUNT, "N", "768", 1, MODEL_WIDTH_MAX,
     "Width of a token (torchvision's hidden_dim)."},
    {"depth", 0, OPTION_COUNT, "N", "12", 1, MODEL_DEPTH_MAX, "Number of layers."},
    {"heads", 0, OPTION_COUNT, "N", "12", 1, MODEL_WIDTH_MAX,
     "Heads of an attention; they divide the width."},
    {"hidden", 0, OPTION_COUNT, "N", NULL, 1, MODEL_WIDTH_MAX,
     "Width within the MLPs. Default: four times the token's."},
    MODEL_DROPOUT_OPTION("0", "Share of each layer's outputs that a training step drops."),
    {0},
};

const struct model_kind_def model_kind_vit = {
    .command = {.name = "vit",
                .summary = "a vision transformer",
                .description =
                    "Writes torchvision's VisionTransformer as an ONNX model, from 'image' to 'logits', of "
                    "the size of vit_b_16 unless options say otherwise. Initially linear layers are "
                    "Xavier uniform, position embeddings normal with a deviation of 0.02, the last "
                    "layer 0.",
                .options = vit_options,
                .examples =
                    "weir model vit -o vit_b_16.onnx\n"
                    "weir model vit --input 1,28,28 --classes 10 --patch 4 --width 64 --depth 6 --heads 4 "
                    "-o vit.onnx\n",
                MODEL_COMMAND},
    .build = vit_build,
};
