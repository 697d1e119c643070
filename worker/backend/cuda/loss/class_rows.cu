/* Losses over rows of class scores. A row is read once, 4 bytes a score of F32 and 2 of BF16: its greatest
   score and the sum of exponentials are found together. For the gradient it is read again, from shared memory
   as far as that has room for it, and written. A warp reads neighbouring scores of a row, or where classes
   are not the last dimension, of neighbouring rows. Sums are in f64, of rows by the same thread each time. */
#include "worker/backend/cuda/loss/class_rows.h"
#include "worker/backend/cuda/rows/lanes.cuh"
#include "worker/backend/cuda/rows/rows.cuh"

#include <float.h>

/* Scores that a thread keeps, in whole batches: 32 KiB a block. */
enum { KEPT = 32 };

static __device__ __forceinline__ int64_t label_at(const struct cuda_tensor *labels, int64_t i) {
  return labels->type == CUDA_I32 ? ((const int32_t *)labels->data)[i] : ((const int64_t *)labels->data)[i];
}

/* What a row is to its loss. */
struct class_row {
  int64_t base, label;
  bool counts;
  double hit; /* of the label, of what is not smoothed */
};

static __device__ struct class_row row_open(const struct cuda_class_pass *p, int64_t r) {
  struct class_row row;
  row.base = cuda_rows_begin(&p->rows, r);
  row.label = -1;
  row.counts = true;
  row.hit = 0.0;
  if (!p->labels.data)
    return row;
  row.label = label_at(&p->labels, r);
  if (p->has_ignored && row.label == p->ignored) {
    row.counts = false;
  } else if (row.label < 0 || row.label >= p->rows.n) {
    row.counts = false;
    cuda_fault_set(p->fault, p->node, row.label, p->first_row + r);
  } else {
    row.hit = (1.0 - p->smoothing) * (p->weights ? (double)p->weights[row.label] : 1.0);
  }
  return row;
}

/* What class c is to have of the row's loss. */
static __device__ __forceinline__ double target_of(const struct cuda_class_pass *p,
                                                   const struct class_row *row, int64_t c, int64_t at) {
  double target = p->smoothing / (double)p->rows.n;
  if (p->labels.data && c != row->label && target == 0.0)
    return 0.0;
  if (p->targets.data)
    target += (1.0 - p->smoothing) * (double)cuda_load(&p->targets, at);
  if (p->weights)
    target *= (double)p->weights[c];
  return p->labels.data && c == row->label ? target + row->hit : target;
}

/* Of a row's scores x and targets t. */
struct class_totals {
  float greatest;
  int64_t found;         /* where the first of the greatest is */
  double exponentials;   /* sum of exp(x - greatest) */
  double targets, along; /* sum of t, and of t x */
};

static __device__ __forceinline__ void totals_take(struct class_totals *totals, float x, double target,
                                                   int64_t c) {
  if (x > totals->greatest) {
    totals->exponentials = totals->exponentials * expf(totals->greatest - x) + 1.0;
    totals->greatest = x;
    totals->found = c;
  } else {
    totals->exponentials += expf(x - totals->greatest);
  }
  totals->targets += target;
  if (target != 0.0) /* a score of -INFINITY that is not wanted costs nothing */
    totals->along += target * x;
}

/* What the team's threads have found, together. An index is exact in f32: n is checked. */
static __device__ struct class_totals totals_join(struct class_totals own, int lanes) {
  struct class_totals all;
  all.greatest = cuda_team_max(own.greatest, lanes);
  all.found = (int64_t)-cuda_team_max(own.greatest == all.greatest ? -(float)own.found : -FLT_MAX, lanes);
  all.exponentials = cuda_team_sum(own.exponentials * expf(own.greatest - all.greatest), lanes);
  all.targets = cuda_team_sum(own.targets, lanes);
  all.along = cuda_team_sum(own.along, lanes);
  return all;
}

/* The scores of classes c, c + lanes, ...: as many as there are and a batch holds. The bias is added. */
static __device__ __forceinline__ void
load_scores(const struct cuda_class_pass *p, const struct class_row *row, int64_t c, float x[CUDA_BATCH]) {
  uint32_t bits[CUDA_BATCH];
  for (int b = 0; b < CUDA_BATCH; b++)
    bits[b] = cuda_load_bits(&p->scores,
                             row->base + cuda_rows_offset(&p->rows, min(c + b * p->lanes, p->rows.n - 1)));
  for (int b = 0; b < CUDA_BATCH; b++) {
    x[b] = cuda_value_of(&p->scores, bits[b]);
    if (p->bias)
      x[b] += p->bias[min(c + b * p->lanes, p->rows.n - 1)];
  }
}

