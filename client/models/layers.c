/* Layers that networks are made of. */
#include "client/models/layers.h"

const char *layer_part(struct onnx_writer *writer, const char *name, const char *part) {
  return arena_printf(&writer->arena, "%s.%s", name, part);
}

const char *layer_item(struct onnx_writer *writer, const char *name, int index) {
  return arena_printf(&writer->arena, "%s.%d", name, index);
}

struct linear linear_usual(int64_t in, int64_t out) {
  return (struct linear){.in = in, .out = out, .weight = initial_usual(in), .bias = initial_usual(in)};
}

/* f32[rows,in] times weight f32[out,in], transposed. bias: NULL if there is none. */
static const char *add_gemm(struct onnx_writer *writer, const char *output, const char *input,
                            const char *weight, const char *bias) {
  return onnx_writer_node(writer, "Gemm", output, ONNX_NAMES(input, weight, bias),
                          ONNX_ATTRS(onnx_int("transB", 1)));
}

const char *layer_linear(struct onnx_writer *writer, const char *name, const char *input,
                         const struct linear *linear) {
  const char *weight = linear->weight_name ? linear->weight_name : layer_part(writer, name, "weight");
  const char *bias = linear->bias_name ? linear->bias_name : layer_part(writer, name, "bias");
  if (!linear->is_tied)
    weight = onnx_writer_parameter(writer, weight, (int64_t[]){linear->out, linear->in}, 2, linear->weight);
  bias = linear->has_no_bias ? NULL : onnx_writer_parameter(writer, bias, &linear->out, 1, linear->bias);
  return add_gemm(writer, layer_part(writer, name, "out"), input, weight, bias);
}

/* One tall matrix of all samples' tokens: a reshape costs nothing, and Gemm adds the bias on the way. */
static const char *flatten_tokens(struct onnx_writer *writer, const char *name, const char *input,
                                  int64_t width) {
  const char *shape =
      onnx_writer_ints(writer, layer_part(writer, name, "flat_shape"), (int64_t[]){-1, width}, 2);
  return onnx_writer_node(writer, "Reshape", layer_part(writer, name, "flat"), ONNX_NAMES(input, shape),
                          NULL);
}

static const char *restore_tokens(struct onnx_writer *writer, const char *name, const char *input,
                                  int64_t tokens, int64_t width) {
  const char *shape =
      onnx_writer_ints(writer, layer_part(writer, name, "shape"), (int64_t[]){-1, tokens, width}, 3);
  return onnx_writer_node(writer, "Reshape", layer_part(writer, name, "tokens"), ONNX_NAMES(input, shape),
                          NULL);
}

const char *layer_token_linear(struct onnx_writer *writer, const char *name, const char *input,
                               int64_t tokens, const struct linear *linear) {
  const char *flat = flatten_tokens(writer, name, input, linear->in);
  return restore_tokens(writer, name, layer_linear(writer, name, flat, linear), tokens, linear->out);
}

const char *layer_embedding(struct onnx_writer *writer, const char *name, const char *input,
                            const char *weight) {
  return onnx_writer_node(writer, "Gather", layer_part(writer, name, "out"), ONNX_NAMES(weight, input),
                          ONNX_ATTRS(onnx_int("axis", 0)));
}

const char *layer_conv(struct onnx_writer *writer, const char *name, const char *input,
                       const struct conv *conv) {
  int64_t groups = conv->groups ? conv->groups : 1, stride = conv->stride ? conv->stride : 1;
  const char *bias = NULL,
             *weight = onnx_writer_parameter(
                 writer, layer_part(writer, name, "weight"),
                 (int64_t[]){conv->out, conv->in / groups, conv->kernel, conv->kernel}, 4, conv->weight);
  if (!conv->has_no_bias)
    bias = onnx_writer_parameter(writer, layer_part(writer, name, "bias"), &conv->out, 1, conv->bias);
  return onnx_writer_node(writer, "Conv", layer_part(writer, name, "out"), ONNX_NAMES(input, weight, bias),
                          ONNX_ATTRS(onnx_ints_of("kernel_shape", 2, conv->kernel),
                                     onnx_ints_of("strides", 2, stride), onnx_ints_of("pads", 4, conv->pad),
                                     onnx_int("group", groups)));
}

