/* The sliding window of convolutions and pools, in oneDNN's terms. */
#include <string.h>

#include "worker/backend/cpu/window.h"

static int64_t attr_at(const struct node *node, const char *name, int i, int64_t otherwise) {
  const struct attr *attr = node_attr(node, name);
  return attr && i < attr->n ? attr->ints[i] : otherwise;
}

bool window_init(struct window *window, const struct node *node, int n, const int64_t *kernel,
                 const int64_t *in, const int64_t *out) {
  const char *auto_pad = node_attr_string(node, "auto_pad", "NOTSET");
  *window = (struct window){0};
  for (int i = 0; i < n; i++) {
    int64_t stride = attr_at(node, "strides", i, 1), dilation = attr_at(node, "dilations", i, 1);
    int64_t span = (kernel[i] - 1) * dilation + 1;
    int64_t whole = (out[i] - 1) * stride + span; /* what the output's windows cover */
    int64_t begin = 0, end = 0;
    if (strncmp(auto_pad, "SAME_", 5) == 0) {
      int64_t total = whole > in[i] ? whole - in[i] : 0;
      begin = strcmp(auto_pad, "SAME_LOWER") == 0 ? total - total / 2 : total / 2;
      end = total - begin;
    } else if (strcmp(auto_pad, "VALID") != 0) {
      begin = attr_at(node, "pads", i, 0);
      end = attr_at(node, "pads", n + i, 0);
    }
    if (stride < 1 || dilation < 1 || begin < 0 || end < 0 || begin >= span)
      return false;
    if (whole > in[i] + begin + end) {
      window->is_beyond = true;
      end = whole - in[i] - begin;
    }
    if (end >= span || (in[i] + begin + end - span) / stride + 1 != out[i])
      return false;
    window->kernel[i] = kernel[i];
    window->strides[i] = stride;
    window->dilations[i] = dilation - 1;
    window->pads_begin[i] = begin;
    window->pads_end[i] = end;
  }
  return true;
}
