/* The transforms of Winograd's algorithm F(2x2, 3x3) (Lavin and Gray, "Fast Algorithms for Convolutional
   Neural Networks", 2015) and of its gradient by the weights. A tile is 2 x 2 elements of an output;
   TILE_PARTS products of matrices, one for each element of a transformed tile, take the place of nine.

   Images are bf16[samples, channels / 16, height, width, 16]. What matrices multiply is bf16; transforms and
   sums are f32. The parts of a tile lie side by side, and those of a kernel. If each part were a whole
   matrix, they would often be a multiple of 4096 bytes apart, and an L1 cache of eight ways holds eight lines
   that are. */
#ifndef WEIR_WORKER_BACKEND_CPU_CONV_TILES_H
#define WEIR_WORKER_BACKEND_CPU_CONV_TILES_H

#include <stdint.h>

enum { TILE_SIDE = 2, TILE_PARTS = 16, TILE_BLOCK = 16, TILE_TAPS = 9 };

/* An image's tiles, in the order of samples, rows, columns. Window number (r, c) of a sample begins at
   element (2 r - pad[0], 2 c - pad[1]); what lies beyond the image is 0. */
struct tiles {
  int64_t samples, channels, height, width;
  int64_t rows, columns; /* of tiles, in a sample */
  int64_t pad[2];
};

/* Tiles [first, first + n). */
struct tile_range {
  int64_t first, n;
};

/* Windows of 4 x 4 -> v bf16[n, TILE_PARTS, channels]. */
void tiles_take(const struct tiles *tiles, struct tile_range range, const uint16_t *image, uint16_t *v);

/* m f32[n, TILE_PARTS, channels] -> the image's elements, each plus its channel's bias (NULL: none). Pads are
   not looked at. */
void tiles_put(const struct tiles *tiles, struct tile_range range, const float *m, const float *bias,
               uint16_t *image);

/* The adjoint of tiles_put: -> w bf16[n, TILE_PARTS, channels]. */
void tiles_spread(const struct tiles *tiles, struct tile_range range, const uint16_t *image, uint16_t *w);

/* Kernels f32[out, in, 3, 3]; both numbers of channels fill blocks. */
struct kernels {
  int64_t out, in;
};

/* -> u bf16[in, TILE_PARTS, out]. */
void kernels_take(const struct kernels *kernels, const float *weights, uint16_t *u);
/* Of kernels that are turned about, as the gradient of the input needs them -> u bf16[out, TILE_PARTS, in].
 */
void kernels_take_turned(const struct kernels *kernels, const float *weights, uint16_t *u);
/* The adjoint: s f32[out, TILE_PARTS, in] -> the gradient f32[out, in, 3, 3]. */
void kernels_put(const struct kernels *kernels, const float *s, float *gradient);

#endif
