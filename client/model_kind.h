/* Kinds of models that `weir model` writes: rows of model_kind.def. */
#ifndef WEIR_CLIENT_MODEL_KIND_H
#define WEIR_CLIENT_MODEL_KIND_H

#include "client/onnx_writer.h"
#include "common/err.h"

enum { MODEL_DIMS_MAX = 8 };

/* What the options say. */
struct model_options {
  int64_t input[MODEL_DIMS_MAX]; /* of one sample */
  int input_rank;
  int64_t classes;
  int64_t hidden[MODEL_DIMS_MAX];   /* widths of the fully connected layers before the last */
  int n_hidden;                     /* -1: the kind's own */
  int64_t channels[MODEL_DIMS_MAX]; /* of the convolutions */
  int n_channels;                   /* -1: the kind's own */
  bool has_batch_norm;
  double dropout; /* share of each hidden layer's outputs that a training step drops; 0: no such node */
};

struct model_kind_def {
  const char *name;
  const char *summary;
  /* Adds the whole network: input, layers, output. Errors: INVALID when the options do not fit the kind. */
  int (*build)(struct onnx_writer *writer, const struct model_options *options, struct err *err);
};

/* The fully connected end of a network: Flatten, hidden layers with ReLU (and dropout), the output "logits"
   [batch, classes]. */
void model_add_classifier(struct onnx_writer *writer, const char *input, int64_t features,
                          const struct model_options *options);

#endif
