/* The comparison of cuDNN's attention with ours. */
#include "worker/backend/cuda/attention/attention_probe.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/agree/random.h"
#include "common/base/log.h"
#include "worker/backend/cuda/attention/attention_dnn.h"
#include "worker/backend/cuda/engine/program.h"

enum { MATRICES = 2, TRIED_MAX = 64 };
/* Of a tensor's greatest magnitude: bf16 has 8 bits. */
static const double TOLERANCE = 0.03;

/* What was tried. A kind beyond the last is tried each time. */
static struct {
  struct attention_kind kind;
  int device;
  bool is_fast, is_trusted;
} tried[TRIED_MAX];
static int n_tried;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Tensors by who makes them. GIVEN are drawn; ours are f32, but for Y_GIVEN, which both gradients read. */
enum {
  QUERY,
  KEY,
  VALUE,
  DY,
  GIVEN,
  Y_GIVEN = GIVEN,
  SUMS,
  WANT_Y,
  WANT_DQUERY,
  WANT_DKEY,
  WANT_DVALUE,
  GOT_Y,
  GOT_SUMS,
  GOT_DQUERY,
  GOT_DKEY,
  GOT_DVALUE,
  ALONG,
  SCRATCH,
  TENSORS
};

struct probe {
  struct backend_program *program;
  struct attention_kind kind;
  struct attention_dnn *dnn;
  char *memory; /* on the device */
  size_t begin[TENSORS + 1];
  int64_t elems[TENSORS];
  struct err err;
};

static enum cuda_type type_of(int tensor) {
  bool is_f32 =
      tensor == SUMS || tensor == GOT_SUMS || tensor == ALONG || (tensor >= WANT_Y && tensor <= WANT_DVALUE);
  return is_f32 ? CUDA_F32 : CUDA_BF16;
}

static struct cuda_tensor probe_tensor(const struct probe *probe, int which) {
  return (struct cuda_tensor){.data = probe->memory + probe->begin[which],
                              .type = type_of(which),
                              .layout = CUDA_DENSE,
                              .rank = 1,
                              .dim = {probe->elems[which]},
                              .elems = probe->elems[which]};
}

static bool is_ok(struct probe *probe, cudaError_t status, const char *what) {
  return !cuda_check(NULL, status, what, &probe->err);
}

static bool memory_open(struct probe *probe) {
  const struct attention_kind *kind = &probe->kind;
  int64_t query = MATRICES * kind->t * kind->d, key = MATRICES * kind->s * kind->d;
  int64_t value = MATRICES * kind->s * kind->e, y = MATRICES * kind->t * kind->e, rows = MATRICES * kind->t;
  const int64_t elems[TENSORS] = {[QUERY] = query,
                                  [KEY] = key,
                                  [VALUE] = value,
                                  [DY] = y,
                                  [Y_GIVEN] = y,
                                  [SUMS] = rows,
                                  [WANT_Y] = y,
                                  [WANT_DQUERY] = query,
                                  [WANT_DKEY] = key,
                                  [WANT_DVALUE] = value,
                                  [GOT_Y] = y,
                                  [GOT_SUMS] = rows,
                                  [GOT_DQUERY] = query,
                                  [GOT_DKEY] = key,
                                  [GOT_DVALUE] = value,
                                  [ALONG] = rows,
                                  [SCRATCH] =
                                      (int64_t)(attention_dnn_bytes(probe->dnn) / cuda_type_size(CUDA_BF16))};
  void *memory = NULL;
  for (int i = 0; i < TENSORS; i++) {
    probe->elems[i] = elems[i];
    probe->begin[i + 1] = probe->begin[i] + ((size_t)elems[i] * cuda_type_size(type_of(i)) + CUDA_ALIGN - 1) /
                                                CUDA_ALIGN * CUDA_ALIGN;
  }
  if (cuda_memory_new(probe->begin[TENSORS], "a probe of attention", &memory, &probe->err))
    return false;
  probe->memory = memory;
  return true;
}

