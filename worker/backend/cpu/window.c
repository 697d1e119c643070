/* The windows of convolutions and pools, in oneDNN's terms. */
#include "worker/backend/cpu/window.h"

bool window_init(struct window *window, const struct node *node, const struct shape *in,
                 const int64_t *kernel) {
  struct err err = ERR_NONE;
  struct windows w;
  return windows_init(&w, node, in, kernel, &err) == ERR_OK && window_of(window, &w);
}

bool window_of(struct window *window, const struct windows *w) {
  *window = (struct window){0};
  for (int i = 0; i < w->dims; i++) {
    int d = WINDOWS_DIMS - w->dims + i;
    int64_t span = (w->kernel[d] - 1) * w->dilation[d] + 1;
    int64_t covered = (w->out[d] - 1) * w->stride[d] + span; /* by all windows */
    int64_t end = w->pad_end[d];
    if (covered > w->in[d] + w->pad_begin[d] + end) {
      window->is_beyond = true;
      end = covered - w->in[d] - w->pad_begin[d];
    }
    if (w->pad_begin[d] < 0 || w->pad_begin[d] >= span || end >= span)
      return false;
    window->kernel[i] = w->kernel[d];
    window->strides[i] = w->stride[d];
    window->dilations[i] = w->dilation[d] - 1;
    window->pads_begin[i] = w->pad_begin[d];
    window->pads_end[i] = end;
  }
  return true;
}
