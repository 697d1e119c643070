/* Which convolutions Winograd's algorithm computes (Lavin and Gray, "Fast Algorithms for Convolutional Neural
   Networks", 2015). An estimate from the shape decides, never a measurement: CPUs of one instruction set
   agree. */
#ifndef WEIR_WORKER_BACKEND_CPU_CONV_WINOGRAD_H
#define WEIR_WORKER_BACKEND_CPU_CONV_WINOGRAD_H

#include "worker/backend/cpu/window.h"

enum conv_way { CONV_FORWARD, CONV_GRAD_INPUT, CONV_GRAD_WEIGHT };

/* A convolution in oneDNN's terms. weights_rank is above rank where there are groups. */
struct winograd_shape {
  int rank, weights_rank;
  const int64_t *in, *out; /* [N, C, H, W] of the input and of the output */
  const struct window *window;
};

/* Whether precision fp32-fast computes it by F(4x4, 3x3), whose products are a quarter of the direct ones. */
bool winograd_pays(const struct winograd_shape *shape, enum conv_way way);

/* Whether tiles of 2 x 2 (tiled.h) pay, of images in bf16 or in f32. */
bool winograd_pays_tiled(const struct winograd_shape *shape, enum conv_way way, bool is_bf16);

#endif