static __device__ struct class_totals row_totals(const struct cuda_class_pass *p, const struct class_row *row,
                                                 float *kept) {
  struct class_totals totals = {-FLT_MAX, p->rows.n, 0.0, 0.0, 0.0};
  int i = 0;
  for (int64_t c = CUDA_LANE(p->lanes); c < p->rows.n; i += CUDA_BATCH) {
    float x[CUDA_BATCH];
    load_scores(p, row, c, x);
    for (int b = 0; b < CUDA_BATCH && c < p->rows.n; b++, c += p->lanes) {
      if (i < KEPT)
        kept[(i + b) * CUDA_THREADS] = x[b];
      totals_take(&totals, x[b], target_of(p, row, c, row->base + cuda_rows_offset(&p->rows, c)), c);
    }
  }
  return totals_join(totals, p->lanes);
}

static __device__ float label_score(const struct cuda_class_pass *p, const struct class_row *row) {
  float x = cuda_load(&p->scores, row->base + cuda_rows_offset(&p->rows, row->label));
  return p->bias ? x + p->bias[row->label] : x;
}

/* Of the label's score alone. */
static __device__ struct class_totals label_totals(const struct cuda_class_pass *p,
                                                   const struct class_row *row) {
  struct class_totals totals = {0.0f, 0, 1.0, row->hit, 0.0};
  if (row->counts && p->scores.data)
    totals.along = row->hit * (double)label_score(p, row);
  return totals;
}

/* dx = scale (sum(t) softmax(x) - t), and log_prob = x - norm; norm is 0 of log-probabilities. */
static __device__ void row_finish(const struct cuda_class_pass *p, const struct class_row *row,
                                  const struct class_totals *totals, float norm, const float *kept) {
  float scale = p->dsum ? *p->dsum : 1.0f, total = p->is_log ? 0.0f : (float)totals->targets;
  int i = 0;
  for (int64_t c = CUDA_LANE(p->lanes); c < p->rows.n; i += CUDA_BATCH) {
    float x[CUDA_BATCH];
    if (i < KEPT)
      for (int b = 0; b < CUDA_BATCH; b++)
        x[b] = kept[(i + b) * CUDA_THREADS];
    else
      load_scores(p, row, c, x);
    for (int b = 0; b < CUDA_BATCH && c < p->rows.n; b++, c += p->lanes) {
      int64_t at = row->base + cuda_rows_offset(&p->rows, c);
      if (p->log_prob.data)
        cuda_store(&p->log_prob, at, x[b] - norm);
      if (p->gradient.data)
        cuda_store(&p->gradient, at,
                   row->counts ? scale * (total * expf(x[b] - norm) - (float)target_of(p, row, c, at))
                               : 0.0f);
    }
  }
}

/* The row's part of the sums; of one of its threads. */
static __device__ void row_close(const struct cuda_class_pass *p, const struct class_row *row,
                                 const struct class_totals *totals, double norm, int64_t r, double *sums) {
  double loss = row->counts ? totals->targets * norm - totals->along : 0.0;
  if (p->row_loss.data)
    cuda_store(&p->row_loss, r, (float)loss);
  if (!row->counts)
    return;
  sums[0] += loss;
  sums[1] += totals->found == row->label;
  sums[2] += 1.0;
  sums[3] += p->weights && p->labels.data ? (double)p->weights[row->label] : 1.0;
}

static __device__ void block_close(const struct cuda_class_pass *p, const double *sums) {
  for (int i = 0; i < CLASS_SUMS && p->sums; i++) {
    double sum = cuda_team_sum(sums[i], CUDA_THREADS);
    if (threadIdx.x == 0)
      p->sums[blockIdx.x * CLASS_SUMS + i] = sum;
  }
}

