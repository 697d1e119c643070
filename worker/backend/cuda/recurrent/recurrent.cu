/* The cells of LSTM, GRU and RNN: a thread for each hidden element of each sequence. */
#include "worker/backend/cuda/recurrent/recurrent.h"

#include "worker/backend/cuda/engine/device.h"

/* Gates in the order of ONNX. */
enum { LSTM_INPUT, LSTM_OUTPUT, LSTM_FORGET, LSTM_CELL };
enum { GRU_UPDATE, GRU_RESET, GRU_HIDDEN, GRU_GATES };
enum { F, G, H }; /* functions */

static __device__ float value_clamped(float x, float low, float high) {
  return x < low ? low : x > high ? high : x;
}

static __device__ float activation_apply(const struct activation *f, float x) {
  switch (f->kind) {
  case ACTIVATION_SIGMOID:
    return 1.0f / (1.0f + expf(-x));
  case ACTIVATION_TANH:
    return tanhf(x);
  case ACTIVATION_RELU:
    return x < 0.0f ? 0.0f : x;
  case ACTIVATION_HARD_SIGMOID:
    return value_clamped(f->alpha * x + f->beta, 0.0f, 1.0f);
  case ACTIVATION_AFFINE:
    return f->alpha * x + f->beta;
  case ACTIVATION_LEAKY_RELU:
    return x < 0.0f ? f->alpha * x : x;
  case ACTIVATION_THRESHOLDED_RELU:
    return x > f->alpha ? x : 0.0f;
  case ACTIVATION_SCALED_TANH:
    return f->alpha * tanhf(f->beta * x);
  case ACTIVATION_ELU:
    return x < 0.0f ? f->alpha * expm1f(x) : x;
  case ACTIVATION_SOFTSIGN:
    return x / (1.0f + fabsf(x));
  case ACTIVATION_SOFTPLUS:
    return (x > 0.0f ? x : 0.0f) + log1pf(expf(-fabsf(x)));
  }
  return x;
}

/* The slope at y = f(x). */
static __device__ float activation_slope(const struct activation *f, float y) {
  switch (f->kind) {
  case ACTIVATION_SIGMOID:
    return y * (1.0f - y);
  case ACTIVATION_TANH:
    return 1.0f - y * y;
  case ACTIVATION_RELU:
    return y > 0.0f ? 1.0f : 0.0f;
  case ACTIVATION_HARD_SIGMOID:
    return y > 0.0f && y < 1.0f ? f->alpha : 0.0f;
  case ACTIVATION_AFFINE:
    return f->alpha;
  case ACTIVATION_LEAKY_RELU:
    return y > 0.0f ? 1.0f : f->alpha;
  case ACTIVATION_THRESHOLDED_RELU:
    return y != 0.0f ? 1.0f : 0.0f;
  case ACTIVATION_SCALED_TANH:
    return f->alpha == 0.0f ? 0.0f : f->beta * (f->alpha - y * y / f->alpha);
  case ACTIVATION_ELU:
    return y > 0.0f ? 1.0f : y + f->alpha;
  case ACTIVATION_SOFTSIGN:
    return (1.0f - fabsf(y)) * (1.0f - fabsf(y));
  case ACTIVATION_SOFTPLUS:
    return -expm1f(-y);
  }
  return 0.0f;
}

/* A gate's: of the clipped sum; a result at the bounds has no slope. */
static __device__ float gate_apply(const struct cuda_recurrent *p, int function, float x) {
  return activation_apply(&p->functions[function], value_clamped(x, -p->clip, p->clip));
}

static __device__ float gate_slope(const struct cuda_recurrent *p, int function, float y) {
  const struct activation *f = &p->functions[function];
  if (p->clip < INFINITY && (y == activation_apply(f, -p->clip) || y == activation_apply(f, p->clip)))
    return 0.0f;
  return activation_slope(f, y);
}

/* What thread i of [b,h] has in a step. */
struct place {
  int64_t b, j, row, gates; /* gates: of element j's first in gate_sums; one gate is `hidden` further */
  bool is_live;
};

static __device__ int64_t row_of(const struct cuda_recurrent *p, int64_t t, int64_t b) {
  return p->is_batch_first ? b * p->steps + t : t * p->batch + b;
}

static __device__ struct place place_of(const struct cuda_recurrent *p, int64_t t, int64_t i) {
  struct place place = {i / p->hidden, i % p->hidden, 0, 0, true};
  place.row = row_of(p, t, place.b);
  place.gates = place.row * p->gates * p->hidden + place.j;
  place.is_live = !p->lengths || t < p->lengths[place.b];
  return place;
}

