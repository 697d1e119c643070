/* BitShift: u8 shifted by as many bits as the second input says, with broadcasting (ONNX 11). */
#include <string.h>

#include "model/ops/shared/elementwise.h"

/* All bits fall out at 8 or more. */
BINARY_LOOP(shift_left, uint8_t, y < 8 ? (uint8_t)(x << y) : 0)
BINARY_LOOP(shift_right, uint8_t, y < 8 ? (uint8_t)(x >> y) : 0)

static bool is_left(const struct node *node) {
  return strcmp(node_attr_string(node, "direction", ""), "LEFT") == 0;
}

static int bit_shift_infer(struct graph *graph, const struct node *node, struct err *err) {
  const char *direction = node_attr_string(node, "direction", "");
  if (!is_left(node) && strcmp(direction, "RIGHT") != 0)
    return node_error(node, err, ERR_INVALID, "direction is '%s'; it must be LEFT or RIGHT", direction);
  return broadcast_infer_as(graph, node, 1 << DTYPE_U8, DTYPE_U8, err);
}

static int bit_shift_ref(const struct op_call *call, struct err *err) {
  return is_left(call->node) ? shift_left(call, err) : shift_right(call, err);
}

static const struct op_case bit_shift_cases[] = {
    {.inputs = "u8{256}[2,3] u8{10}[3]", .attrs = "direction=LEFT"},
    {.inputs = "u8{256}[2,3] u8{10}[2,3]", .attrs = "direction=RIGHT"},
    {0},
};

const struct op_def op_BitShift = {
    .name = "BitShift",
    .domain = "",
    .min_inputs = 2,
    .max_inputs = 2,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 11,
    .flags = OP_INPLACE,
    .infer = bit_shift_infer,
    .ref = bit_shift_ref,
    .cases = bit_shift_cases,
};