static __global__ void class_pass_kernel(struct cuda_class_pass p) {
  __shared__ float kept_of_all[KEPT * CUDA_THREADS];
  float *kept = kept_of_all + threadIdx.x;
  double sums[CLASS_SUMS] = {0.0, 0.0, 0.0, 0.0};
  for (int64_t r = CUDA_TEAM_FIRST(p.lanes); r < p.rows.rows; r += CUDA_TEAMS(p.lanes)) {
    struct class_row row = row_open(&p, r);
    struct class_totals totals = p.is_of_labels ? label_totals(&p, &row) : row_totals(&p, &row, kept);
    double norm = p.is_log ? 0.0 : (double)totals.greatest + log(totals.exponentials);
    if (p.gradient.data || p.log_prob.data)
      row_finish(&p, &row, &totals, (float)norm, kept);
    if (CUDA_LANE(p.lanes) == 0)
      row_close(&p, &row, &totals, norm, r, sums);
  }
  block_close(&p, sums);
}

/* Scores of long rows, by blocks, whose labels alone are looked at: as a language's words are. */
static bool is_plain(const struct cuda_class_pass *p) {
  return p->lanes == CUDA_THREADS && p->rows.r0 == 1 && p->rows.k1 == 1 && p->rows.r1 % CUDA_LANES == 0 &&
         p->labels.data && p->scores.data && !p->targets.data && !p->log_prob.data && !p->weights &&
         p->smoothing == 0.0 && !p->is_log && !p->is_of_labels;
}

/* Scores c to c + n - 1 of the row, with the bias; the lanes behind them are -INFINITY. */
static __device__ __forceinline__ struct cuda_lanes plain_scores(const struct cuda_class_pass *p,
                                                                 const struct class_row *row, int c, int n) {
  struct cuda_raw_lanes raw = cuda_raw_load(&p->scores, row->base + c, n);
  struct cuda_lanes x;
  CUDA_EACH_LANE(k) {
    x.at[k] = k < n ? cuda_raw_lane(&p->scores, &raw, k) : -INFINITY;
    if (p->bias && k < n)
      x.at[k] += p->bias[c + k];
  }
  return x;
}

/* Exponentials of eight neighbours are added in f32, those sums in f64. */
static __device__ __forceinline__ void plain_take(struct class_totals *totals, const struct cuda_lanes *x,
                                                  int c) {
  float greatest = x->at[0], sum = 0.0f;
  CUDA_EACH_LANE(k) greatest = fmaxf(greatest, x->at[k]);
  if (greatest > totals->greatest) {
    totals->exponentials *= expf(totals->greatest - greatest);
    totals->greatest = greatest;
    CUDA_EACH_LANE(k)
    if (x->at[CUDA_LANES - 1 - k] == greatest)
      totals->found = c + CUDA_LANES - 1 - k;
  }
  CUDA_EACH_LANE(k) sum += x->at[k] == totals->greatest ? 1.0f : expf(x->at[k] - totals->greatest);
  totals->exponentials += sum;
}

static __device__ struct class_totals plain_totals(const struct cuda_class_pass *p,
                                                   const struct class_row *row) {
  struct class_totals totals = {-FLT_MAX, p->rows.n, 0.0, 0.0, 0.0};
  int classes = (int)p->rows.n;
  for (int c = threadIdx.x * CUDA_LANES; c < classes; c += CUDA_THREADS * CUDA_LANES) {
    struct cuda_lanes x = plain_scores(p, row, c, cuda_lanes_left(c, classes));
    plain_take(&totals, &x, c);
  }
  totals = totals_join(totals, CUDA_THREADS);
  totals.targets = row->hit;
  totals.along = row->counts ? row->hit * (double)label_score(p, row) : 0.0;
  return totals;
}

/* What a thread writes here, of perhaps the scores' own bytes, none but itself reads. */
static __device__ void plain_finish(const struct cuda_class_pass *p, const struct class_row *row,
                                    float norm) {
  float scale = p->dsum ? *p->dsum : 1.0f;
  int classes = (int)p->rows.n, label = row->counts ? (int)row->label : -1;
  for (int c = threadIdx.x * CUDA_LANES; c < classes; c += CUDA_THREADS * CUDA_LANES) {
    int n = cuda_lanes_left(c, classes);
    struct cuda_lanes x = plain_scores(p, row, c, n);
    CUDA_EACH_LANE(k)
    x.at[k] = row->counts ? scale * (expf(x.at[k] - norm) - (c + k == label ? 1.0f : 0.0f)) : 0.0f;
    cuda_lanes_store(&p->gradient, row->base + c, n, &x);
  }
}

