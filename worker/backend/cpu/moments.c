/* Means and variances of channels. */
#include "worker/backend/cpu/moments.h"

/* LANES: sums side by side. CHUNK: elements of a lane that are added in f32. */
enum { LANES = 16, CHUNK = 32 };

bool moments_init(struct moments *m, const dnnl_memory_desc_t *layout) {
  const dnnl_blocking_desc_t *blocking = &layout->format_desc.blocking;
  int64_t expected = 0;
  if (layout->format_kind != dnnl_blocked || blocking->inner_nblks > 1 ||
      (blocking->inner_nblks == 1 && (blocking->inner_idxs[0] != 1 || blocking->inner_blks[0] > LANES)))
    return false;
  *m = (struct moments){.n = layout->dims[0],
                        .c = layout->dims[1],
                        .positions = 1,
                        .sample_step = blocking->strides[0],
                        .block_step = blocking->strides[1],
                        .block = blocking->inner_nblks ? blocking->inner_blks[0] : 1};
  for (int d = layout->ndims - 1; d >= 2; d--) {
    if (layout->dims[d] == 1)
      continue;
    if (m->positions > 1 && blocking->strides[d] != expected)
      return false;
    if (m->positions == 1)
      m->position_step = blocking->strides[d];
    expected = blocking->strides[d] * layout->dims[d];
    m->positions *= layout->dims[d];
  }
  if (m->block == 1 && m->block_step == 1 && m->position_step != 1) {
    m->block = LANES;
    m->block_step = LANES;
  }
  return m->block > 1 || m->positions == 1 || m->position_step == 1;
}

/* sums[l] += x at each position, or its squared distance from mean[l]. */
static inline __attribute__((always_inline)) void add_lanes(const float *x, int64_t positions, int64_t step,
                                                            const int64_t lanes, const float *mean,
                                                            double *sums) {
  for (int64_t begin = 0; begin < positions; begin += CHUNK) {
    int64_t end = begin + CHUNK < positions ? begin + CHUNK : positions;
    float part[LANES] = {0};
    for (int64_t p = begin; p < end; p++)
      for (int64_t l = 0; l < lanes; l++) {
        float v = x[p * step + l];
        part[l] += mean ? (v - mean[l]) * (v - mean[l]) : v;
      }
    for (int64_t l = 0; l < lanes; l++)
      sums[l] += (double)part[l];
  }
}

static void add(const float *x, int64_t positions, int64_t step, int64_t lanes, const float *mean,
                double *sums) {
  if (lanes == LANES && mean)
    add_lanes(x, positions, step, LANES, mean, sums);
  else if (lanes == LANES)
    add_lanes(x, positions, step, LANES, NULL, sums);
  else
    add_lanes(x, positions, step, lanes, mean, sums);
}

/* The sums of the channels from c on that lie side by side. */
static void sum_block(const struct moments *m, const float *x, int64_t c, const float *mean, double *sums) {
  int64_t lanes = m->block, rest = m->positions % LANES;
  const float *from = x + c / m->block * m->block_step;
  float means[LANES];
  for (int l = 0; l < LANES; l++) {
    sums[l] = 0;
    means[l] = mean ? mean[m->block == 1 ? 0 : c + l < m->c ? l : 0] : 0;
  }
  mean = mean ? means : NULL;
  if (c + lanes > m->c)
    lanes = m->c - c;
  for (int64_t n = 0; n < m->n; n++, from += m->sample_step)
    if (m->block > 1) {
      add(from, m->positions, m->position_step, lanes, mean, sums);
    } else {
      add(from, m->positions / LANES, LANES, LANES, mean, sums);
      add(from + m->positions - rest, 1, 0, rest, mean, sums);
    }
  for (int l = 1; l < LANES && m->block == 1; l++)
    sums[0] += sums[l];
}

void moments_compute(const struct moments *m, const float *x, float *mean, float *variance) {
  double sums[LANES], elems = (double)(m->n * m->positions);
  for (int64_t c = 0; c < m->c; c += m->block) {
    sum_block(m, x, c, NULL, sums);
    for (int64_t l = 0; l < m->block && c + l < m->c; l++)
      mean[c + l] = (float)(sums[l] / elems);
    sum_block(m, x, c, mean + c, sums);
    for (int64_t l = 0; l < m->block && c + l < m->c; l++)
      variance[c + l] = (float)(sums[l] / elems);
  }
}
