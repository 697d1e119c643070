/* The transforms of images in f32. */
#include "worker/backend/cpu/conv/tile_lines.h"

#if defined(__x86_64__) && !defined(__clang__)
#define VARIANT __attribute__((target("arch=x86-64-v4")))
#else
#define VARIANT
#endif

typedef float real;
enum { BLOCKS = 1 };

VARIANT static INLINED void vec_read(const real *from, vec *to) {
  memcpy(to, from, sizeof *to);
}

VARIANT static INLINED void blocks_write(const vec *first, const vec *second, int n, real *to) {
  (void)second;
  (void)n;
  memcpy(to, first, sizeof *first);
}

#include "worker/backend/cpu/conv/tiles_template.h"

TRANSFORMS(3)
TRANSFORMS(5)

const struct tile_transforms tiles_f32[] = {TRANSFORMS_ROW(3, 16), TRANSFORMS_ROW(5, 49)};
