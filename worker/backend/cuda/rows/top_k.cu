/* TopK by selection: each of the k is the first, in the order asked for, of the elements behind the one
   before. A row is read k times, from the caches but for the first: 4 bytes an element of F32, 2 of BF16,
   neighbours by neighbouring threads.

   TopK by sorting: all elements by their values, 32 bits at a time, the lowest first; then by their rows. */
#include "worker/backend/cuda/engine/integer.cuh"
#include "worker/backend/cuda/rows/rows.cuh"
#include "worker/backend/cuda/rows/top_k.h"

struct candidate {
  float x;
  int64_t index; /* -1: none */
};

/* Whether a comes before b: NaN is the greatest; of equals the one that is first in the row. */
static __device__ __forceinline__ bool comes_before(struct candidate a, struct candidate b, bool is_least) {
  int order = isnan(a.x) || isnan(b.x) ? !!isnan(a.x) - !!isnan(b.x) : (a.x > b.x) - (a.x < b.x);
  if (a.index < 0 || b.index < 0)
    return b.index < 0;
  return order == 0 ? a.index < b.index : (order < 0) == is_least;
}

static __device__ __forceinline__ struct candidate first_of(struct candidate a, struct candidate b,
                                                            bool is_least) {
  return comes_before(b, a, is_least) ? b : a;
}

/* The first of the team's, to each of its threads. */
static __device__ struct candidate team_first(struct candidate own, int lanes, bool is_least) {
  __shared__ struct candidate parts[CUDA_THREADS / CUDA_WARP];
  if (lanes == 1)
    return own;
  for (int offset = CUDA_WARP / 2; offset > 0; offset /= 2) {
    struct candidate other;
    other.x = __shfl_xor_sync(0xffffffffu, own.x, offset);
    other.index = __shfl_xor_sync(0xffffffffu, own.index, offset);
    own = first_of(own, other, is_least);
  }
  if (lanes == CUDA_WARP)
    return own;
  __syncthreads(); /* parts of the call before are read */
  if (threadIdx.x % CUDA_WARP == 0)
    parts[threadIdx.x / CUDA_WARP] = own;
  __syncthreads();
  own = parts[0];
  for (int w = 1; w < CUDA_THREADS / CUDA_WARP; w++)
    own = first_of(own, parts[w], is_least);
  return own;
}

static __global__ void top_k_kernel(struct cuda_top_k t) {
  for (int64_t r = CUDA_TEAM_FIRST(t.lanes); r < t.rows.rows; r += CUDA_TEAMS(t.lanes)) {
    int64_t base = cuda_rows_begin(&t.rows, r), outer = cuda_divide(&t.rows.by_k1, r);
    int64_t to = outer * t.k * t.rows.k1 + (r - outer * t.rows.k1);
    struct candidate last = {0.0f, -1};
    for (int64_t j = 0; j < t.k; j++, to += t.rows.k1) {
      struct candidate best = {0.0f, -1};
      for (int64_t i = CUDA_LANE(t.lanes); i < t.rows.n; i += t.lanes) {
        struct candidate own = {cuda_load(&t.x, base + cuda_rows_offset(&t.rows, i)), i};
        if (last.index < 0 || comes_before(last, own, t.is_least))
          best = first_of(best, own, t.is_least);
      }
      last = team_first(best, t.lanes, t.is_least);
      if (CUDA_LANE(t.lanes) == 0 && t.y.data)
        cuda_store(&t.y, to, last.x);
      if (CUDA_LANE(t.lanes) == 0 && t.indices)
        t.indices[to] = last.index;
    }
  }
}

extern "C" void cuda_top_k_launch(const struct cuda_top_k *t, cudaStream_t stream) {
  CUDA_LAUNCH(top_k_kernel, cuda_team_blocks(t->rows.rows, t->lanes), CUDA_THREADS, stream, *t);
}

/* Where element `id` of the rows, one behind the other, lies in x. */
static __device__ int64_t place_of(const struct cuda_top_k *t, uint32_t id) {
  int64_t r = id / (uint32_t)t->rows.n;
  return cuda_rows_begin(&t->rows, r) + cuda_rows_offset(&t->rows, id - r * t->rows.n);
}

