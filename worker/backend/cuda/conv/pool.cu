/* Pools of every kind and LRN; what of them pool_wide.cu takes is faster there. A thread makes one element of
   the result: forward of a window, backward of the input, where it adds what the windows that saw the element
   have for it, in their order, so that nothing needs atomics. Neighbouring threads have neighbouring elements
   of a plane, or with channels last neighbouring channels, so that a warp reads stretches of memory (with a
   stride of s, of each s times the bytes). What windows share is read from the caches: from memory comes each
   element of x once, 4 bytes of F32, 2 of BF16; dy and the 4 bytes of a place likewise. */
#include "worker/backend/cuda/engine/device.h"
#include "worker/backend/cuda/conv/pool.h"

/* Where an element of a result is: in its plane, and how planes lie. */
struct spot {
  int at[POOL_DIMS];
  int64_t in_base, out_base, step; /* element i of the plane is at base + i * step */
};

static __device__ __forceinline__ int plane_elems(const int *dim) {
  return dim[0] * dim[1] * dim[2];
}

/* Element e of planes of shape `dim`. */
static __device__ struct spot spot_of(const struct cuda_pool *p, uint32_t e, const int *dim) {
  uint32_t elems = (uint32_t)plane_elems(dim), channels = (uint32_t)p->channels, plane, i;
  struct spot spot;
  if (p->layout == CUDA_CHANNELS_LAST) {
    uint32_t channel = e % channels, sample;
    i = e / channels % elems;
    sample = e / channels / elems;
    spot.step = p->channels;
    spot.in_base = (int64_t)sample * plane_elems(p->in) * p->channels + channel;
    spot.out_base = (int64_t)sample * plane_elems(p->out) * p->channels + channel;
  } else {
    i = e % elems;
    plane = e / elems;
    spot.step = 1;
    spot.in_base = (int64_t)plane * plane_elems(p->in);
    spot.out_base = (int64_t)plane * plane_elems(p->out);
  }
  spot.at[2] = (int)(i % (uint32_t)dim[2]);
  spot.at[1] = (int)(i / (uint32_t)dim[2] % (uint32_t)dim[1]);
  spot.at[0] = (int)(i / (uint32_t)dim[2] / (uint32_t)dim[1]);
  return spot;
}

static __device__ __forceinline__ int divide_up(int a, int b) {
  return a <= 0 ? 0 : (a + b - 1) / b;
}

/* The taps of window `at` along dimension d that lie on the input: from begin until before end. */
static __device__ __forceinline__ void tap_range(const struct cuda_pool *p, int d, int at, int *origin,
                                                 int *begin, int *end) {
  *origin = at * p->stride[d] - p->pad_begin[d];
  *begin = divide_up(-*origin, p->dilation[d]);
  *end = min(p->kernel[d], divide_up(p->in[d] - *origin, p->dilation[d]));
}

/* What the sum of the window at `at` is divided by. */
static __device__ float window_count(const struct cuda_pool *p, const int *at) {
  int count = 1;
  for (int d = 0; d < POOL_DIMS; d++) {
    int origin, begin, end;
    tap_range(p, d, at[d], &origin, &begin, &end);
    if (p->includes_pad)
      count *= min(p->kernel[d], divide_up(p->in[d] + p->pad_end[d] - origin, p->dilation[d]));
    else
      count *= max(end - begin, 0);
  }
  return count > 0 ? (float)count : 1.0f;
}

/* What a window has come to. */
struct window {
  float value;
  int place;
};

static __device__ __forceinline__ void window_take(const struct cuda_pool *p, struct window *window, float x,
                                                   int place) {
  if (p->kind == POOL_AVERAGE) {
    window->value += x;
  } else if (p->kind == POOL_LP) {
    window->value += p->power == 2.0   ? x * x
                     : p->power == 1.0 ? fabsf(x)
                                       : (float)pow((double)fabsf(x), p->power);
  } else if (window->place < 0 || x > window->value || (isnan(x) && !isnan(window->value))) {
    window->value = x;
    window->place = place;
  }
}

/* Of reals or, for the greatest of them, bytes. */
static __device__ __forceinline__ float load_element(const struct cuda_tensor *t, int64_t i) {
  return t->type == CUDA_U8 ? ((const uint8_t *)t->data)[i] : cuda_load(t, i);
}

/* What is below all, -INFINITY, is 0 as a byte. */
static __device__ __forceinline__ void store_element(const struct cuda_tensor *t, int64_t i, float x) {
  if (t->type == CUDA_U8)
    ((uint8_t *)t->data)[i] = (uint8_t)fmaxf(x, 0.0f);
  else
    cuda_store(t, i, x);
}

