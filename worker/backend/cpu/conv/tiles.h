/* The transforms of Winograd's algorithm for tiles of 2 x 2 outputs (Lavin and Gray, "Fast Algorithms for
   Convolutional Neural Networks", 2015), and their adjoints, which its gradients need. In each dimension a
   kernel of three elements takes F(2, 3): 4 products for 6 of the direct way. One of five takes F(2, 3) for
   its first three elements and F(2, 2) for the other two: 7 products for 10. All factors are 1 or a half, so
   that transforms cost no precision to speak of.

   Images are [samples, channels / 16, height, width, 16]. Images, and what matrices multiply, are bf16 or
   f32; transforms and sums are f32. The parts of a tile lie side by side, and those of a kernel. If each part
   were a whole matrix, they would often be a multiple of 4096 bytes apart, and an L1 cache of eight ways
   holds eight lines that are. */
#ifndef WEIR_WORKER_BACKEND_CPU_CONV_TILES_H
#define WEIR_WORKER_BACKEND_CPU_CONV_TILES_H

#include <stdint.h>

enum { TILE_SIDE = 2, TILE_BLOCK = 16 };

/* An image's tiles, in the order of samples, rows, columns. Window number (r, c) of a sample, which has
   kernel + 1 elements a side, begins at element (2 r - pad[0], 2 c - pad[1]); what lies beyond the image
   is 0. */
struct tiles {
  int64_t samples, channels, height, width;
  int64_t rows, columns; /* of tiles, in a sample */
  int64_t pad[2];
};

/* Tiles [first, first + n). */
struct tile_range {
  int64_t first, n;
};

/* Kernels f32[out, in, kernel, kernel]; both numbers of channels fill blocks. */
struct kernels {
  int64_t out, in;
};

/* All of one type of images (in the following: real) and one size of kernels. `parts` are those of a tile,
   side by side. */
struct tile_transforms {
  int kernel, parts;

  /* Windows -> v real[n, parts, channels]. */
  void (*take)(const struct tiles *tiles, struct tile_range range, const void *image, void *v);
  /* Its adjoint: m f32[n, parts, channels] -> the image, all of which windows cover. Ranges follow each
     other, from the first tile to the last. sums: f32[tiles_sums(...)], 0 before the first range, which holds
     what further windows reach. */
  void (*give)(const struct tiles *tiles, struct tile_range range, const float *m, float *sums, void *image);

  /* m f32[n, parts, channels] -> the image's elements, each plus its channel's bias (NULL: none). Pads are
     not looked at. */
  void (*put)(const struct tiles *tiles, struct tile_range range, const float *m, const float *bias,
              void *image);
  /* Its adjoint: -> w real[n, parts, channels]. */
  void (*spread)(const struct tiles *tiles, struct tile_range range, const void *image, void *w);

  /* -> u real[in, parts, out]. */
  void (*kernels_take)(const struct kernels *kernels, const float *weights, void *u);
  /* -> u real[out, parts, in]. */
  void (*kernels_take_turned)(const struct kernels *kernels, const float *weights, void *u);
  /* The adjoint: s f32[out, parts, in] -> the gradient f32[out, in, kernel, kernel]. */
  void (*kernels_put)(const struct kernels *kernels, const float *s, float *gradient);

  /* The sum of each channel's elements -> f32[channels]. */
  void (*sum)(const struct tiles *tiles, const void *image, float *sums);
};

/* Of images in that type; [0] for kernels of 3 x 3 and [1] of 5 x 5. For CPUs with AVX-512, those of bf16 for
   CPUs that compute in it. */
extern const struct tile_transforms tiles_bf16[2], tiles_f32[2];

/* Elements of a row of an image that its windows cover, pads included. */
static inline int64_t tiles_width(const struct tiles *tiles, int kernel) {
  return TILE_SIDE * tiles->columns + kernel - 1;
}

/* Elements that `give` needs for sums: for each block of channels, a ring of rows. */
static inline int64_t tiles_sums(const struct tiles *tiles, int kernel) {
  return tiles->channels * (TILE_SIDE + kernel - 1) * tiles_width(tiles, kernel);
}

#endif
