/* ScaledAttention by tiles. A block of 8 warps has 32 rows of one matrix; in a tile of scores [32, 32] warp w
   has rows 4w to 4w + 3 and each lane a column, so that a row's maximum and sum are those of a warp. Source:
   Dao et al., FlashAttention, 2022; the gradient's two loops instead of atomics keep the order of sums fixed.
 */
#include "worker/backend/cuda/attention/attention.h"

#include "worker/backend/cuda/engine/device.h"

enum { TILE = 32, ROWS = 4, WARPS = TILE / ROWS, CHUNK = 128, PARTS = CHUNK / TILE };

/* A matrix of a stack; beyond its ends it is 0. */
struct view {
  const struct cuda_tensor *tensor;
  int64_t base, rows, columns, row_stride, column_stride;
};

static __device__ struct view view_of(const struct cuda_tensor *tensor, int64_t index, int64_t rows,
                                      int64_t columns, bool is_transposed) {
  struct view view = {tensor, index * rows * columns, rows, columns, columns, 1};
  if (is_transposed) {
    view.rows = columns;
    view.columns = rows;
    view.row_stride = 1;
    view.column_stride = columns;
  }
  return view;
}

static __device__ float view_at(const struct view *view, int64_t row, int64_t column) {
  if (row >= view->rows || column >= view->columns)
    return 0;
  return cuda_load(view->tensor, view->base + row * view->row_stride + column * view->column_stride);
}

/* tile[r][c] = the view at (row + r, column + c), `columns` of them a row; neighbouring threads read
 * neighbours. */
static __device__ void tile_load(float *tile, int width, const struct view *view, int64_t row, int64_t column,
                                 int columns) {
  for (int i = threadIdx.x; i < TILE * columns; i += blockDim.x) {
    int r = view->column_stride == 1 ? i / columns : i % TILE;
    int c = view->column_stride == 1 ? i % columns : i / TILE;
    tile[r * width + c] = view_at(view, row + r, column + c);
  }
}

struct tiles {
  float left[TILE][TILE + 1], right[TILE][TILE + 1]; /* factors of scores */
  float weights[TILE][TILE + 1];
  float values[TILE][CHUNK + 1];
};

/* sums[r] = left's row (row + 4w + r) times right's column (column + lane) */
static __device__ void tile_multiply(struct tiles *tiles, const struct view *left, const struct view *right,
                                     int64_t row, int64_t column, float *sums) {
  int lane = threadIdx.x % TILE, warp = threadIdx.x / TILE;
  for (int r = 0; r < ROWS; r++)
    sums[r] = 0;
  for (int64_t at = 0; at < left->columns; at += TILE) {
    __syncthreads();
    tile_load(&tiles->left[0][0], TILE + 1, left, row, at, TILE);
    tile_load(&tiles->right[0][0], TILE + 1, right, at, column, TILE);
    __syncthreads();
    for (int i = 0; i < TILE; i++)
      for (int r = 0; r < ROWS; r++)
        sums[r] += tiles->left[warp * ROWS + r][i] * tiles->right[i][lane];
  }
}

/* sums[r][p] = sums[r][p] * factors[r] + weights[4w + r] times values[.., chunk's column 32p + lane], where
   values has row `row` and what follows. */
static __device__ void tile_add(struct tiles *tiles, const struct view *values, int64_t row, int64_t column,
                                const float *weights, const float *factors, float sums[ROWS][PARTS]) {
  int lane = threadIdx.x % TILE, warp = threadIdx.x / TILE;
  __syncthreads();
  for (int r = 0; r < ROWS; r++)
    tiles->weights[warp * ROWS + r][lane] = weights[r];
  tile_load(&tiles->values[0][0], CHUNK + 1, values, row, column, CHUNK);
  __syncthreads();
  for (int r = 0; r < ROWS; r++)
    for (int p = 0; p < PARTS; p++)
      sums[r][p] *= factors[r];
  for (int i = 0; i < TILE; i++)
    for (int r = 0; r < ROWS; r++)
      for (int p = 0; p < PARTS; p++)
        sums[r][p] += tiles->weights[warp * ROWS + r][i] * tiles->values[i][p * TILE + lane];
}

