/* The shapes for which Winograd's algorithm pays: those of which an estimate says so. */
#include "worker/backend/cpu/conv/winograd.h"

/* A tile of TILE x TILE outputs is made of SIDE x SIDE products for each pair of channels. */
enum { TILE = 4, SIDE = 6, VECTOR = 16 };

/* What transforms cost in multiply-adds of products: each element of a channel's tile in and out, and each of
   a pair of channels' transformed kernel, which is made of the weights or gives their gradient. Fitted to
   shapes that were measured (docs/PERFORMANCE.md). */
enum { TILE_COST = 27, KERNEL_COST = 50, KERNEL_GRAD_COST = 25 };

/* It has to take half of what the direct kernels take: processors that multiply twice as fast transform no
   faster. */
enum { MARGIN = 2 };

/* Of oneDNN's kernels: 3 x 3 windows side by side, and channels that fill vectors. */
static bool is_possible(const struct winograd_shape *shape) {
  const struct window *w = shape->window;
  if (shape->rank != 4 || shape->weights_rank != 4 || shape->in[1] % VECTOR || shape->out[1] % VECTOR)
    return false;
  for (int i = 0; i < 2; i++)
    if (w->kernel[i] != 3 || w->strides[i] != 1 || w->dilations[i] != 0 || w->pads_begin[i] > 1 ||
        w->pads_end[i] > 1)
      return false;
  return true;
}

bool winograd_pays(const struct winograd_shape *shape, enum conv_way way) {
  if (!is_possible(shape))
    return false;
  const int64_t *tiled = way == CONV_GRAD_INPUT ? shape->in : shape->out;
  double tiles = (double)(tiled[0] * ((tiled[2] + TILE - 1) / TILE) * ((tiled[3] + TILE - 1) / TILE));
  double in = (double)shape->in[1], out = (double)shape->out[1];
  double pixels = (double)(shape->out[0] * shape->out[2] * shape->out[3]);
  double direct = 9 * pixels * in * out;
  double kernel_cost = way == CONV_GRAD_WEIGHT ? KERNEL_GRAD_COST : KERNEL_COST;
  double winograd =
      SIDE * SIDE * (tiles * in * out + TILE_COST * tiles * (in + out) + kernel_cost * in * out);
  return MARGIN * winograd <= direct;
}

/* The same of F(2x2, 3x3) in bf16, whose products take longer than the direct kernel's by a tenth. Direct
   kernels for the gradient of the weights take longer by a third. */
enum { HALF_TILE = 2, HALF_SIDE = 4, HALF_TILE_COST = 16, HALF_KERNEL_COST = 90, HALF_KERNEL_GRAD_COST = 30 };

/* It has to take three quarters of what the direct kernels take. */
static const double half_product_cost = 1.1, half_direct_grad_cost = 4.0 / 3, half_margin = 4.0 / 3;

bool winograd_pays_half(const struct winograd_shape *shape, enum conv_way way) {
  if (!is_possible(shape))
    return false;
  const int64_t *tiled = way == CONV_GRAD_INPUT ? shape->in : shape->out;
  double tiles = (double)(tiled[0] * ((tiled[2] + HALF_TILE - 1) / HALF_TILE) *
                          ((tiled[3] + HALF_TILE - 1) / HALF_TILE));
  double in = (double)shape->in[1], out = (double)shape->out[1];
  double pixels = (double)(shape->out[0] * shape->out[2] * shape->out[3]);
  double direct = 9 * pixels * in * out * (way == CONV_GRAD_WEIGHT ? half_direct_grad_cost : 1);
  double kernel_cost = way == CONV_GRAD_WEIGHT ? HALF_KERNEL_GRAD_COST : HALF_KERNEL_COST;
  double winograd =
      HALF_SIDE * HALF_SIDE *
      (half_product_cost * tiles * in * out + HALF_TILE_COST * tiles * (in + out) + kernel_cost * in * out);
  return half_margin * winograd <= direct;
}
