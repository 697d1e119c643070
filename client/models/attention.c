/* Multi-head attention. */
#include "client/models/attention.h"

#include <math.h>

/* f32[batch,tokens,width] -> f32[batch,heads,tokens,width/heads]; of the key, the last two swapped. */
static const char *split_heads(struct onnx_writer *writer, const char *name, const char *input,
                               const char *shape, bool is_key) {
  static const int64_t perms[][4] = {{0, 2, 1, 3}, {0, 2, 3, 1}};
  const char *parted =
      onnx_writer_node(writer, "Reshape", layer_part(writer, name, "parted"), ONNX_NAMES(input, shape), NULL);
  return onnx_writer_node(writer, "Transpose", layer_part(writer, name, "heads"), ONNX_NAMES(parted),
                          ONNX_ATTRS(onnx_ints("perm", 4, perms[is_key])));
}

const char *layer_attention(struct onnx_writer *writer, const char *name, const char *input,
                            const struct attention *attention) {
  int64_t width = attention->width, head = width / attention->heads;
  const char *parts[] = {layer_part(writer, name, "query"), layer_part(writer, name, "key"),
                         layer_part(writer, name, "value"), NULL};
  const char *sizes =
      onnx_writer_ints(writer, layer_part(writer, name, "sizes"), (int64_t[]){width, width, width}, 3);
  const char *shape = onnx_writer_ints(writer, layer_part(writer, name, "heads_shape"),
                                       (int64_t[]){0, 0, attention->heads, head}, 4);
  const char *joined =
      onnx_writer_ints(writer, layer_part(writer, name, "joined_shape"), (int64_t[]){0, 0, width}, 3);
  const char *scale = onnx_writer_float(writer, layer_part(writer, name, "scale"), 1 / sqrtf((float)head));
  const char *heads[3], *at;
  onnx_writer_node_outputs(writer, "Split", parts, ONNX_NAMES(input, sizes),
                           ONNX_ATTRS(onnx_int("axis", -1)));
  for (int i = 0; i < 3; i++)
    heads[i] = split_heads(writer, parts[i], parts[i], shape, i == 1);
  at = onnx_writer_node(writer, "Mul", layer_part(writer, name, "scaled"), ONNX_NAMES(heads[0], scale), NULL);
  at = onnx_writer_node(writer, "MatMul", layer_part(writer, name, "scores"), ONNX_NAMES(at, heads[1]), NULL);
  if (attention->mask)
    at = layer_add(writer, layer_part(writer, name, "masked"), at, attention->mask);
  at = onnx_writer_node(writer, "Softmax", layer_part(writer, name, "weights"), ONNX_NAMES(at),
                        ONNX_ATTRS(onnx_int("axis", -1)));
  at = layer_dropout(writer, layer_part(writer, name, "drop"), at, attention->dropout);
  at = onnx_writer_node(writer, "MatMul", layer_part(writer, name, "mixed"), ONNX_NAMES(at, heads[2]), NULL);
  at = onnx_writer_node(writer, "Transpose", layer_part(writer, name, "joined"), ONNX_NAMES(at),
                        ONNX_ATTRS(onnx_ints("perm", 4, (int64_t[]){0, 2, 1, 3})));
  return onnx_writer_node(writer, "Reshape", layer_part(writer, name, "mixed_tokens"), ONNX_NAMES(at, joined),
                          NULL);
}

const char *layer_causal_mask(struct onnx_writer *writer, const char *name, int64_t tokens) {
  const char *shape =
      onnx_writer_ints(writer, layer_part(writer, name, "shape"), (int64_t[]){tokens, tokens}, 2);
  const char *hidden = onnx_writer_float(writer, layer_part(writer, name, "hidden"), -INFINITY);
  const char *first = onnx_writer_int(writer, layer_part(writer, name, "first"), 1);
  const char *full =
      onnx_writer_node(writer, "Expand", layer_part(writer, name, "full"), ONNX_NAMES(hidden, shape), NULL);
  return onnx_writer_node(writer, "Trilu", name, ONNX_NAMES(full, first), ONNX_ATTRS(onnx_int("upper", 1)));
}