static __global__ void plain_pass_kernel(struct cuda_class_pass p) {
  double sums[CLASS_SUMS] = {0.0, 0.0, 0.0, 0.0};
  for (int64_t r = blockIdx.x; r < p.rows.rows; r += gridDim.x) {
    struct class_row row = row_open(&p, r);
    struct class_totals totals = plain_totals(&p, &row);
    double norm = (double)totals.greatest + log(totals.exponentials);
    __syncthreads(); /* the label's score is read */
    if (p.gradient.data)
      plain_finish(&p, &row, (float)norm);
    if (threadIdx.x == 0)
      row_close(&p, &row, &totals, norm, r, sums);
  }
  block_close(&p, sums);
}

/* One block: thread t adds parts t, t + CUDA_THREADS, ... */
static __global__ void loss_sums_kernel(struct cuda_loss_sums s) {
  double totals[CLASS_SUMS];
  for (int i = 0; i < CLASS_SUMS; i++) {
    double sum = 0.0;
    for (int64_t part = threadIdx.x; part < s.parts; part += CUDA_THREADS)
      sum += s.sums[part * CLASS_SUMS + i];
    totals[i] = cuda_team_sum(sum, CUDA_THREADS);
  }
  if (threadIdx.x != 0)
    return;
  if (s.is_mean)
    totals[0] /= totals[3];
  for (int i = 0; i < CLASS_SUMS; i++)
    if (s.out[i].data)
      cuda_store(&s.out[i], 0, (float)totals[i]);
}

/* The row's loss gradient, times the weight of its label. */
static __device__ float label_gradient(const struct cuda_label_grad *g, int64_t r, int64_t label) {
  if (!g->dloss.data || label < 0 || label >= g->rows.n || (g->has_ignored && label == g->ignored))
    return 0.0f;
  float own = cuda_load(&g->dloss, g->is_each ? r : 0) * (g->weights ? g->weights[label] : 1.0f);
  return g->denominator ? own / *g->denominator : own;
}

/* With g = dlog_prob - d onehot(label): g - exp(log_prob) sum(g), or, without log_prob, g. */
static __global__ void label_grad_kernel(struct cuda_label_grad g) {
  for (int64_t r = CUDA_TEAM_FIRST(g.lanes); r < g.rows.rows; r += CUDA_TEAMS(g.lanes)) {
    int64_t base = cuda_rows_begin(&g.rows, r), label = label_at(&g.labels, r);
    float own = label_gradient(&g, r, label), total;
    double sum = 0.0;
    for (int64_t c = CUDA_LANE(g.lanes); c < g.rows.n && g.dlog_prob.data; c += g.lanes)
      sum += cuda_load(&g.dlog_prob, base + cuda_rows_offset(&g.rows, c));
    total = (float)(cuda_team_sum(sum, g.lanes) - own);
    for (int64_t c = CUDA_LANE(g.lanes); c < g.rows.n; c += g.lanes) {
      int64_t at = base + cuda_rows_offset(&g.rows, c);
      float dx = g.dlog_prob.data ? cuda_load(&g.dlog_prob, at) : 0.0f;
      if (c == label)
        dx -= own;
      if (g.log_prob.data)
        dx -= expf(cuda_load(&g.log_prob, at)) * total;
      cuda_store(&g.gradient, at, dx);
    }
  }
}

extern "C" void cuda_class_pass_launch(const struct cuda_class_pass *pass, cudaStream_t stream) {
  if (is_plain(pass))
    CUDA_LAUNCH(plain_pass_kernel, pass->blocks, CUDA_THREADS, stream, *pass);
  else
    CUDA_LAUNCH(class_pass_kernel, pass->blocks, CUDA_THREADS, stream, *pass);
}

extern "C" void cuda_loss_sums_launch(const struct cuda_loss_sums *sums, cudaStream_t stream) {
  CUDA_LAUNCH(loss_sums_kernel, 1, CUDA_THREADS, stream, *sums);
}

extern "C" void cuda_label_grad_launch(const struct cuda_label_grad *grad, cudaStream_t stream) {
  CUDA_LAUNCH(label_grad_kernel, cuda_team_blocks(grad->rows.rows, grad->lanes), CUDA_THREADS, stream, *grad);
}
