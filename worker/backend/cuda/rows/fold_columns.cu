/* Sums of rows that lie side by side, as the channels of a batch do with channels last. A thread takes
   CUDA_LANES neighbouring rows, so that it reads 16 bytes at a time; the threads of a block that have the
   same rows take every lanes-th element each, and add what they have in shared memory, pair by pair. Each
   operand is read once, and what rows have once a thread. */
#include "worker/backend/cuda/rows/fold.cuh"
#include "worker/backend/cuda/rows/lanes.cuh"

/* Elements of each row whose loads a thread starts before it uses the first. */
enum { SUM_BATCH = 4 };

/* What a thread of a block has to do. */
struct column_part {
  int64_t begin, end; /* of elements; it takes every lanes-th */
  int64_t base, row;  /* where the first row's element 0 is; that row */
  int64_t part;
};

static __device__ int64_t column_tiles(const struct cuda_fold *fold) {
  return (fold->rows.k1 / CUDA_LANES + fold->groups - 1) / fold->groups;
}

/* False for a thread that has nothing to do. */
static __device__ bool column_part_init(const struct cuda_fold *fold, int64_t block,
                                        struct column_part *part) {
  int64_t tiles = column_tiles(fold), tile = block % tiles, i = block / tiles % fold->rows.k0;
  int64_t column = (tile * fold->groups + threadIdx.x % fold->groups) * CUDA_LANES;
  part->part = block / tiles / fold->rows.k0;
  part->row = i * fold->rows.k1 + column;
  part->base = i * fold->rows.r1 * fold->rows.k1 + column;
  part->begin = part->part * fold->part_elems + threadIdx.x / fold->groups;
  part->end = min((part->part + 1) * fold->part_elems, fold->rows.n);
  return column < fold->rows.k1 && (int)threadIdx.x < fold->groups * fold->lanes;
}

/* Adds up what the threads of the same rows have; the first of them gets it. All threads of the block call
 * it.
 */
static __device__ void columns_merge(const struct cuda_fold *fold, struct pair total[CUDA_LANES]) {
  __shared__ double sums[2][CUDA_LANES][CUDA_THREADS];
  int lane = (int)threadIdx.x / fold->groups;
  for (int n = fold->lanes; n > 1; n = (n + 1) / 2) {
    int half = (n + 1) / 2, from = (int)threadIdx.x + half * fold->groups;
    __syncthreads(); /* sums of the round before are read */
    CUDA_EACH_LANE(k)
    if (lane >= half && lane < n) {
      sums[0][k][threadIdx.x] = total[k].a;
      sums[1][k][threadIdx.x] = total[k].b;
    }
    __syncthreads();
    CUDA_EACH_LANE(k)
    if (lane + half < n) {
      total[k].a += sums[0][k][from];
      total[k].b += sums[1][k][from];
    }
  }
}

static __device__ void columns_write(const struct cuda_fold *fold, const struct column_part *part,
                                     const struct pair total[CUDA_LANES]) {
  CUDA_EACH_LANE(k) {
    int64_t at = part->part * fold->rows.rows + part->row + k;
    if (fold->parts == 1) {
      fold_finish(fold, part->row + k, total[k]);
    } else {
      fold->partials[2 * at] = total[k].a;
      fold->partials[2 * at + 1] = total[k].b;
    }
  }
}

/* Of a kind that is known when this is compiled. */
static __device__ __forceinline__ void sum_columns(const int kind, const struct cuda_fold *fold,
                                                   const struct column_part *part,
                                                   struct pair total[CUDA_LANES]) {
  int64_t step = fold->lanes, width = fold->rows.k1;
  for (int64_t i = part->begin; i < part->end; i += SUM_BATCH * step) {
    struct cuda_raw_lanes x[SUM_BATCH];
    CUDA_EACH(b, SUM_BATCH)
    x[b] = cuda_raw_load(&fold->x, part->base + min(i + b * step, part->end - 1) * width, CUDA_LANES);
    CUDA_EACH(b, SUM_BATCH)
    CUDA_EACH_LANE(k)
    if (i + b * step < part->end) {
      struct pair own = fold_element(kind, fold, 0, 0, 0, cuda_raw_lane(&fold->x, &x[b], k), 0.0f);
      total[k].a += own.a;
      if (kind == FOLD_MOMENTS)
        total[k].b += own.b;
    }
  }
}