static __device__ struct window window_walk(const struct cuda_pool *p, const struct spot *spot) {
  int origin[POOL_DIMS], begin[POOL_DIMS], end[POOL_DIMS];
  struct window window = {0.0f, -1};
  for (int d = 0; d < POOL_DIMS; d++)
    tap_range(p, d, spot->at[d], &origin[d], &begin[d], &end[d]);
  for (int a = begin[0]; a < end[0]; a++)
    for (int b = begin[1]; b < end[1]; b++) {
      int line = (origin[0] + a * p->dilation[0]) * p->in[1] + origin[1] + b * p->dilation[1];
      for (int c = begin[2]; c < end[2]; c++) {
        int place = line * p->in[2] + origin[2] + c * p->dilation[2];
        window_take(p, &window, load_element(&p->x, spot->in_base + place * spot->step), place);
      }
    }
  return window;
}

static __device__ float window_value(const struct cuda_pool *p, const struct spot *spot,
                                     const struct window *window) {
  switch (p->kind) {
  case POOL_AVERAGE:
    return window->value / window_count(p, spot->at);
  case POOL_LP:
    return p->power == 2.0   ? sqrtf(window->value)
           : p->power == 1.0 ? window->value
                             : (float)pow((double)window->value, 1.0 / p->power);
  default:
    return window->place < 0 ? -INFINITY : window->value;
  }
}

/* ONNX's Indices count the elements of the dense tensor; columns of the plane first, if so asked. */
static __device__ int64_t stored_index(const struct cuda_pool *p, const struct spot *spot, int place) {
  int64_t plane = plane_elems(p->in), base = spot->in_base;
  int at = place < 0 ? 0 : place;
  if (p->layout == CUDA_CHANNELS_LAST)
    base = (base / (plane * p->channels) * p->channels + base % p->channels) * plane;
  if (!p->is_column_major)
    return base + at;
  int column = at % p->in[2], row = at / p->in[2] % p->in[1], slice = at / p->in[2] / p->in[1];
  return p->dims == 3 ? base + ((int64_t)column * p->in[1] + row) * p->in[0] + slice
                      : base + (int64_t)column * p->in[1] + row;
}

static __global__ void pool_kernel(struct cuda_pool p) {
  int64_t n = p.planes * plane_elems(p.out);
  for (int64_t e = CUDA_FIRST; e < n; e += CUDA_STRIDE) {
    struct spot spot = spot_of(&p, (uint32_t)e, p.out);
    struct window window = window_walk(&p, &spot);
    if (p.y.data)
      store_element(&p.y, e, window_value(&p, &spot, &window));
    if (p.places)
      ((int32_t *)p.places)[e] = window.place;
    if (p.indices)
      p.indices[e] = stored_index(&p, &spot, window.place);
  }
}

/* The derivative of a norm y of that order with respect to its element x; 0 where the norm is. */
static __device__ float lp_slope(float x, float y, double p) {
  if (x == 0.0f || y == 0.0f)
    return 0.0f;
  if (p == 1.0)
    return x < 0.0f ? -1.0f : 1.0f;
  return p == 2.0 ? x / y : copysignf((float)pow((double)(fabsf(x) / y), p - 1.0), x);
}

/* What the window at `at` gives to the element at `place`, whose x it is. */
static __device__ float window_share(const struct cuda_pool *p, const struct spot *spot, const int *at,
                                     int place, float x) {
  int64_t o = spot->out_base + (((int64_t)at[0] * p->out[1] + at[1]) * p->out[2] + at[2]) * spot->step;
  if (p->kind == POOL_MAX)
    return ((const int32_t *)p->places)[o] == place ? cuda_load(&p->dy, o) : 0.0f;
  if (p->kind == POOL_AVERAGE)
    return cuda_load(&p->dy, o) / window_count(p, at);
  return cuda_load(&p->dy, o) * lp_slope(x, cuda_load(&p->y, o), p->power);
}

/* The windows along dimension d that can have element i: from first to last; not all do with dilations. */
static __device__ __forceinline__ void window_range(const struct cuda_pool *p, int d, int i, int *first,
                                                    int *last) {
  int from_begin = i + p->pad_begin[d];
  *first = divide_up(from_begin - (p->kernel[d] - 1) * p->dilation[d], p->stride[d]);
  *last = min(p->out[d] - 1, from_begin / p->stride[d]);
}

static __device__ __forceinline__ bool is_seen(const struct cuda_pool *p, int d, int i, int window) {
  return (i + p->pad_begin[d] - window * p->stride[d]) % p->dilation[d] == 0;
}