/* Element j of sequence b in [d,b,h] or [b,d,h]. */
static __device__ int64_t state_at(const struct cuda_recurrent *p, int64_t i) {
  int64_t b = i / p->hidden, j = i % p->hidden;
  int64_t row = p->is_batch_first ? b * p->directions + p->direction : p->direction * p->batch + b;
  return row * p->hidden + j;
}

/* In Y or its gradient, at step t. */
static __device__ int64_t sequence_at(const struct cuda_recurrent *p, int64_t t, int64_t b, int64_t j) {
  int64_t row = p->is_batch_first ? (b * p->steps + t) * p->directions + p->direction
                                  : (t * p->directions + p->direction) * p->batch + b;
  return row * p->hidden + j;
}

static __device__ int64_t state_row(const struct cuda_recurrent *p, int64_t t, int64_t i) {
  return row_of(p, t, i / p->hidden) * p->hidden + i % p->hidden;
}

__global__ void begin_states(struct cuda_recurrent p) {
  int64_t first = p.is_reverse ? p.steps - 1 : 0;
  for (int64_t i = CUDA_FIRST; i < p.batch * p.hidden; i += CUDA_STRIDE) {
    p.h_before[state_row(&p, first, i)] = p.h_first ? p.h_first[state_at(&p, i)] : 0.0f;
    if (p.cell == CUDA_LSTM)
      p.c_before[state_row(&p, first, i)] = p.c_first ? p.c_first[state_at(&p, i)] : 0.0f;
    if (p.lengths && i % p.hidden == 0 && (p.lengths[i / p.hidden] < 0 || p.lengths[i / p.hidden] > p.steps))
      cuda_fault_set(p.fault, p.node, p.lengths[i / p.hidden], i / p.hidden);
  }
}

/* With linear_before_reset the hidden gate's bias of R is added within. */
__global__ void begin_gates(struct cuda_recurrent p) {
  int64_t width = p.gates * p.hidden, common = width;
  if (p.cell == CUDA_GRU && p.is_linear_first)
    common -= p.hidden;
  for (int64_t i = CUDA_FIRST; i < p.steps * p.batch * width; i += CUDA_STRIDE) {
    int64_t j = i % width;
    p.gate_sums[i] = j < common ? p.bias[j] + p.bias[width + j] : p.bias[j];
  }
}

void cuda_recurrent_begin_launch(const struct cuda_recurrent *pass, cudaStream_t stream) {
  int64_t states = pass->batch * pass->hidden;
  CUDA_LAUNCH(begin_states, cuda_blocks(states), CUDA_THREADS, stream, *pass);
  if (pass->bias)
    CUDA_LAUNCH(begin_gates, cuda_blocks(states * pass->steps * pass->gates), CUDA_THREADS, stream, *pass);
}

/* The state behind step t: to the step that is next, or out; and Y's row. */
static __device__ void put_state(const struct cuda_recurrent *p, int64_t t, int64_t i, const struct place *at,
                                 float h, float c) {
  int64_t next = p->is_reverse ? t - 1 : t + 1;
  bool is_last = next < 0 || next >= p->steps;
  if (p->y)
    p->y[sequence_at(p, t, at->b, at->j)] = at->is_live ? h : 0.0f;
  if (!is_last) {
    p->h_before[state_row(p, next, i)] = h;
    if (p->cell == CUDA_LSTM)
      p->c_before[state_row(p, next, i)] = c;
    return;
  }
  if (p->y_h)
    p->y_h[state_at(p, i)] = h;
  if (p->y_c)
    p->y_c[state_at(p, i)] = c;
}

static __device__ void lstm_forward(const struct cuda_recurrent *p, const struct place *at, float *h,
                                    float *c) {
  int64_t n = p->hidden;
  float *gates = p->gate_sums + at->gates;
  float i = gates[0], o = gates[LSTM_OUTPUT * n], f = gates[LSTM_FORGET * n], g = gates[LSTM_CELL * n];
  if (p->p) {
    i += p->p[at->j] * *c;
    f += p->p[LSTM_FORGET * n + at->j] * *c;
  }
  i = gate_apply(p, F, i);
  g = gate_apply(p, G, g);
  f = p->is_coupled ? 1.0f - i : gate_apply(p, F, f);
  *c = f * *c + i * g;
  if (p->p)
    o += p->p[LSTM_OUTPUT * n + at->j] * *c;
  o = gate_apply(p, F, o);
  float cell = activation_apply(&p->functions[H], *c);
  *h = o * cell;
  gates[0] = i;
  gates[LSTM_OUTPUT * n] = o;
  gates[LSTM_FORGET * n] = f;
  gates[LSTM_CELL * n] = g;
  p->kept[at->row * n + at->j] = cell;
}