/* bf16 numbers between -1 and 1; queries such that each row has a few columns that weigh most, so that no
   result is lost among others. */
static float draw_one(const struct attention_kind *kind, int tensor, int64_t index) {
  double norm = fabs(kind->scale) * sqrt((double)kind->d),
         greatest = tensor == QUERY && norm > 0 ? 9 / norm : 1;
  return (float)greatest * (2 * random_uniform(random_key(11, (uint64_t)tensor, 0, 0), (uint64_t)index) - 1);
}

static bool probe_draw(struct probe *probe) {
  size_t bytes = probe->begin[GIVEN];
  uint16_t *host = mem_new(bytes);
  for (int g = 0; g < GIVEN; g++)
    for (int64_t i = 0; i < probe->elems[g]; i++) {
      float x = draw_one(&probe->kind, g, i);
      uint32_t bits;
      memcpy(&bits, &x, sizeof bits);
      host[probe->begin[g] / sizeof *host + (size_t)i] = (uint16_t)(bits >> 16);
    }
  bool is_drawn =
      is_ok(probe,
            cudaMemcpyAsync(probe->memory, host, bytes, cudaMemcpyHostToDevice, probe->program->compute),
            "copy") &&
      is_ok(probe, cudaStreamSynchronize(probe->program->compute), "copy");
  free(host);
  return is_drawn;
}

/* By tiles; then by cuDNN, whose gradient is given what our forward pass made. */
static bool probe_compute(struct probe *probe) {
  const struct attention_kind *kind = &probe->kind;
  cudaStream_t stream = probe->program->compute;
  const struct cuda_attention shape = {.stack = MATRICES,
                                       .t = kind->t,
                                       .s = kind->s,
                                       .d = kind->d,
                                       .e = kind->e,
                                       .scale = kind->scale,
                                       .diagonal = kind->is_causal ? 0 : kind->s};
  float *sums = probe_tensor(probe, SUMS).data;
  struct cuda_attention_io io = {.dy = probe_tensor(probe, DY),
                                 .query = probe_tensor(probe, QUERY),
                                 .key = probe_tensor(probe, KEY),
                                 .value = probe_tensor(probe, VALUE),
                                 .y = probe_tensor(probe, WANT_Y),
                                 .log_sums = sums,
                                 .along = probe_tensor(probe, ALONG).data,
                                 .dquery = probe_tensor(probe, WANT_DQUERY),
                                 .dkey = probe_tensor(probe, WANT_DKEY),
                                 .dvalue = probe_tensor(probe, WANT_DVALUE)};
  const struct attention_call call = {.scratch = probe_tensor(probe, SCRATCH).data, .stream = stream};
  cuda_attention_launch(&shape, &io, stream);
  if (kind->is_grad) {
    io.y = probe_tensor(probe, Y_GIVEN);
    io.log_sums = NULL;
    cuda_attention_launch(&shape, &io, stream);
    io.log_sums = sums;
    cuda_attention_grad_launch(&shape, &io, stream);
    io.dquery = probe_tensor(probe, GOT_DQUERY);
    io.dkey = probe_tensor(probe, GOT_DKEY);
    io.dvalue = probe_tensor(probe, GOT_DVALUE);
  } else {
    io.y = probe_tensor(probe, GOT_Y);
    io.log_sums = probe_tensor(probe, GOT_SUMS).data;
  }
  return is_ok(probe, cudaGetLastError(), "launch") &&
         !attention_dnn_enqueue(probe->program, probe->dnn, &io, &call, &probe->err) &&
         is_ok(probe, cudaStreamSynchronize(stream), "attend");
}

static float element_of(enum cuda_type type, const char *bytes, int64_t i) {
  uint32_t bits;
  float x;
  if (type == CUDA_F32)
    return ((const float *)(const void *)bytes)[i];
  bits = (uint32_t)((const uint16_t *)(const void *)bytes)[i] << 16;
  memcpy(&x, &bits, sizeof x);
  return x;
}

