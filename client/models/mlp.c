/* mlp: fully connected layers with ReLU between them. */
#include "client/models/model_kind.h"

static void mlp_build(struct onnx_writer *writer, const struct args *args) {
  int64_t dims[OPTION_LIST_MAX], features = 1;
  int rank = args_list(args, "input", dims);
  if (rank < 1 || rank > ONNX_DIMS_MAX - 1)
    onnx_writer_fail(writer, "--input: mlp wants 1 to %d dimensions", ONNX_DIMS_MAX - 1);
  for (int i = 0; i < rank; i++)
    if (__builtin_mul_overflow(features, dims[i], &features))
      onnx_writer_fail(writer, "--input: too large");
  if (writer->err.code)
    return;
  onnx_writer_input(writer, "image", ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, dims, rank);
  model_add_classifier(writer, args, "image", features, args_flag(args, "batch-norm"));
}

static const struct option_def mlp_options[] = {
    MODEL_OUTPUT_OPTIONS,
    {"input", 0, OPTION_LIST, "DIMS", "1,28,28", 1, MODEL_WIDTH_MAX,
     "Shape of one sample, which is flattened: 784 or CHANNELS,HEIGHT,WIDTH."},
    MODEL_CLASSES_OPTION("10"),
    {"hidden", 0, OPTION_LIST, "WIDTHS", "256", 1, MODEL_WIDTH_MAX, "Widths of the layers before the last."},
    {"batch-norm", 0, OPTION_FLAG, NULL, NULL, 0, 0, "Batch normalization after each hidden layer."},
    MODEL_DROPOUT_OPTION("0", "Share of each hidden layer's outputs that a training step drops, as 0.5."),
    {0},
};

const struct model_kind_def model_kind_mlp = {
    .command = {.name = "mlp",
                .summary = "fully connected layers with ReLU",
                .description = "Writes an ONNX model of fully connected layers with ReLU between them, from "
                               "'image' to 'logits'. Initial weights and biases are uniform within one over "
                               "the square root of the fan-in.",
                .options = mlp_options,
                .examples = "weir model mlp --input 784 --hidden 512,256 -o mlp.onnx\n",
                MODEL_COMMAND},
    .build = mlp_build,
};