#define COLUMNS_CASE(kind)                                                                                   \
  case kind:                                                                                                 \
    sum_columns(kind, &fold, &part, total);                                                                  \
    break;

static __global__ void columns_kernel(struct cuda_fold fold) {
  int64_t blocks = column_tiles(&fold) * fold.rows.k0 * fold.parts;
  for (int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
    struct pair total[CUDA_LANES] = {};
    struct column_part part;
    bool is_there = column_part_init(&fold, block, &part);
    switch (is_there ? (int)fold.kind : -1) {
      COLUMNS_CASE(FOLD_SUM)
      COLUMNS_CASE(FOLD_ABS)
      COLUMNS_CASE(FOLD_SQUARES)
      COLUMNS_CASE(FOLD_MOMENTS)
    default:
      break;
    }
    columns_merge(&fold, total);
    if (is_there && (int)threadIdx.x < fold.groups)
      columns_write(&fold, &part, total);
  }
}

/* What rows have. */
struct row_lanes {
  float mean[CUDA_LANES], inv_std[CUDA_LANES], factor[CUDA_LANES], bias[CUDA_LANES];
};

static __device__ void row_lanes_load(const struct cuda_fold *fold, int64_t row, struct row_lanes *lanes) {
  CUDA_EACH_LANE(k) {
    lanes->mean[k] = fold->mean[row + k];
    lanes->inv_std[k] = fold->inv_std ? fold->inv_std[row + k] : 1.0f;
    lanes->factor[k] = fold->masking.bias ? lanes->inv_std[k] * fold->mask_scale[row + k] : 0.0f;
    lanes->bias[k] = fold->masking.bias ? fold->masking.bias[row + k] : 0.0f;
  }
}

/* The operands of eight rows' elements side by side; addend and y of what reads them. */
struct gradient_lanes {
  struct cuda_raw_lanes x, dy, addend, y;
};

static __device__ __forceinline__ void gradient_lanes_load(const bool is_read, const struct cuda_fold *fold,
                                                           int64_t at, struct gradient_lanes *own) {
  own->x = cuda_raw_load(&fold->x, at, CUDA_LANES);
  own->dy = cuda_raw_load(&fold->other, at, CUDA_LANES);
  if (is_read && fold->masking.addend.data)
    own->addend = cuda_raw_load(&fold->masking.addend, at, CUDA_LANES);
  if (is_read && fold->masking.y.data)
    own->y = cuda_raw_load(&fold->masking.y, at, CUDA_LANES);
}

/* The gradient in lane k, of which the row's x is. */
static __device__ __forceinline__ float gradient_lane(const bool is_read, const struct cuda_fold *fold,
                                                      const struct row_lanes *rows, int k, float x,
                                                      const struct gradient_lanes *own) {
  const struct cuda_masking *masking = &fold->masking;
  float dy = cuda_raw_lane(&fold->other, &own->dy, k), y = 0.0f, addend = 0.0f;
  if (is_read && masking->y.data)
    y = cuda_raw_lane(&masking->y, &own->y, k);
  if (is_read && masking->addend.data)
    addend = cuda_raw_lane(&masking->addend, &own->addend, k);
  if (!is_read && masking->bias)
    y = cuda_norm_again(masking, x, rows->mean[k], rows->factor[k], rows->bias[k]);
  return fold->kind == FOLD_MASKED ? cuda_mask(masking, dy, addend, y) : dy;
}