__global__ void step_forward(struct cuda_recurrent p, int64_t t) {
  int64_t n = p.hidden;
  for (int64_t i = CUDA_FIRST; i < p.batch * n; i += CUDA_STRIDE) {
    struct place at = place_of(&p, t, i);
    float h = p.h_before[at.row * n + at.j], c = 0, *gates = p.gate_sums + at.gates;
    if (p.cell == CUDA_LSTM) {
      c = p.c_before[at.row * n + at.j];
      if (at.is_live)
        lstm_forward(&p, &at, &h, &c);
      else
        p.kept[at.row * n + at.j] = 0;
    } else if (p.cell == CUDA_GRU) {
      float hidden = gates[GRU_HIDDEN * n];
      if (p.is_linear_first) {
        p.kept[at.row * n + at.j] += p.bias ? p.bias[(GRU_GATES + GRU_HIDDEN) * n + at.j] : 0.0f;
        hidden += gates[GRU_RESET * n] * p.kept[at.row * n + at.j];
      }
      gates[GRU_HIDDEN * n] = hidden = gate_apply(&p, G, hidden);
      if (at.is_live)
        h = (1.0f - gates[0]) * hidden + gates[0] * h;
    } else if (at.is_live) {
      gates[0] = h = gate_apply(&p, F, gates[0]);
    }
    put_state(&p, t, i, &at, h, c);
  }
}

/* Update and reset gates; without linear_before_reset, kept = r h. */
__global__ void gru_gates(struct cuda_recurrent p, int64_t t) {
  int64_t n = p.hidden;
  for (int64_t i = CUDA_FIRST; i < p.batch * n; i += CUDA_STRIDE) {
    struct place at = place_of(&p, t, i);
    float *gates = p.gate_sums + at.gates;
    gates[0] = gate_apply(&p, F, gates[0]);
    gates[GRU_RESET * n] = gate_apply(&p, F, gates[GRU_RESET * n]);
    if (!p.is_linear_first)
      p.kept[at.row * n + at.j] = gates[GRU_RESET * n] * p.h_before[at.row * n + at.j];
  }
}

void cuda_recurrent_step_launch(const struct cuda_recurrent *pass, int64_t t, int part, cudaStream_t stream) {
  int64_t blocks = cuda_blocks(pass->batch * pass->hidden);
  if (part == 0)
    CUDA_LAUNCH(gru_gates, blocks, CUDA_THREADS, stream, *pass, t);
  else
    CUDA_LAUNCH(step_forward, blocks, CUDA_THREADS, stream, *pass, t);
}

__global__ void begin_back(struct cuda_recurrent p) {
  for (int64_t i = CUDA_FIRST; i < p.batch * p.hidden; i += CUDA_STRIDE) {
    p.dh[i] = p.dy_h ? p.dy_h[state_at(&p, i)] : 0.0f;
    p.dc[i] = p.dy_c ? p.dy_c[state_at(&p, i)] : 0.0f;
  }
}

void cuda_recurrent_begin_back_launch(const struct cuda_recurrent *pass, cudaStream_t stream) {
  CUDA_LAUNCH(begin_back, cuda_blocks(pass->batch * pass->hidden), CUDA_THREADS, stream, *pass);
}

static __device__ void lstm_back(const struct cuda_recurrent *p, const struct place *at, float *dh,
                                 float *dc) {
  int64_t n = p->hidden, at_state = at->row * n + at->j;
  const float *gates = p->gate_sums + at->gates;
  float i = gates[0], o = gates[LSTM_OUTPUT * n], f = gates[LSTM_FORGET * n], g = gates[LSTM_CELL * n];
  float c = p->c_before[at_state], cell = p->kept[at_state], *d_gates = p->d_gates + at->gates;
  float d_output = *dh * cell * gate_slope(p, F, o),
        grad = *dc + *dh * o * activation_slope(&p->functions[H], cell);
  if (p->p)
    grad += d_output * p->p[LSTM_OUTPUT * n + at->j];
  float d_input = grad * (p->is_coupled ? g - c : g) * gate_slope(p, F, i);
  float d_forget = p->is_coupled ? 0.0f : grad * c * gate_slope(p, F, f);
  *dc = grad * f;
  if (p->p)
    *dc += d_input * p->p[at->j] + d_forget * p->p[LSTM_FORGET * n + at->j];
  *dh = 0;
  d_gates[0] = d_input;
  d_gates[LSTM_OUTPUT * n] = d_output;
  d_gates[LSTM_FORGET * n] = d_forget;
  d_gates[LSTM_CELL * n] = grad * i * gate_slope(p, G, g);
}