static __global__ void pool_grad_kernel(struct cuda_pool p) {
  int64_t n = p.planes * plane_elems(p.in);
  for (int64_t e = CUDA_FIRST; e < n; e += CUDA_STRIDE) {
    struct spot spot = spot_of(&p, (uint32_t)e, p.in);
    int first[POOL_DIMS], last[POOL_DIMS], at[POOL_DIMS];
    int place = (spot.at[0] * p.in[1] + spot.at[1]) * p.in[2] + spot.at[2];
    float x = p.kind == POOL_LP ? cuda_load(&p.x, e) : 0.0f, sum = 0.0f;
    for (int d = 0; d < POOL_DIMS; d++)
      window_range(&p, d, spot.at[d], &first[d], &last[d]);
    for (at[0] = first[0]; at[0] <= last[0]; at[0]++)
      for (at[1] = first[1]; at[1] <= last[1] && is_seen(&p, 0, spot.at[0], at[0]); at[1]++)
        for (at[2] = first[2]; at[2] <= last[2] && is_seen(&p, 1, spot.at[1], at[1]); at[2]++)
          if (is_seen(&p, 2, spot.at[2], at[2]))
            sum += window_share(&p, &spot, at, place, x);
    cuda_store(&p.dx, e, sum);
  }
}

/* bias + alpha * the sum of squares of the region around channel k of the element at e */
static __device__ float response_of(const struct cuda_lrn *l, int64_t e, int64_t k) {
  int64_t first = max(k - l->below, (int64_t)0), last = min(k + l->above, l->channels - 1);
  float sum = 0.0f;
  for (int64_t j = first; j <= last; j++) {
    float x = cuda_load(&l->x, e + (j - k) * l->inner);
    sum += x * x;
  }
  return l->bias + l->alpha * sum;
}

static __device__ __forceinline__ int64_t channel_of(const struct cuda_lrn *l, int64_t e) {
  return (uint32_t)e / (uint32_t)l->inner % (uint32_t)l->channels;
}

/* y, or the responses. */
static __global__ void lrn_kernel(struct cuda_lrn l) {
  for (int64_t e = CUDA_FIRST; e < l.elems; e += CUDA_STRIDE) {
    float response = response_of(&l, e, channel_of(&l, e));
    if (l.dy.data)
      l.responses[e] = response;
    else
      cuda_store(&l.out, e, cuda_load(&l.x, e) * powf(response, -l.beta));
  }
}

/* dx = dy r^-beta - 2 alpha beta x * the sum of dy x r^(-beta-1) over the channels whose region has this one
 */
static __global__ void lrn_grad_kernel(struct cuda_lrn l) {
  for (int64_t e = CUDA_FIRST; e < l.elems; e += CUDA_STRIDE) {
    int64_t k = channel_of(&l, e), first = max(k - l.above, (int64_t)0);
    int64_t last = min(k + l.below, l.channels - 1);
    float sum = 0.0f;
    for (int64_t j = first; j <= last; j++) {
      int64_t at = e + (j - k) * l.inner;
      sum += cuda_load(&l.dy, at) * cuda_load(&l.x, at) * powf(l.responses[at], -l.beta - 1.0f);
    }
    cuda_store(&l.out, e,
               cuda_load(&l.dy, e) * powf(l.responses[e], -l.beta) -
                   2.0f * l.alpha * l.beta * cuda_load(&l.x, e) * sum);
  }
}

extern "C" void cuda_pool_launch(const struct cuda_pool *pool, cudaStream_t stream) {
  int64_t n = pool->planes * pool->out[0] * pool->out[1] * pool->out[2];
  CUDA_LAUNCH(pool_kernel, cuda_blocks(n), CUDA_THREADS, stream, *pool);
}

extern "C" void cuda_pool_grad_launch(const struct cuda_pool *pool, cudaStream_t stream) {
  int64_t n = pool->planes * pool->in[0] * pool->in[1] * pool->in[2];
  CUDA_LAUNCH(pool_grad_kernel, cuda_blocks(n), CUDA_THREADS, stream, *pool);
}

extern "C" void cuda_lrn_launch(const struct cuda_lrn *lrn, cudaStream_t stream) {
  CUDA_LAUNCH(lrn_kernel, cuda_blocks(lrn->elems), CUDA_THREADS, stream, *lrn);
  if (lrn->dy.data)
    CUDA_LAUNCH(lrn_grad_kernel, cuda_blocks(lrn->elems), CUDA_THREADS, stream, *lrn);
}