static __device__ __forceinline__ void gradient_lanes_take(const bool is_read, const struct cuda_fold *fold,
                                                           const struct row_lanes *rows, int64_t at,
                                                           const struct gradient_lanes *own,
                                                           struct pair total[CUDA_LANES]) {
  struct cuda_lanes dy;
  CUDA_EACH_LANE(k) {
    float x = cuda_raw_lane(&fold->x, &own->x, k);
    dy.at[k] = gradient_lane(is_read, fold, rows, k, x, own);
    total[k].a += dy.at[k];
    total[k].b += (double)(dy.at[k] * (x - rows->mean[k])) * rows->inv_std[k];
  }
  if (is_read && fold->masking.masked.data)
    cuda_lanes_store(&fold->masking.masked, at, CUDA_LANES, &dy);
}

/* is_read: y and a second gradient are read, and the result is written; else all follows from x and dy. Each
   has the registers that it needs: more than 128 would leave a multiprocessor one block. */
static __device__ __forceinline__ void fold_gradient_columns(const bool is_read,
                                                             const struct cuda_fold *fold) {
  int64_t blocks = column_tiles(fold) * fold->rows.k0 * fold->parts;
  int64_t width = fold->rows.k1, step = fold->lanes * width;
  for (int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
    struct pair total[CUDA_LANES] = {};
    struct column_part part;
    struct row_lanes rows = {};
    bool is_there = column_part_init(fold, block, &part);
    if (is_there)
      row_lanes_load(fold, part.row, &rows);
    for (int64_t at = part.base + part.begin * width, end = part.base + part.end * width;
         at < end && is_there; at += step) {
      struct gradient_lanes own = {};
      gradient_lanes_load(is_read, fold, at, &own);
      gradient_lanes_take(is_read, fold, &rows, at, &own, total);
    }
    columns_merge(fold, total);
    if (is_there && (int)threadIdx.x < fold->groups)
      columns_write(fold, &part, total);
  }
}

static __global__ void __launch_bounds__(CUDA_THREADS, 2) gradient_columns_kernel(struct cuda_fold fold) {
  fold_gradient_columns(false, &fold);
}

static __global__ void __launch_bounds__(CUDA_THREADS, 2) masked_columns_kernel(struct cuda_fold fold) {
  fold_gradient_columns(true, &fold);
}

/* What even kernels add up: of x alone; of dy and x; of dy where y = norm(x), computed again, lets it
   through; of dy and what else is read, with the result written. */
enum even_form { EVEN_SUM, EVEN_MOMENTS, EVEN_GRADIENTS, EVEN_AGAIN, EVEN_READ };

/* Operands of BF16 alone. A thread adds the terms of EVEN_ROWS elements in f32 and that sum to one in f64:
   GPUs convert to f64 at an eighth of the pace of all else. Squares of BF16 are exact in f32, and so are sums
   of eight that are within 2^5 of each other; where the greatest is far above the others, it is also far
   above the rounding. */
enum { EVEN_ROWS = 8 };

struct even_columns {
  const struct cuda_fold *fold;
  const struct cuda_gate *gate;
  float mean[CUDA_LANES], factor[CUDA_LANES], bias[CUDA_LANES];
  float a[CUDA_LANES], b[CUDA_LANES]; /* the sums in f32 */
};

static __device__ __forceinline__ void even_init(const int form, struct even_columns *even, int64_t row) {
  const struct cuda_fold *fold = even->fold;
  float scale[CUDA_LANES];
  if (form >= EVEN_GRADIENTS)
    cuda_floats_load(fold->mean, row, even->mean);
  if (form == EVEN_AGAIN) {
    cuda_floats_load(fold->inv_std, row, even->factor);
    cuda_floats_load(fold->mask_scale, row, scale);
    cuda_floats_load(fold->masking.bias, row, even->bias);
    CUDA_EACH_LANE(k) even->factor[k] *= scale[k];
  }
}

static __device__ __forceinline__ struct gradient_lanes even_load(const int form,
                                                                  const struct cuda_fold *fold, int64_t at) {
  struct gradient_lanes own = {};
  own.x = cuda_raw_load(&fold->x, at, CUDA_LANES);
  if (form >= EVEN_GRADIENTS)
    own.dy = cuda_raw_load(&fold->other, at, CUDA_LANES);
  if (form == EVEN_READ && fold->masking.addend.data)
    own.addend = cuda_raw_load(&fold->masking.addend, at, CUDA_LANES);
  if (form == EVEN_READ && fold->masking.y.data)
    own.y = cuda_raw_load(&fold->masking.y, at, CUDA_LANES);
  return own;
}