static __device__ void gru_back(const struct cuda_recurrent *p, const struct place *at, float *dh) {
  int64_t n = p->hidden;
  const float *gates = p->gate_sums + at->gates;
  float z = gates[0], r = gates[GRU_RESET * n], hidden = gates[GRU_HIDDEN * n];
  float *d_gates = p->d_gates + at->gates;
  float d_hidden = *dh * (1.0f - z) * gate_slope(p, G, hidden);
  d_gates[0] = *dh * (p->h_before[at->row * n + at->j] - hidden) * gate_slope(p, F, z);
  d_gates[GRU_HIDDEN * n] = d_hidden;
  *dh *= z;
  if (!p->is_linear_first)
    return;
  d_gates[GRU_RESET * n] = d_hidden * p->kept[at->row * n + at->j] * gate_slope(p, F, r);
  p->d_kept[at->row * n + at->j] = d_hidden * r;
}

__global__ void step_back(struct cuda_recurrent p, int64_t t) {
  int64_t n = p.hidden;
  for (int64_t i = CUDA_FIRST; i < p.batch * n; i += CUDA_STRIDE) {
    struct place at = place_of(&p, t, i);
    if (!at.is_live) {
      for (int64_t g = 0; g < p.gates; g++)
        p.d_gates[at.gates + g * n] = 0;
      if (p.cell == CUDA_GRU)
        p.d_kept[at.row * n + at.j] = 0;
      continue;
    }
    float dh = p.dh[i] + (p.dy ? p.dy[sequence_at(&p, t, at.b, at.j)] : 0.0f);
    if (p.cell == CUDA_LSTM) {
      lstm_back(&p, &at, &dh, &p.dc[i]);
    } else if (p.cell == CUDA_GRU) {
      gru_back(&p, &at, &dh);
    } else {
      p.d_gates[at.gates] = dh * gate_slope(&p, F, p.gate_sums[at.gates]);
      dh = 0;
    }
    p.dh[i] = dh;
  }
}

/* Where the reset gate scaled the state: d_spare is the gradient of that. */
__global__ void gru_back_reset(struct cuda_recurrent p, int64_t t) {
  int64_t n = p.hidden;
  for (int64_t i = CUDA_FIRST; i < p.batch * n; i += CUDA_STRIDE) {
    struct place at = place_of(&p, t, i);
    float r = p.gate_sums[at.gates + GRU_RESET * n];
    if (!at.is_live)
      continue;
    p.d_gates[at.gates + GRU_RESET * n] = p.d_spare[i] * p.h_before[at.row * n + at.j] * gate_slope(&p, F, r);
    p.dh[i] += p.d_spare[i] * r;
  }
}

void cuda_recurrent_step_back_launch(const struct cuda_recurrent *pass, int64_t t, int part,
                                     cudaStream_t stream) {
  int64_t blocks = cuda_blocks(pass->batch * pass->hidden);
  if (part == 0)
    CUDA_LAUNCH(step_back, blocks, CUDA_THREADS, stream, *pass, t);
  else
    CUDA_LAUNCH(gru_back_reset, blocks, CUDA_THREADS, stream, *pass, t);
}

__global__ void end_back(struct cuda_recurrent p) {
  for (int64_t i = CUDA_FIRST; i < p.batch * p.hidden; i += CUDA_STRIDE) {
    if (p.dh_first)
      p.dh_first[state_at(&p, i)] = p.dh[i];
    if (p.dc_first)
      p.dc_first[state_at(&p, i)] = p.dc[i];
  }
}

void cuda_recurrent_end_back_launch(const struct cuda_recurrent *pass, cudaStream_t stream) {
  CUDA_LAUNCH(end_back, cuda_blocks(pass->batch * pass->hidden), CUDA_THREADS, stream, *pass);
}

__global__ void multiply_peepholes(struct cuda_recurrent p, float *products) {
  int64_t n = p.hidden;
  for (int64_t i = CUDA_FIRST; i < p.steps * p.batch * n; i += CUDA_STRIDE) {
    int64_t row = i / n, j = i % n, first = row * p.gates * n + j;
    const float *gates = p.gate_sums + first, *d_gates = p.d_gates + first;
    float c = p.c_before[i], *to = products + row * 3 * n + j;
    float c_behind = gates[LSTM_FORGET * n] * c + gates[0] * gates[LSTM_CELL * n];
    to[0] = d_gates[0] * c;
    to[LSTM_OUTPUT * n] = d_gates[LSTM_OUTPUT * n] * c_behind;
    to[LSTM_FORGET * n] = d_gates[LSTM_FORGET * n] * c;
  }
}

void cuda_recurrent_peepholes_launch(const struct cuda_recurrent *pass, float *products,
                                     cudaStream_t stream) {
  CUDA_LAUNCH(multiply_peepholes, cuda_blocks(pass->steps * pass->batch * pass->hidden), CUDA_THREADS, stream,
              *pass, products);
}
