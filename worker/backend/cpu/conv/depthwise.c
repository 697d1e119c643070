/* The gradient of the weights of depthwise convolutions, a block of channels at a time. */
#include "worker/backend/cpu/conv/depthwise.h"

#include <string.h>

#include "worker/backend/cpu/reals.h"
#include "worker/backend/cpu/window.h"

/* Channels of a block, which lie side by side. */
enum { BLOCK = 16 };

struct depthwise {
  int64_t samples, blocks;
  int64_t height, width, out_height, out_width; /* of x, and of dy */
  int64_t kernel[2], stride[2], step[2], pad[2];
};

static bool depthwise_init(struct depthwise *d, const struct graph *graph, const struct node *node) {
  const struct shape *dy = &node_input(graph, node, 0)->shape, *x = &node_input(graph, node, 1)->shape;
  const struct shape *dw = &node_output(graph, node, 0)->shape;
  struct window window;
  if (x->rank != 4 || dw->rank != 4 || dw->dim[1] != 1 || x->dim[1] != dy->dim[1] || x->dim[1] % BLOCK ||
      node_attr_int(node, "group", 1) != x->dim[1] || node->n_outputs > 1 ||
      !window_init(&window, node, x, dw->dim + 2))
    return false;
  *d = (struct depthwise){.samples = x->dim[0],
                          .blocks = x->dim[1] / BLOCK,
                          .height = x->dim[2],
                          .width = x->dim[3],
                          .out_height = dy->dim[2],
                          .out_width = dy->dim[3]};
  for (int i = 0; i < 2; i++) {
    d->kernel[i] = window.kernel[i];
    d->stride[i] = window.strides[i];
    d->step[i] = window.dilations[i] + 1;
    d->pad[i] = window.pads_begin[i];
  }
  return true;
}

/* The outputs whose windows have element `at` of the kernel within the `n` of the input: [begin, end). */
static void outputs_of(const struct depthwise *d, int axis, int64_t at, int64_t range[2]) {
  int64_t shift = at * d->step[axis] - d->pad[axis], stride = d->stride[axis];
  int64_t n = axis == 0 ? d->height : d->width, outs = axis == 0 ? d->out_height : d->out_width;
  int64_t beyond = n - shift > 0 ? (n - shift + stride - 1) / stride : 0;
  range[0] = shift < 0 ? (-shift + stride - 1) / stride : 0;
  range[1] = beyond < outs ? beyond : outs;
}

/* sums[BLOCK] += dy times what an element of the kernel meets of x, for one sample's block: f32 sums of a
   sample are added in f64. */
BF16_VARIANT static void add_sample(const struct depthwise *d, int64_t tap, const uint16_t *dy,
                                    const uint16_t *x, double *sums) {
  float sample[BLOCK] = {0};
  int64_t r = tap / d->kernel[1], c = tap % d->kernel[1], rows[2], columns[2];
  outputs_of(d, 0, r, rows);
  outputs_of(d, 1, c, columns);
  for (int64_t i = rows[0]; i < rows[1]; i++)
    for (int64_t j = columns[0]; j < columns[1]; j++) {
      int64_t row = i * d->stride[0] + r * d->step[0] - d->pad[0];
      int64_t column = j * d->stride[1] + c * d->step[1] - d->pad[1];
      const uint16_t *from = x + (row * d->width + column) * BLOCK, *by = dy + (i * d->out_width + j) * BLOCK;
      for (int l = 0; l < BLOCK; l++)
        sample[l] += real_of_bf16(from[l]) * real_of_bf16(by[l]);
    }
  for (int l = 0; l < BLOCK; l++)
    sums[l] += (double)sample[l];
}

enum { GRAD_DY, GRAD_X, GRAD_DW };

static int run_grad_weight(struct backend_program *program, struct cpu_step *step,
                           const struct backend_run *run, struct err *err) {
  const struct depthwise *d = step->details;
  const uint16_t *dy = step->args[GRAD_DY].data, *x = step->args[GRAD_X].data;
  float *dw = step->args[GRAD_DW].data;
  int64_t taps = d->kernel[0] * d->kernel[1];
  (void)program, (void)run, (void)err;
  for (int64_t b = 0; b < d->blocks; b++)
    for (int64_t tap = 0; tap < taps; tap++) {
      double sums[BLOCK] = {0};
      for (int64_t n = 0, at = b; n < d->samples; n++, at += d->blocks)
        add_sample(d, tap, dy + at * d->out_height * d->out_width * BLOCK,
                   x + at * d->height * d->width * BLOCK, sums);
      for (int l = 0; l < BLOCK; l++)
        dw[(b * BLOCK + l) * taps + tap] = (float)sums[l];
    }
  return ERR_OK;
}

bool depthwise_prepare_grad_weight(struct backend_program *program, const struct node *node) {
  struct depthwise depthwise;
  if (!program->is_bf16 || !depthwise_init(&depthwise, program->graph, node))
    return false;
  const struct depthwise *d = &depthwise;
  const dnnl_dims_t out = {d->samples, d->blocks * BLOCK, d->out_height, d->out_width};
  const dnnl_dims_t in = {d->samples, d->blocks * BLOCK, d->height, d->width};
  dnnl_memory_desc_t dy = layout_blocked(out, dnnl_bf16), x = layout_blocked(in, dnnl_bf16);
  struct cpu_step *step = cpu_step_new(program, node);
  step->run = run_grad_weight;
  step->details = arena_copy(&program->memory, &depthwise, sizeof depthwise);
  cpu_read(program, step, 0, node->inputs[0], &dy);
  cpu_read(program, step, 0, node->inputs[1], &x);
  cpu_write(program, step, 0, node->outputs[0], NULL);
  cpu_step_end(program, step, NULL);
  return true;
}
