/* One dimension of the transforms (tiles.h), of vectors that hold a block of channels: in[0], in[step], ...
   -> out[0], out[out_step], ... kernel: 3 or 5, a constant where these are called. */
#ifndef WEIR_WORKER_BACKEND_CPU_CONV_TILE_LINES_H
#define WEIR_WORKER_BACKEND_CPU_CONV_TILE_LINES_H

#include <stddef.h>

#include "worker/backend/cpu/conv/tiles.h"
#include "worker/backend/cpu/reals.h"

typedef float vec __attribute__((vector_size(TILE_BLOCK * sizeof(float))));

enum { KERNEL_MAX = 5, WINDOW_MAX = KERNEL_MAX + 1, SIDE_MAX = 7 };

/* Elements of a line of a window. */
static INLINED int window_side(const int kernel) {
  return kernel + TILE_SIDE - 1;
}

/* Parts of a line. */
static INLINED int parts_side(const int kernel) {
  return kernel == 3 ? 4 : SIDE_MAX;
}

/* A window's line -> its parts: those of F(2, 3), then those of F(2, 2), which begins at the fourth
   element. */
static INLINED void window_line(const int kernel, const vec *in, ptrdiff_t step, vec *out,
                                ptrdiff_t out_step) {
  vec a = in[0], b = in[step], c = in[2 * step], d = in[3 * step];
  out[0] = a - c;
  out[out_step] = b + c;
  out[2 * out_step] = c - b;
  out[3 * out_step] = b - d;
  if (kernel == 3)
    return;
  vec e = in[4 * step], f = in[5 * step];
  out[4 * out_step] = d - e;
  out[5 * out_step] = e;
  out[6 * out_step] = e - f;
}

/* The adjoint. */
static INLINED void give_line(const int kernel, const vec *in, ptrdiff_t step, vec *out, ptrdiff_t out_step) {
  vec a = in[0], b = in[step], c = in[2 * step], d = in[3 * step];
  out[0] = a;
  out[out_step] = b - c + d;
  out[2 * out_step] = b + c - a;
  out[3 * out_step] = -d;
  if (kernel == 3)
    return;
  vec e = in[4 * step], f = in[5 * step], g = in[6 * step];
  out[3 * out_step] = e - d;
  out[4 * out_step] = f - e + g;
  out[5 * out_step] = -g;
}

/* Products of parts -> a line of the tile. */
static INLINED void tile_line(const int kernel, const vec *in, ptrdiff_t step, vec *out, ptrdiff_t out_step) {
  vec a = in[0], b = in[step], c = in[2 * step], d = in[3 * step];
  out[0] = a + b + c;
  out[out_step] = b - c - d;
  if (kernel == 3)
    return;
  vec e = in[4 * step], f = in[5 * step], g = in[6 * step];
  out[0] += e + f;
  out[out_step] += f - g;
}

/* The adjoint. */
static INLINED void spread_line(const int kernel, const vec *in, ptrdiff_t step, vec *out,
                                ptrdiff_t out_step) {
  vec a = in[0], b = in[step];
  out[0] = a;
  out[out_step] = a + b;
  out[2 * out_step] = a - b;
  out[3 * out_step] = -b;
  if (kernel == 3)
    return;
  out[4 * out_step] = a;
  out[5 * out_step] = a + b;
  out[6 * out_step] = -b;
}

/* A kernel's line -> its parts. */
static INLINED void kernel_line(const int kernel, const vec *in, ptrdiff_t step, vec *out,
                                ptrdiff_t out_step) {
  vec a = in[0], b = in[step], c = in[2 * step], outer = (a + c) * 0.5f, half = b * 0.5f;
  out[0] = a;
  out[out_step] = outer + half;
  out[2 * out_step] = outer - half;
  out[3 * out_step] = c;
  if (kernel == 3)
    return;
  vec d = in[3 * step], e = in[4 * step];
  out[4 * out_step] = d;
  out[5 * out_step] = d + e;
  out[6 * out_step] = e;
}

/* The adjoint. */
static INLINED void gradient_line(const int kernel, const vec *in, ptrdiff_t step, vec *out,
                                  ptrdiff_t out_step) {
  vec a = in[0], b = in[step], c = in[2 * step], d = in[3 * step], outer = (b + c) * 0.5f;
  out[0] = a + outer;
  out[out_step] = (b - c) * 0.5f;
  out[2 * out_step] = outer + d;
  if (kernel == 3)
    return;
  vec e = in[4 * step], f = in[5 * step], g = in[6 * step];
  out[3 * out_step] = e + f;
  out[4 * out_step] = f + g;
}

#endif