/* Bits that, as an unsigned number, are in the order of the values: NaN is the greatest, 0 and -0 are one. */
static __device__ uint64_t ordered_bits(const struct cuda_tensor *x, int64_t at) {
  if (x->type == CUDA_F32 || x->type == CUDA_BF16) {
    float value = cuda_load(x, at);
    uint32_t bits = __float_as_uint(value == 0.0f ? 0.0f : value);
    return isnan(value) ? 0xffffffffu : bits >> 31 ? ~bits : bits | 0x80000000u;
  }
  if (x->type == CUDA_U8)
    return (uint64_t)cuda_integer(x, at);
  return (uint64_t)cuda_integer(x, at) ^ (x->type == CUDA_I64 ? (uint64_t)1 << 63 : 0x80000000u);
}

enum { WORD_ROW = -1 };

/* The keys of the next sort: a word of each element's ordered bits, 0 the lowest, or its row. ids: what the
   sort before left; NULL: there was none. */
static __global__ void word_kernel(struct cuda_top_k t, int word, uint32_t greatest, const uint32_t *ids,
                                   uint32_t *keys, uint32_t *rows) {
  for (int64_t i = CUDA_FIRST; i < t.x.elems; i += CUDA_STRIDE) {
    uint32_t id = ids ? ids[i] : (uint32_t)i, key = id / (uint32_t)t.rows.n;
    if (word != WORD_ROW) {
      key = (uint32_t)(ordered_bits(&t.x, place_of(&t, id)) >> (32 * word)) & greatest;
      key = t.is_least ? key : greatest - key;
    }
    keys[i] = key;
    rows[i] = id;
  }
}

static __global__ void take_kernel(struct cuda_top_k t, const uint32_t *ids) {
  for (int64_t i = CUDA_FIRST; i < t.rows.rows * t.k; i += CUDA_STRIDE) {
    int64_t r = i / t.k, j = i - r * t.k, outer = cuda_divide(&t.rows.by_k1, r);
    int64_t to = (outer * t.k + j) * t.rows.k1 + (r - outer * t.rows.k1);
    uint32_t id = ids[r * t.rows.n + j];
    int64_t from = place_of(&t, id);
    if (t.indices)
      t.indices[to] = id - r * t.rows.n;
    if (t.y.data && (t.y.type == CUDA_F32 || t.y.type == CUDA_BF16))
      cuda_store(&t.y, to, cuda_load(&t.x, from));
    else if (t.y.data)
      cuda_put_integer(&t.y, to, cuda_integer(&t.x, from));
  }
}

/* One more sort, by that word, of what is sorted so far: nothing before word 0. */
static void sort_word(const struct cuda_top_k *t, const struct cuda_sorting *sorting, int word,
                      uint32_t greatest, cudaStream_t stream) {
  int from = cuda_sort_begin(greatest);
  CUDA_LAUNCH(word_kernel, cuda_blocks(t->x.elems), CUDA_THREADS, stream, *t, word, greatest,
              word == 0 ? (const uint32_t *)NULL : sorting->rows[0], sorting->keys[from],
              sorting->rows[from]);
  cuda_sort_launch(sorting, t->x.elems, greatest, stream);
}

extern "C" void cuda_top_k_sort_launch(const struct cuda_top_k *t, const struct cuda_sorting *sorting,
                                       cudaStream_t stream) {
  sort_word(t, sorting, 0, t->x.type == CUDA_U8 ? 0xffu : 0xffffffffu, stream);
  if (t->x.type == CUDA_I64)
    sort_word(t, sorting, 1, 0xffffffffu, stream);
  if (t->rows.rows > 1)
    sort_word(t, sorting, WORD_ROW, (uint32_t)(t->rows.rows - 1), stream);
  CUDA_LAUNCH(take_kernel, cuda_blocks(t->rows.rows * t->k), CUDA_THREADS, stream, *t, sorting->rows[0]);
}