/* What is read and gated, as it is written. */
static __device__ __forceinline__ struct cuda_raw_lanes even_masked(const struct even_columns *even,
                                                                    const struct gradient_lanes *own) {
  const struct cuda_masking *masking = &even->fold->masking;
  struct cuda_lanes dy;
  CUDA_EACH_LANE(k)
  dy.at[k] = cuda_gated(even->gate,
                        cuda_raw_lane(&even->fold->other, &own->dy, k) +
                            cuda_raw_lane(&masking->addend, &own->addend, k),
                        cuda_raw_lane(&masking->y, &own->y, k));
  return cuda_pairs_of(&dy);
}

/* Adds what was loaded; zeros, which stand for elements that are not there, add nothing. */
static __device__ __forceinline__ void even_take(const int form, struct even_columns *even,
                                                 const struct gradient_lanes *own) {
  CUDA_EACH_LANE(k) {
    float x = cuda_raw_lane(&even->fold->x, &own->x, k);
    if (form <= EVEN_MOMENTS) {
      even->a[k] += x;
      even->b[k] = form == EVEN_MOMENTS ? fmaf(x, x, even->b[k]) : 0.0f;
      continue;
    }
    float dy = cuda_raw_lane(&even->fold->other, &own->dy, k);
    if (form == EVEN_AGAIN)
      dy = cuda_gated(even->gate, dy, cuda_norm_of(x, even->mean[k], even->factor[k], even->bias[k]));
    even->a[k] += dy;
    even->b[k] = fmaf(dy, x - even->mean[k], even->b[k]);
  }
}

/* Elements i, i + lanes, ... of the part, EVEN_ROWS of them, `batch` loaded at a time. */
static __device__ __forceinline__ void even_stretch(const int form, struct even_columns *even,
                                                    const struct column_part *part, int i) {
  const int batch = form <= EVEN_MOMENTS ? 8 : form == EVEN_GRADIENTS ? 4 : 2;
  int step = even->fold->lanes, end = (int)part->end, width = (int)even->fold->rows.k1,
      base = (int)part->base;
  CUDA_ROLLED for (int r = 0; r < EVEN_ROWS / batch; r++) {
    struct gradient_lanes own[EVEN_ROWS] = {};
    CUDA_EACH(b, batch)
    if (i + (r * batch + b) * step < end)
      own[b] = even_load(form, even->fold, base + (i + (r * batch + b) * step) * width);
    CUDA_EACH(b, batch) {
      int e = i + (r * batch + b) * step;
      if (form == EVEN_READ)
        own[b].dy = even_masked(even, &own[b]);
      if (form == EVEN_READ && e < end)
        cuda_pairs_store(&even->fold->masking.masked, base + e * width, own[b].dy);
      even_take(form, even, &own[b]);
    }
  }
}

/* Of a form that is known when this is compiled, as are the types. */
static __device__ __forceinline__ void even_sum(const int form, struct cuda_fold fold,
                                                const struct cuda_gate *gate, const struct column_part *part,
                                                struct pair total[CUDA_LANES]) {
  struct even_columns even;
  even.fold = &fold;
  even.gate = gate;
  fold.x.type = fold.other.type = fold.masking.addend.type = fold.masking.y.type = CUDA_BF16;
  even_init(form, &even, part->row);
  for (int i = (int)part->begin; i < part->end; i += EVEN_ROWS * fold.lanes) {
    CUDA_EACH_LANE(k) even.a[k] = even.b[k] = 0.0f;
    even_stretch(form, &even, part, i);
    CUDA_EACH_LANE(k) {
      total[k].a += even.a[k];
      total[k].b += even.b[k];
    }
  }
  if (form >= EVEN_GRADIENTS && fold.inv_std)
    CUDA_EACH_LANE(k) total[k].b *= fold.inv_std[part->row + k];
}

