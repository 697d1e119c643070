/* Layers that networks are made of, with PyTorch's names (NAME.weight, NAME.bias). Each returns the name of
   its output. Activations have the batch as their first dimension. */
#ifndef WEIR_CLIENT_MODELS_LAYERS_H
#define WEIR_CLIENT_MODELS_LAYERS_H

#include "model/onnx/onnx_writer.h"

/* "NAME.PART", until onnx_writer_fini. */
const char *layer_part(struct onnx_writer *writer, const char *name, const char *part);
/* "NAME.INDEX", as torch.nn.Sequential numbers its layers. */
const char *layer_item(struct onnx_writer *writer, const char *name, int index);

struct linear {
  int64_t in, out;
  struct initial_values weight, bias;
  bool has_no_bias;
  const char *weight_name, *bias_name; /* NULL: NAME.weight, NAME.bias */
  bool is_tied;                        /* weight_name is a parameter f32[out,in] that is there already */
};

/* As torch.nn.Linear is born. */
struct linear linear_usual(int64_t in, int64_t out);

/* f32[batch,in] -> f32[batch,out] */
const char *layer_linear(struct onnx_writer *writer, const char *name, const char *input,
                         const struct linear *linear);
/* f32[batch,tokens,in] -> f32[batch,tokens,out] */
const char *layer_token_linear(struct onnx_writer *writer, const char *name, const char *input,
                               int64_t tokens, const struct linear *linear);

/* Row i of weight f32[rows,width] for each i of input i64[...] -> f32[...,width] */
const char *layer_embedding(struct onnx_writer *writer, const char *name, const char *input,
                            const char *weight);

struct conv {
  int64_t in, out, kernel, stride, pad, groups; /* square; stride and groups 0: 1 */
  struct initial_values weight, bias;
  bool has_no_bias;
};

/* f32[batch,in,height,width] -> f32[batch,out,...] */
const char *layer_conv(struct onnx_writer *writer, const char *name, const char *input,
                       const struct conv *conv);

const char *layer_batch_norm(struct onnx_writer *writer, const char *name, const char *input,
                             int64_t channels);
const char *layer_norm(struct onnx_writer *writer, const char *name, const char *input, int64_t width,
                       float epsilon);

/* Square windows, f32[batch,channels,height,width]. */
struct max_pool {
  int64_t kernel, stride, pad;
};
const char *layer_max_pool(struct onnx_writer *writer, const char *name, const char *input,
                           const struct max_pool *pool);

const char *layer_relu(struct onnx_writer *writer, const char *name, const char *input);
const char *layer_relu6(struct onnx_writer *writer, const char *name, const char *input);
const char *layer_gelu(struct onnx_writer *writer, const char *name, const char *input,
                       const char *approximate); /* "none" or "tanh" */
const char *layer_add(struct onnx_writer *writer, const char *name, const char *a, const char *b);

/* In training form. Of a share of 0: the input, and no node. */
const char *layer_dropout(struct onnx_writer *writer, const char *name, const char *input, double share);

/* f32[batch,channels,height,width] -> f32[batch,channels] */
const char *layer_global_pool(struct onnx_writer *writer, const char *name, const char *input);

/* Names `input` "logits" f32[batch,dims...] and makes it the model's output. */
void layer_logits(struct onnx_writer *writer, const char *input, const int64_t *dims, int rank);

#endif
