/* Softmax of attention's scores where they are made by matrix products: a block for each row. */
#include "worker/backend/cuda/attention/attention.h"
#include "worker/backend/cuda/engine/device.h"

/* What a block has: row `row` of matrix `index` of the stack, at `at` among the scores. */
struct row {
  int64_t row, index, at, mask;
};

static __device__ struct row row_of(const struct cuda_attention *a, int64_t first) {
  struct row row = {blockIdx.x % a->t, first + blockIdx.x / a->t, (int64_t)blockIdx.x * a->s, 0};
  int64_t index = row.index;
  for (int d = a->lead - 1; d >= 0; d--) {
    row.mask += index % a->lead_dim[d] * a->lead_stride[d];
    index /= a->lead_dim[d];
  }
  row.mask += row.row * a->mask_row;
  return row;
}

/* The product is scaled already. */
static __device__ float score_at(const struct cuda_attention *a, const struct cuda_tensor *mask,
                                 const float *scores, const struct row *row, int64_t column) {
  if (column > row->row + a->diagonal)
    return -INFINITY;
  return scores[row->at + column] +
         (mask->data ? cuda_load(mask, row->mask + column * a->mask_column) : 0.0f);
}

__global__ void soften_rows(struct cuda_attention a, int64_t first, const float *scores,
                            struct cuda_tensor mask, struct cuda_tensor weights, float *log_sums) {
  struct row row = row_of(&a, first);
  float greatest = -INFINITY, sum = 0;
  for (int64_t j = threadIdx.x; j < a.s; j += blockDim.x)
    greatest = fmaxf(greatest, score_at(&a, &mask, scores, &row, j));
  greatest = cuda_block_max(greatest);
  for (int64_t j = threadIdx.x; j < a.s && greatest > -INFINITY; j += blockDim.x)
    sum += expf(score_at(&a, &mask, scores, &row, j) - greatest);
  sum = cuda_block_sum(sum);
  for (int64_t j = threadIdx.x; j < a.s; j += blockDim.x)
    cuda_store(&weights, row.at + j,
               sum > 0 ? expf(score_at(&a, &mask, scores, &row, j) - greatest) / sum : 0);
  if (threadIdx.x == 0 && log_sums)
    log_sums[row.index * a.t + row.row] = sum > 0 ? greatest + logf(sum) : -INFINITY;
}

void cuda_attention_softmax_launch(const struct cuda_attention *a, const struct cuda_attention_group *group,
                                   const struct cuda_attention_io *io, cudaStream_t stream) {
  CUDA_LAUNCH(soften_rows, group->n * a->t, CUDA_THREADS, stream, *a, group->index, group->scores, io->mask,
              group->weights, io->log_sums);
}

__global__ void weigh_rows(struct cuda_attention a, int64_t first, const float *scores,
                           const float *d_weights, struct cuda_attention_io g, struct cuda_tensor weights,
                           struct cuda_tensor d_scores) {
  struct row row = row_of(&a, first);
  float log_sum = g.log_sums[row.index * a.t + row.row], along = g.along[row.index * a.t + row.row];
  for (int64_t j = threadIdx.x; j < a.s; j += blockDim.x) {
    float score = score_at(&a, &g.mask, scores, &row, j), weight = 0;
    if (score > -INFINITY && log_sum > -INFINITY)
      weight = expf(score - log_sum);
    cuda_store(&weights, row.at + j, weight);
    cuda_store(&d_scores, row.at + j, weight * (d_weights[row.at + j] - along) * a.scale);
  }
}

void cuda_attention_weigh_launch(const struct cuda_attention *a, const struct cuda_attention_group *group,
                                 const struct cuda_attention_io *io, cudaStream_t stream) {
  CUDA_LAUNCH(weigh_rows, group->n * a->t, CUDA_THREADS, stream, *a, group->index, group->scores,
              group->d_weights, *io, group->weights, group->d_scores);
}
