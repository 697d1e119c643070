/* The transforms of images in bf16. Those of two blocks of channels fill lines of the cache, which are
   written at once. */
#include "worker/backend/cpu/conv/tile_lines.h"

#if defined(__x86_64__) && !defined(__clang__)
#include <immintrin.h>
#define HAS_HALF_VARIANT
/* CPUs that compute in bf16 have the instructions that round to it. */
#define VARIANT __attribute__((target("arch=x86-64-v4,avx512bf16")))
#else
#define VARIANT
#endif

typedef uint16_t real;
enum { BLOCKS = 2 };

VARIANT static INLINED void vec_read(const real *from, vec *to) {
#ifdef HAS_HALF_VARIANT
  __m512i bits = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i_u *)from));
  *to = (vec)_mm512_slli_epi32(bits, 16);
#else
  for (int l = 0; l < TILE_BLOCK; l++)
    (*to)[l] = real_of_bf16(from[l]);
#endif
}

/* The bits of bf16_of_real, of what is not subnormal. */
VARIANT static INLINED void vec_round(const vec *from, real *to) {
#ifdef HAS_HALF_VARIANT
  __m256bh half = _mm512_cvtneps_pbh((__m512)*from);
  memcpy(to, &half, sizeof half);
#else
  for (int l = 0; l < TILE_BLOCK; l++)
    to[l] = bf16_of_real((*from)[l]);
#endif
}

/* One block, or two side by side. */
VARIANT static INLINED void blocks_write(const vec *first, const vec *second, int n, real *to) {
#ifdef HAS_HALF_VARIANT
  if (n == 2) {
    __m512bh halves = _mm512_cvtne2ps_pbh((__m512)*second, (__m512)*first);
    memcpy(to, &halves, sizeof halves);
    return;
  }
#endif
  vec_round(first, to);
  if (n == 2)
    vec_round(second, to + TILE_BLOCK);
}

#include "worker/backend/cpu/conv/tiles_template.h"

TRANSFORMS(3)
TRANSFORMS(5)

const struct tile_transforms tiles_bf16[] = {TRANSFORMS_ROW(3, 16), TRANSFORMS_ROW(5, 49)};
