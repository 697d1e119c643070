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

/* The same of F(2x2, 3x3) in bf16. In multiply-adds of the direct kernel forward, what takes as long: a
   multiply-add of the direct kernel and of a product, an element of a channel's transformed tile, in and out,
   and an element of a transformed kernel. Fitted to shapes that were measured (docs/PERFORMANCE.md). */
struct half_costs {
  double direct, product, tile, kernel;
};

static const struct half_costs half_costs = {1, 1.1, 9, 60}, half_grad_costs = {1.25, 1.2, 12, 40};
enum { HALF_TILE = 2, HALF_SIDE = 4 };

/* It has to take at most five sixths of what the direct kernels take. */
static const double half_margin = 6.0 / 5;

/* Elements of kernels that meet an element of the image, of a pair of channels: direct kernels leave out the
   others. */
static double taps_inside(const struct winograd_shape *shape) {
  const struct window *w = shape->window;
  double taps = (double)shape->out[0];
  for (int i = 0; i < 2; i++)
    taps *= (double)(w->kernel[i] * shape->out[2 + i] - w->pads_begin[i] - w->pads_end[i]);
  return taps;
}

bool winograd_pays_half(const struct winograd_shape *shape, enum conv_way way) {
  if (!is_possible(shape))
    return false;
  const struct half_costs *costs = way == CONV_GRAD_WEIGHT ? &half_grad_costs : &half_costs;
  const int64_t *tiled = way == CONV_GRAD_INPUT ? shape->in : shape->out;
  double tiles = (double)(tiled[0] * ((tiled[2] + HALF_TILE - 1) / HALF_TILE) *
                          ((tiled[3] + HALF_TILE - 1) / HALF_TILE));
  double in = (double)shape->in[1], out = (double)shape->out[1];
  double direct = costs->direct * taps_inside(shape) * in * out;
  double winograd =
      HALF_SIDE * HALF_SIDE *
      (costs->product * tiles * in * out + costs->tile * tiles * (in + out) + costs->kernel * in * out);
  return half_margin * winograd <= direct;
}
