/* mlp: fully connected layers with ReLU between them. */
#include "client/model_kind.h"

void model_add_classifier(struct onnx_writer *writer, const char *input, int64_t features,
                          const struct model_options *options) {
  const char *at = onnx_writer_node(writer, "Flatten", "flat", (const char *[]){input, NULL}, NULL);
  for (int i = 0; i < options->n_hidden; i++) {
    const char *name = arena_printf(&writer->arena, "fc%d", i + 1);
    at = onnx_writer_linear(writer, name, at, features, options->hidden[i]);
    if (options->has_batch_norm)
      at =
          onnx_writer_batch_norm(writer, arena_printf(&writer->arena, "%s_bn", name), at, options->hidden[i]);
    at = onnx_writer_relu(writer, name, at);
    if (options->dropout > 0)
      at = onnx_writer_dropout(writer, arena_printf(&writer->arena, "%s_drop", name), at,
                               (float)options->dropout);
    features = options->hidden[i];
  }
  at = onnx_writer_linear(writer, "head", at, features, options->classes);
  onnx_writer_node(writer, "Identity", "logits", (const char *[]){at, NULL}, NULL);
  onnx_writer_output(writer, "logits", &options->classes, 1);
}

static int mlp_build(struct onnx_writer *writer, const struct model_options *options, struct err *err) {
  struct model_options own = *options;
  int64_t features = 1;
  if (options->n_channels > 0)
    return err_set(err, ERR_INVALID, "--channels: an mlp has no convolutions");
  if (own.n_hidden < 0) {
    own.n_hidden = 1;
    own.hidden[0] = 256;
  }
  for (int i = 0; i < own.input_rank; i++)
    features *= own.input[i];
  onnx_writer_input(writer, "image", own.input, own.input_rank);
  model_add_classifier(writer, "image", features, &own);
  return 0;
}

const struct model_kind_def model_kind_mlp = {
    "mlp", "fully connected layers with ReLU; --hidden 256 unless given", mlp_build};