#define EVEN_CASE(form)                                                                                      \
  case form:                                                                                                 \
    even_sum(form, fold, &gate, &part, total);                                                               \
    break;

/* A kernel of some forms: each has the registers that it needs. */
#define EVEN_KERNEL(even, cases)                                                                             \
  static __global__ void __launch_bounds__(CUDA_THREADS, 2)                                                  \
      even##_columns_kernel(struct cuda_fold fold, struct cuda_gate gate, int form) {                        \
    int64_t blocks = column_tiles(&fold) * fold.rows.k0 * fold.parts;                                        \
    for (int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {                                   \
      struct pair total[CUDA_LANES] = {};                                                                    \
      struct column_part part;                                                                               \
      bool is_there = column_part_init(&fold, block, &part);                                                 \
      switch (is_there ? form : -1) { cases }                                                                \
      columns_merge(&fold, total);                                                                           \
      if (is_there && (int)threadIdx.x < fold.groups)                                                        \
        columns_write(&fold, &part, total);                                                                  \
    }                                                                                                        \
  }

EVEN_KERNEL(even, EVEN_CASE(EVEN_SUM) EVEN_CASE(EVEN_MOMENTS))
EVEN_KERNEL(even_gradient, EVEN_CASE(EVEN_GRADIENTS) EVEN_CASE(EVEN_AGAIN))
EVEN_KERNEL(even_masked, EVEN_CASE(EVEN_READ))

static bool is_even_or_absent(const struct cuda_tensor *t) {
  return !t->data || t->type == CUDA_BF16;
}

/* The form of what even kernels can take, and its gate; -1: none. */
static int even_form_of(const struct cuda_fold *fold, struct cuda_gate *gate) {
  const struct cuda_masking *masking = &fold->masking;
  if (fold->x.type != CUDA_BF16 || !is_even_or_absent(&fold->other))
    return -1;
  if (fold->kind == FOLD_SUM || fold->kind == FOLD_MOMENTS)
    return fold->kind == FOLD_SUM ? EVEN_SUM : EVEN_MOMENTS;
  if (fold->kind == FOLD_GRADIENTS)
    return EVEN_GRADIENTS;
  if (fold->kind != FOLD_MASKED || !cuda_gate_of(masking, gate))
    return -1;
  if (masking->bias)
    return !masking->masked.data && !masking->addend.data ? EVEN_AGAIN : -1;
  return masking->masked.type == CUDA_BF16 && is_even_or_absent(&masking->addend) &&
                 is_even_or_absent(&masking->y)
             ? EVEN_READ
             : -1;
}

extern "C" void cuda_fold_columns_launch(const struct cuda_fold *fold, cudaStream_t stream) {
  int64_t tiles = (fold->rows.k1 / CUDA_LANES + fold->groups - 1) / fold->groups;
  int64_t blocks = cuda_blocks(tiles * fold->rows.k0 * fold->parts * CUDA_THREADS);
  struct cuda_gate gate = {};
  int form = even_form_of(fold, &gate);
  if (form == EVEN_READ)
    CUDA_LAUNCH(even_masked_columns_kernel, blocks, CUDA_THREADS, stream, *fold, gate, form);
  else if (form >= EVEN_GRADIENTS)
    CUDA_LAUNCH(even_gradient_columns_kernel, blocks, CUDA_THREADS, stream, *fold, gate, form);
  else if (form >= 0)
    CUDA_LAUNCH(even_columns_kernel, blocks, CUDA_THREADS, stream, *fold, gate, form);
  else if (fold->kind == FOLD_MASKED && !fold->masking.bias)
    CUDA_LAUNCH(masked_columns_kernel, blocks, CUDA_THREADS, stream, *fold);
  else if (fold->kind == FOLD_MASKED || fold->kind == FOLD_GRADIENTS)
    CUDA_LAUNCH(gradient_columns_kernel, blocks, CUDA_THREADS, stream, *fold);
  else
    CUDA_LAUNCH(columns_kernel, blocks, CUDA_THREADS, stream, *fold);
}
