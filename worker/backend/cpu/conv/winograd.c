/* The shapes for which Winograd's algorithm pays: those of which an estimate says so. */
#include "worker/backend/cpu/conv/winograd.h"

#include "worker/backend/cpu/conv/tiles.h"

/* A tile of TILE x TILE outputs is made of SIDE x SIDE products for each pair of channels. */
enum { TILE = 4, SIDE = 6, VECTOR = 16 };

/* What transforms cost in multiply-adds of products: each element of a channel's tile in and out, and each of
   a pair of channels' transformed kernel, which is made of the weights or gives their gradient. Fitted to
   shapes that were measured (docs/PERFORMANCE.md). */
enum { TILE_COST = 27, KERNEL_COST = 50, KERNEL_GRAD_COST = 25 };

/* It has to take half of what the direct kernels take: processors that multiply twice as fast transform no
   faster. */
enum { MARGIN = 2 };

/* Windows of kernel x kernel side by side, and channels that fill vectors. Pads below 0 would leave elements
   of the image outside all windows. */
static bool is_possible(const struct winograd_shape *shape, int kernel) {
  const struct window *w = shape->window;
  if (shape->rank != 4 || shape->weights_rank != 4 || shape->in[1] % VECTOR || shape->out[1] % VECTOR)
    return false;
  for (int i = 0; i < 2; i++)
    if (w->kernel[i] != kernel || w->strides[i] != 1 || w->dilations[i] != 0 ||
        w->pads_begin[i] > kernel / 2 || w->pads_end[i] < 0 || w->pads_end[i] > kernel / 2)
      return false;
  return true;
}

bool winograd_pays(const struct winograd_shape *shape, enum conv_way way) {
  if (!is_possible(shape, 3))
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

/* The same of tiles of 2 x 2 (tiles.h). In multiply-adds of the direct kernel forward, what takes as long: a
   multiply-add of the direct kernel and of a product, an element of a channel's transformed tile, in and out,
   and an element of a transformed kernel. Fitted to shapes that were measured (docs/PERFORMANCE.md). */
struct tiled_costs {
  double direct, product, tile, kernel;
};

/* [0]: forward and the gradient of the input, [1]: of the weights */
static const struct tiled_costs bf16_costs[] = {{1, 1.1, 9, 60}, {1.25, 1.2, 12, 40}};
static const struct tiled_costs f32_costs[] = {{1, 1.15, 6, 20}, {1.1, 1.2, 10, 16}};

/* They have to take at most five sixths of what the direct kernels take. */
static const double tiled_margin = 6.0 / 5;

/* Elements of kernels that meet an element of the image, of a pair of channels: direct kernels leave out the
   others. */
static double taps_inside(const struct winograd_shape *shape) {
  const struct window *w = shape->window;
  double taps = (double)shape->out[0];
  for (int i = 0; i < 2; i++)
    taps *= (double)(w->kernel[i] * shape->out[2 + i] - w->pads_begin[i] - w->pads_end[i]);
  return taps;
}

bool winograd_pays_tiled(const struct winograd_shape *shape, enum conv_way way, bool is_bf16) {
  bool is_five = is_possible(shape, 5);
  if (!is_five && !is_possible(shape, 3))
    return false;
  const struct tiled_costs *costs = (is_bf16 ? bf16_costs : f32_costs) + (way == CONV_GRAD_WEIGHT);
  double parts = tiles_f32[is_five].parts;
  double tiles = (double)(shape->out[0] * ((shape->out[2] + TILE_SIDE - 1) / TILE_SIDE) *
                          ((shape->out[3] + TILE_SIDE - 1) / TILE_SIDE));
  double in = (double)shape->in[1], out = (double)shape->out[1];
  double direct = costs->direct * taps_inside(shape) * in * out;
  double tiled = parts * (costs->product * tiles * in * out + costs->tile * tiles * (in + out) +
                          costs->kernel * in * out);
  return tiled_margin * tiled <= direct;
}