static __device__ int64_t mask_base(const struct cuda_attention *a, int64_t index) {
  int64_t base = 0;
  for (int d = a->lead - 1; d >= 0; d--) {
    base += index % a->lead_dim[d] * a->lead_stride[d];
    index /= a->lead_dim[d];
  }
  return base;
}

/* scale * product + mask; -inf where it is hidden or outside. */
static __device__ float score_of(const struct cuda_attention *a, const struct cuda_tensor *mask, int64_t base,
                                 int64_t row, int64_t column, float product) {
  if (row >= a->t || column >= a->s || column > row + a->diagonal)
    return -INFINITY;
  return product * a->scale +
         (mask->data ? cuda_load(mask, base + row * a->mask_row + column * a->mask_column) : 0.0f);
}

static __device__ float warp_max(float x) {
  for (int offset = CUDA_WARP / 2; offset > 0; offset /= 2)
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, offset));
  return x;
}

static __device__ float warp_sum(float x) {
  for (int offset = CUDA_WARP / 2; offset > 0; offset /= 2)
    x += __shfl_xor_sync(0xffffffffu, x, offset);
  return x;
}

/* Takes a score into a row's softmax as far as it has come: the score becomes its weight against the new
   maximum. Returns what earlier sums are to be multiplied with. */
static __device__ float softmax_take(float *score, float *greatest, float *sum) {
  float next = fmaxf(*greatest, warp_max(*score)), factor = 1, weight = 0;
  if (next > -INFINITY) {
    factor = expf(*greatest - next);
    weight = expf(*score - next);
  }
  *sum = *sum * factor + warp_sum(weight);
  *greatest = next;
  *score = weight;
  return factor;
}

/* What a block has: matrix `index`, rows from `begin`, columns of the result from `chunk`. */
struct place {
  int64_t index, begin, chunk;
};

static __host__ __device__ int64_t tiles_of(int64_t n, int64_t size) {
  return (n + size - 1) / size;
}

static __device__ struct place place_of(int64_t rows, int64_t columns) {
  int64_t chunks = tiles_of(columns, CHUNK), tiles = tiles_of(rows, TILE);
  struct place place = {blockIdx.x / chunks / tiles, blockIdx.x / chunks % tiles * TILE,
                        blockIdx.x % chunks * CHUNK};
  return place;
}

__global__ void attend(struct cuda_attention a, struct cuda_tensor query, struct cuda_tensor key,
                       struct cuda_tensor value, struct cuda_tensor mask, struct cuda_tensor y,
                       float *log_sums) {
  __shared__ struct tiles tiles;
  struct place place = place_of(a.t, a.e);
  struct view q = view_of(&query, place.index, a.t, a.d, false),
              k = view_of(&key, place.index, a.d, a.s, false);
  struct view v = view_of(&value, place.index, a.s, a.e, false);
  int lane = threadIdx.x % TILE, warp = threadIdx.x / TILE;
  int64_t base = mask_base(&a, place.index), first = place.begin + warp * ROWS;
  int64_t columns = place.begin + TILE + a.diagonal < a.s ? place.begin + TILE + a.diagonal : a.s;
  float sums[ROWS][PARTS] = {{0}}, greatest[ROWS], denominators[ROWS] = {0}, scores[ROWS], factors[ROWS];
  for (int r = 0; r < ROWS; r++)
    greatest[r] = -INFINITY;
  for (int64_t column = 0; column < columns; column += TILE) {
    tile_multiply(&tiles, &q, &k, place.begin, column, scores);
    for (int r = 0; r < ROWS; r++) {
      scores[r] = score_of(&a, &mask, base, first + r, column + lane, scores[r]);
      factors[r] = softmax_take(&scores[r], &greatest[r], &denominators[r]);
    }
    tile_add(&tiles, &v, column, place.chunk, scores, factors, sums);
  }
  for (int r = 0; r < ROWS && first + r < a.t; r++) {
    int64_t row = place.index * a.t + first + r;
    float scale = denominators[r] > 0 ? 1 / denominators[r] : 0;
    for (int p = 0; p < PARTS; p++)
      if (place.chunk + p * TILE + lane < a.e)
        cuda_store(&y, row * a.e + place.chunk + p * TILE + lane, sums[r][p] * scale);
    if (log_sums && place.chunk == 0 && lane == 0)
      log_sums[row] = denominators[r] > 0 ? greatest[r] + logf(denominators[r]) : -INFINITY;
  }
}