const char *layer_batch_norm(struct onnx_writer *writer, const char *name, const char *input,
                             int64_t channels) {
  const char *outputs[] = {layer_part(writer, name, "out"), layer_part(writer, name, "new_mean"),
                           layer_part(writer, name, "new_var"), NULL};
  const char *weight =
      onnx_writer_parameter(writer, layer_part(writer, name, "weight"), &channels, 1, initial_constant(1));
  const char *bias =
      onnx_writer_parameter(writer, layer_part(writer, name, "bias"), &channels, 1, initial_constant(0));
  const char *mean = onnx_writer_statistic(writer, layer_part(writer, name, "running_mean"), channels, 0);
  const char *var = onnx_writer_statistic(writer, layer_part(writer, name, "running_var"), channels, 1);
  return onnx_writer_node_outputs(writer, "BatchNormalization", outputs,
                                  ONNX_NAMES(input, weight, bias, mean, var),
                                  ONNX_ATTRS(onnx_int("training_mode", 1)));
}

const char *layer_norm(struct onnx_writer *writer, const char *name, const char *input, int64_t width,
                       float epsilon) {
  const char *weight =
      onnx_writer_parameter(writer, layer_part(writer, name, "weight"), &width, 1, initial_constant(1));
  const char *bias =
      onnx_writer_parameter(writer, layer_part(writer, name, "bias"), &width, 1, initial_constant(0));
  return onnx_writer_node(writer, "LayerNormalization", layer_part(writer, name, "out"),
                          ONNX_NAMES(input, weight, bias),
                          ONNX_ATTRS(onnx_int("axis", -1), onnx_float("epsilon", epsilon)));
}

const char *layer_max_pool(struct onnx_writer *writer, const char *name, const char *input,
                           const struct max_pool *pool) {
  return onnx_writer_node(writer, "MaxPool", name, ONNX_NAMES(input),
                          ONNX_ATTRS(onnx_ints_of("kernel_shape", 2, pool->kernel),
                                     onnx_ints_of("strides", 2, pool->stride),
                                     onnx_ints_of("pads", 4, pool->pad)));
}

const char *layer_relu(struct onnx_writer *writer, const char *name, const char *input) {
  return onnx_writer_node(writer, "Relu", layer_part(writer, name, "relu"), ONNX_NAMES(input), NULL);
}

const char *layer_relu6(struct onnx_writer *writer, const char *name, const char *input) {
  const char *least = onnx_writer_float(writer, layer_part(writer, name, "least"), 0);
  const char *most = onnx_writer_float(writer, layer_part(writer, name, "most"), 6);
  return onnx_writer_node(writer, "Clip", layer_part(writer, name, "relu6"), ONNX_NAMES(input, least, most),
                          NULL);
}

const char *layer_gelu(struct onnx_writer *writer, const char *name, const char *input,
                       const char *approximate) {
  return onnx_writer_node(writer, "Gelu", layer_part(writer, name, "gelu"), ONNX_NAMES(input),
                          ONNX_ATTRS(onnx_text("approximate", approximate)));
}

const char *layer_add(struct onnx_writer *writer, const char *name, const char *a, const char *b) {
  return onnx_writer_node(writer, "Add", name, ONNX_NAMES(a, b), NULL);
}

/* With training_mode (opset 12), as PyTorch writes it. */
const char *layer_dropout(struct onnx_writer *writer, const char *name, const char *input, double share) {
  const char *ratio, *mode;
  if (share <= 0)
    return input;
  ratio = onnx_writer_float(writer, layer_part(writer, name, "ratio"), (float)share);
  mode = onnx_writer_true(writer, layer_part(writer, name, "training"));
  return onnx_writer_node(writer, "Dropout", layer_part(writer, name, "out"), ONNX_NAMES(input, ratio, mode),
                          NULL);
}

const char *layer_global_pool(struct onnx_writer *writer, const char *name, const char *input) {
  const char *pooled = onnx_writer_node(writer, "GlobalAveragePool", name, ONNX_NAMES(input), NULL);
  return onnx_writer_node(writer, "Flatten", layer_part(writer, name, "flat"), ONNX_NAMES(pooled), NULL);
}

void layer_logits(struct onnx_writer *writer, const char *input, const int64_t *dims, int rank) {
  onnx_writer_node(writer, "Identity", "logits", ONNX_NAMES(input), NULL);
  onnx_writer_output(writer, "logits", dims, rank);
}
