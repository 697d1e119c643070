/* The sliding window of convolutions and pools, in oneDNN's terms. */
#ifndef WEIR_WORKER_BACKEND_CPU_WINDOW_H
#define WEIR_WORKER_BACKEND_CPU_WINDOW_H

#include "worker/backend/cpu/cpu.h"

struct window {
  dnnl_dims_t kernel, strides;
  dnnl_dims_t dilations; /* oneDNN counts the elements skipped: ONNX's minus one */
  dnnl_dims_t pads_begin, pads_end;
  bool is_beyond; /* it reaches beyond the padding that the node asks for: ceil_mode */
};

/* From the node's attributes (strides, dilations, pads, auto_pad) for `n` spatial dimensions of input and
   output. False if they do not describe these sizes. */
bool window_init(struct window *window, const struct node *node, int n, const int64_t *kernel,
                 const int64_t *in, const int64_t *out);

#endif
