/* Pad, and its gradient: of a margin of one value the tensor without it, which is padding by as much less; of
   other margins sums over the places where each element went, in tables. */
#include <string.h>

#include "model/ops/pad.h"
#include "worker/backend/cuda/conv/resize.h"
#include "worker/backend/cuda/moves/copy.h"
#include "worker/backend/cuda/moves/moves.h"

static int enqueue_pad(struct backend_program *program, const struct cuda_step *step, cudaStream_t stream,
                       struct err *err) {
  const struct cuda_tensor *fill = &step->args[2].tensor;
  (void)program;
  cuda_pad_launch(step->details, step->args[0].tensor.data, step->args[2].buffer < 0 ? NULL : fill->data,
                  step->args[1].tensor.data, stream);
  return cuda_check(step->node, cudaGetLastError(), "start padding", err);
}

/* counts: before each axis. Dimensions come in the order in which the result lies in memory. */
static void pad_describe(struct cuda_pad *pad, const struct cuda_tensor *from, const struct cuda_tensor *to,
                         const int64_t *counts, bool is_back) {
  bool is_channels_last = to->layout == CUDA_CHANNELS_LAST;
  pad->element = cuda_element(to->type);
  pad->rank = to->rank;
  pad->elems = to->elems;
  for (int p = 0; p < to->rank; p++) {
    int d = !is_channels_last || p == 0 ? p : p == to->rank - 1 ? 1 : p + 1;
    pad->out[p] = cuda_divisor_of(to->dim[d]);
    pad->in[p] = from->dim[d];
    pad->before[p] = is_back ? -counts[d] : counts[d];
    pad->from[p] = cuda_stride(from, d);
    pad->to[p] = cuda_stride(to, d);
  }
}

/* Writes the bits of f32 `value` as a tensor of that type has them. */
static uint64_t fill_bits(enum cuda_type type, float value) {
  uint32_t bits = 0;
  if (type == CUDA_F32 || type == CUDA_BF16)
    memcpy(&bits, &value, sizeof bits);
  if (type == CUDA_BF16 && value == value)
    bits = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  else if (type == CUDA_BF16)
    bits = bits >> 16 | 0x40;
  return bits;
}

/* The padded tensor's elements are those of the tensor, each with weight 1. False: there is no memory. */
static bool describe_margins(const struct pad *pad, struct resample *resample) {
  for (int d = 0; d < pad->in.rank; d++) {
    struct resample_axis *axis;
    if (pad->counts[d] == 0 && pad->counts[pad->in.rank + d] == 0) {
      resample_keep(resample, pad->in.dim[d]);
      continue;
    }
    axis = resample_axis_new(resample, pad->in.dim[d], pad->out.dim[d], 1, false);
    if (!axis)
      return false;
    for (int64_t o = 0; o < axis->out; o++) {
      axis->from[o] = pad_source(pad->mode, o - pad->counts[d], axis->in);
      axis->weight[o] = 1.0f;
    }
  }
  return true;
}

static bool prepare_sums(struct backend_program *program, const struct node *node, const struct pad *pad) {
  struct resample resample = {0};
  bool is_prepared =
      describe_margins(pad, &resample) && cuda_resample_prepare(program, node, &resample, true);
  resample_fini(&resample);
  return is_prepared;
}

static bool prepare_either(struct backend_program *program, const struct node *node, bool is_back) {
  static const enum cuda_pad_mode modes[] = {[PAD_CONSTANT] = CUDA_PAD_CONSTANT,
                                             [PAD_REFLECT] = CUDA_PAD_REFLECT,
                                             [PAD_EDGE] = CUDA_PAD_EDGE,
                                             [PAD_WRAP] = CUDA_PAD_WRAP};
  const struct graph *graph = cuda_view(program)->graph;
  const struct value *x = is_back ? node_output(graph, node, 0) : node_input(graph, node, 0);
  const struct value *fill = is_back ? NULL : node_input(graph, node, 2);
  enum cuda_layout layout = moves_layout(program, node);
  struct err err = ERR_NONE;
  struct pad pad;
  if (pad_read(graph, node, &x->shape, &pad, &err))
    return false;
  if (is_back && pad.mode != PAD_CONSTANT)
    return prepare_sums(program, node, &pad);
  struct cuda_pad *details = arena_new(cuda_view(program)->memory, sizeof *details);
  struct cuda_step *step = cuda_step_new(program, node);
  int from = cuda_read(program, step, node->inputs[0], CUDA_ANY_TYPE, layout);
  enum cuda_type type = step->args[from].tensor.type;
  int to = cuda_write(program, step, node->outputs[0], type, layout);
  cuda_read(program, step, fill ? node->inputs[2] : -1, type, CUDA_DENSE);
  details->mode = modes[pad.mode];
  details->fill = is_back ? 0 : fill_bits(type, node_attr_float(node, "value", 0.0f));
  pad_describe(details, &step->args[from].tensor, &step->args[to].tensor, pad.counts, is_back);
  step->details = details;
  step->enqueue = enqueue_pad;
  cuda_step_end(program, step);
  return true;
}

static bool prepare_pad(struct backend_program *program, const struct node *node) {
  return prepare_either(program, node, false);
}

static bool prepare_pad_grad(struct backend_program *program, const struct node *node) {
  return prepare_either(program, node, true);
}

const struct cuda_kernel cuda_kernel_pad = {.op = "Pad", .prepare = prepare_pad};
const struct cuda_kernel cuda_kernel_pad_grad = {.op = "PadGrad", .prepare = prepare_pad_grad};
