/* The windows of convolutions and pools, in oneDNN's terms. */
#ifndef WEIR_WORKER_BACKEND_CPU_WINDOW_H
#define WEIR_WORKER_BACKEND_CPU_WINDOW_H

#include "model/ops/shared/windows.h"
#include "worker/backend/cpu/cpu.h"

struct window {
  dnnl_dims_t kernel, strides;
  dnnl_dims_t dilations; /* oneDNN counts the elements skipped: ONNX's minus one */
  dnnl_dims_t pads_begin, pads_end;
  bool is_beyond; /* it reaches beyond the padding that the node asks for: ceil_mode */
};

/* From the node's attributes for an input of that shape. kernel: as the weights have it; NULL: from the
   attributes. False if oneDNN has no such windows. */
bool window_init(struct window *window, const struct node *node, const struct shape *in,
                 const int64_t *kernel);

/* The same for windows that are known already. */
bool window_of(struct window *window, const struct windows *w);

#endif