void cuda_attention_launch(const struct cuda_attention *a, const struct cuda_attention_io *io,
                           cudaStream_t stream) {
  CUDA_LAUNCH(attend, a->stack * tiles_of(a->t, TILE) * tiles_of(a->e, CHUNK), TILE * WARPS, stream, *a,
              io->query, io->key, io->value, io->mask, io->y, io->log_sums);
}

/* along[row] = dy . y, a warp for each row */
__global__ void dot_rows(struct cuda_tensor dy, struct cuda_tensor y, int64_t rows, int64_t n, float *along) {
  int lane = threadIdx.x % CUDA_WARP;
  int64_t row = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / CUDA_WARP;
  float sum = 0;
  for (int64_t i = lane; i < n && row < rows; i += CUDA_WARP)
    sum += cuda_load(&dy, row * n + i) * cuda_load(&y, row * n + i);
  sum = warp_sum(sum);
  if (lane == 0 && row < rows)
    along[row] = sum;
}

void cuda_attention_along_launch(const struct cuda_attention *a, const struct cuda_attention_io *g,
                                 cudaStream_t stream) {
  int64_t rows = a->stack * a->t;
  CUDA_LAUNCH(dot_rows, tiles_of(rows, CUDA_THREADS / CUDA_WARP), CUDA_THREADS, stream, g->dy, g->y, rows,
              a->e, g->along);
}

/* Of what a block has 32 rows: the gradient of queries (it goes through the columns of the scores), of keys
   or of values (it goes through the rows). */
enum gradient { GRADIENT_QUERY, GRADIENT_KEY, GRADIENT_VALUE };

struct factors {
  struct view left, right;     /* of scores */
  struct view d_left, d_right; /* of their gradients, before softmax's */
  struct view values;          /* what scores' gradients, or weights, are multiplied with */
};

static __device__ void factors_init(struct factors *f, const struct cuda_attention *a,
                                    const struct cuda_attention_io *g, enum gradient of, int64_t index) {
  bool is_query = of == GRADIENT_QUERY;
  f->left =
      is_query ? view_of(&g->query, index, a->t, a->d, false) : view_of(&g->key, index, a->d, a->s, true);
  f->right =
      is_query ? view_of(&g->key, index, a->d, a->s, false) : view_of(&g->query, index, a->t, a->d, true);
  f->d_left =
      is_query ? view_of(&g->dy, index, a->t, a->e, false) : view_of(&g->value, index, a->s, a->e, false);
  f->d_right =
      is_query ? view_of(&g->value, index, a->s, a->e, true) : view_of(&g->dy, index, a->t, a->e, true);
  f->values = is_query             ? view_of(&g->key, index, a->d, a->s, true)
              : of == GRADIENT_KEY ? view_of(&g->query, index, a->t, a->d, false)
                                   : view_of(&g->dy, index, a->t, a->e, false);
}

/* Scores' products become weights and, but for values, the gradients of the scores. */
static __device__ void tile_weigh(const struct cuda_attention *a, const struct cuda_attention_io *g,
                                  enum gradient of, int64_t index, int64_t base, int64_t own, int64_t other,
                                  const float *d_weights, float *scores) {
  for (int r = 0; r < ROWS; r++) {
    int64_t row = of == GRADIENT_QUERY ? own + r : other, column = of == GRADIENT_QUERY ? other : own + r;
    float score = score_of(a, &g->mask, base, row, column, scores[r]), log_sum = -INFINITY;
    if (score > -INFINITY)
      log_sum = g->log_sums[index * a->t + row];
    scores[r] = log_sum > -INFINITY ? expf(score - log_sum) : 0;
    if (of != GRADIENT_VALUE && scores[r] != 0)
      scores[r] *= (d_weights[r] - g->along[index * a->t + row]) * a->scale;
  }
}

