/* What kinds of models share. */
#include "client/models/model_kind.h"

bool model_image(struct onnx_writer *writer, const struct args *args, struct image *image) {
  int64_t dims[OPTION_LIST_MAX];
  if (args_list(args, "input", dims) != 3) {
    onnx_writer_fail(writer, "--input: %s wants CHANNELS,HEIGHT,WIDTH, as 3,224,224", args->command->name);
    return false;
  }
  *image = (struct image){dims[0], dims[1], dims[2]};
  onnx_writer_input(writer, "image", ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, dims, 3);
  return true;
}

int64_t model_windows(int64_t length, int64_t kernel, int64_t stride, int64_t pad) {
  return length + 2 * pad < kernel ? 0 : (length + 2 * pad - kernel) / stride + 1;
}

void model_add_classifier(struct onnx_writer *writer, const struct args *args, const char *input,
                          int64_t features, bool has_batch_norm) {
  int64_t hidden[OPTION_LIST_MAX], classes = args_count(args, "classes");
  int n_hidden = args_list(args, "hidden", hidden);
  const char *at = onnx_writer_node(writer, "Flatten", "flat", ONNX_NAMES(input), NULL);
  struct linear linear;
  for (int i = 0; i < n_hidden; i++) {
    const char *name = arena_printf(&writer->arena, "fc%d", i + 1);
    linear = linear_usual(features, hidden[i]);
    at = layer_linear(writer, name, at, &linear);
    if (has_batch_norm)
      at = layer_batch_norm(writer, arena_printf(&writer->arena, "%s_bn", name), at, hidden[i]);
    at = layer_relu(writer, name, at);
    at = layer_dropout(writer, arena_printf(&writer->arena, "%s_drop", name), at,
                       args_number(args, "dropout"));
    features = hidden[i];
  }
  linear = linear_usual(features, classes);
  at = layer_linear(writer, "head", at, &linear);
  layer_logits(writer, at, &classes, 1);
}