/* NaN agrees with nothing. */
static bool tensors_agree(struct probe *probe, const char *host, int want, int got, const char *name) {
  double greatest = 0, apart = 0;
  for (int64_t i = 0; i < probe->elems[want]; i++) {
    double x = element_of(type_of(want), host + probe->begin[want], i);
    double difference = fabs(element_of(type_of(got), host + probe->begin[got], i) - x);
    greatest = fmax(greatest, fabs(x));
    apart = apart >= difference ? apart : difference;
  }
  if (apart <= TOLERANCE * greatest)
    return true;
  err_set(&probe->err, ERR_INTERNAL, "%s differ by %g where they are up to %g", name, apart, greatest);
  return false;
}

static bool probe_compare(struct probe *probe) {
  size_t bytes = probe->begin[ALONG];
  char *host = mem_new(bytes);
  bool is_same = is_ok(probe, cudaMemcpy(host, probe->memory, bytes, cudaMemcpyDeviceToHost), "copy");
  if (is_same && probe->kind.is_grad)
    is_same = tensors_agree(probe, host, WANT_DQUERY, GOT_DQUERY, "gradients of queries") &&
              tensors_agree(probe, host, WANT_DKEY, GOT_DKEY, "gradients of keys") &&
              tensors_agree(probe, host, WANT_DVALUE, GOT_DVALUE, "gradients of values");
  else if (is_same)
    is_same = tensors_agree(probe, host, WANT_Y, GOT_Y, "results") &&
              tensors_agree(probe, host, SUMS, GOT_SUMS, "logarithms of sums");
  free(host);
  return is_same;
}

static bool probe_try(struct backend_program *program, const struct attention_kind *kind) {
  struct probe probe = {.program = program, .kind = *kind, .err = ERR_NONE};
  probe.dnn = attention_dnn_new(program, kind);
  bool is_trusted = probe.dnn && memory_open(&probe) && probe_draw(&probe) && probe_compute(&probe) &&
                    probe_compare(&probe);
  if (probe.err.code == ERR_NO_MEMORY && !program->err.code)
    program->err = probe.err; /* says nothing about cuDNN, and bits must not depend on it */
  else if (probe.dnn && !is_trusted)
    log_event(LOG_WARN, "worker", "attention_not_fused",
              "device=cuda:%d pass=%s rows=%lld columns=%lld head=%lld causal=%d reason=\"%s\"",
              program->view.options.device, kind->is_grad ? "backward" : "forward", (long long)kind->t,
              (long long)kind->s, (long long)kind->d, kind->is_causal, probe.err.text);
  cudaFree(probe.memory);
  attention_dnn_free(probe.dnn);
  return is_trusted;
}

static bool is_same_kind(const struct attention_kind *a, const struct attention_kind *b) {
  return a->t == b->t && a->s == b->s && a->d == b->d && a->e == b->e && a->scale == b->scale &&
         a->is_causal == b->is_causal && a->is_grad == b->is_grad;
}

bool attention_is_trusted(struct backend_program *program, const struct attention_kind *kind) {
  const struct backend_options *options = &program->view.options;
  struct attention_kind small = *kind;
  int at = 0;
  small.batch = 1;
  small.heads = MATRICES;
  pthread_mutex_lock(&lock);
  while (at < n_tried && !(tried[at].device == options->device && tried[at].is_fast == options->is_fast &&
                           is_same_kind(&tried[at].kind, &small)))
    at++;
  bool is_trusted = at < n_tried ? tried[at].is_trusted : probe_try(program, &small);
  if (at == n_tried && n_tried < TRIED_MAX && !program->err.code) {
    tried[at].kind = small;
    tried[at].device = options->device;
    tried[at].is_fast = options->is_fast;
    tried[at].is_trusted = is_trusted;
    n_tried++;
  }
  pthread_mutex_unlock(&lock);
  return is_trusted;
}