/* What it is the gradient of is known when this is compiled: else all tensors would have to lie in memory. */
static __device__ __forceinline__ void attend_back(const struct cuda_attention &a,
                                                   const struct cuda_attention_io &g, enum gradient of) {
  __shared__ struct tiles tiles;
  const float ones[ROWS] = {1, 1, 1, 1};
  int64_t own_rows = of == GRADIENT_QUERY ? a.t : a.s, width = of == GRADIENT_VALUE ? a.e : a.d;
  struct place place = place_of(own_rows, width);
  int lane = threadIdx.x % TILE, warp = threadIdx.x / TILE;
  int64_t base = mask_base(&a, place.index), first = place.begin + warp * ROWS, from = 0, to = a.t;
  float sums[ROWS][PARTS] = {{0}}, scores[ROWS], d_weights[ROWS] = {0};
  struct factors f;
  factors_init(&f, &a, &g, of, place.index);
  if (of == GRADIENT_QUERY)
    to = place.begin + TILE + a.diagonal < a.s ? place.begin + TILE + a.diagonal : a.s;
  else
    from = place.begin > a.diagonal ? (place.begin - a.diagonal) / TILE * TILE : 0;
  for (int64_t at = from; at < to; at += TILE) {
    tile_multiply(&tiles, &f.left, &f.right, place.begin, at, scores);
    if (of != GRADIENT_VALUE)
      tile_multiply(&tiles, &f.d_left, &f.d_right, place.begin, at, d_weights);
    tile_weigh(&a, &g, of, place.index, base, first, at + lane, d_weights, scores);
    tile_add(&tiles, &f.values, at, place.chunk, scores, ones, sums);
  }
  const struct cuda_tensor *out = of == GRADIENT_QUERY ? &g.dquery : of == GRADIENT_KEY ? &g.dkey : &g.dvalue;
  for (int r = 0; r < ROWS && first + r < own_rows; r++)
    for (int p = 0; p < PARTS; p++) {
      int64_t column = place.chunk + p * TILE + lane, within = (first + r) * width + column;
      if (of == GRADIENT_KEY) /* lies as [d, s] */
        within = column * own_rows + first + r;
      if (column < width)
        cuda_store(out, place.index * own_rows * width + within, sums[r][p]);
    }
}

__global__ void attend_back_query(struct cuda_attention a, struct cuda_attention_io g) {
  attend_back(a, g, GRADIENT_QUERY);
}

__global__ void attend_back_key(struct cuda_attention a, struct cuda_attention_io g) {
  attend_back(a, g, GRADIENT_KEY);
}

__global__ void attend_back_value(struct cuda_attention a, struct cuda_attention_io g) {
  attend_back(a, g, GRADIENT_VALUE);
}

static int64_t blocks_of(const struct cuda_attention *a, int64_t rows, int64_t columns) {
  return a->stack * tiles_of(rows, TILE) * tiles_of(columns, CHUNK);
}

void cuda_attention_grad_launch(const struct cuda_attention *a, const struct cuda_attention_io *g,
                                cudaStream_t stream) {
  int64_t rows = a->stack * a->t;
  CUDA_LAUNCH(dot_rows, tiles_of(rows, CUDA_THREADS / CUDA_WARP), CUDA_THREADS, stream, g->dy, g->y, rows,
              a->e, g->along);
  CUDA_LAUNCH(attend_back_query, blocks_of(a, a->t, a->d), TILE * WARPS, stream, *a, *g);
  CUDA_LAUNCH(attend_back_key, blocks_of(a, a->s, a->d), TILE * WARPS, stream, *a, *g);
  CUDA_LAUNCH(attend_back_value, blocks_of(a, a->s, a->e), TILE * WARPS, stream, *a, *g);
}
