/* The fused attention of a program: when it is taken, and plans that nodes share. */
#include "worker/backend/cuda/attention/attention_plans.h"

#include "common/base/log.h"
#include "worker/backend/cuda/attention/attention_probe.h"
#include "worker/backend/cuda/engine/program.h"
#include "worker/backend/cuda/product/product.h"

/* Of fewer rows or columns there is little to gain; heads are what engines since Ampere take. */
enum { SIDE_MIN = 16, HEAD_MAX = 128, HEAD_MULTIPLE = 8 };
/* Before this version gradients were wrong of rows that are no multiple of 128. */
static const size_t VERSION_MIN = 91600;
/* GPUs beyond it repeat a gradient's bits only with engines that are asked for by number. */
enum { REPEATING_MAJOR_MAX = 9 };

struct attention_plan {
  struct attention_dnn *dnn;
  struct attention_plan *next;
};

static bool head_fits(int64_t elems) {
  return elems % HEAD_MULTIPLE == 0 && elems <= HEAD_MAX;
}

static bool is_wanted(struct backend_program *program, const struct attention_kind *kind) {
  int major = 0;
  if (cuda_factor_type(program) != CUDA_BF16 || cudnnGetVersion() < VERSION_MIN || kind->t < SIDE_MIN ||
      kind->s < SIDE_MIN || !head_fits(kind->d) || !head_fits(kind->e))
    return false;
  if (!kind->is_grad || program->view.options.is_fast)
    return true;
  return cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, program->view.options.device) ==
             cudaSuccess &&
         major <= REPEATING_MAJOR_MAX;
}

static bool is_same(const struct attention_kind *a, const struct attention_kind *b) {
  return a->batch == b->batch && a->heads == b->heads && a->t == b->t && a->s == b->s && a->d == b->d &&
         a->e == b->e && a->scale == b->scale && a->is_causal == b->is_causal && a->is_grad == b->is_grad;
}

static struct attention_dnn *plan_new(struct backend_program *program, const struct attention_kind *kind) {
  struct attention_dnn *dnn = attention_is_trusted(program, kind) ? attention_dnn_new(program, kind) : NULL;
  log_event(LOG_DEBUG, "worker", "attention_plan",
            "device=cuda:%d pass=%s rows=%lld columns=%lld head=%lld causal=%d is_fused=%d bytes=%zu",
            program->view.options.device, kind->is_grad ? "backward" : "forward", (long long)kind->t,
            (long long)kind->s, (long long)kind->d, kind->is_causal, dnn != NULL,
            dnn ? attention_dnn_bytes(dnn) : 0);
  return dnn;
}

struct attention_dnn *attention_plan_find(struct backend_program *program, const struct cuda_attention *shape,
                                          bool has_mask, bool is_grad) {
  struct attention_kind kind = {.heads = shape->lead > 0 ? shape->lead_dim[shape->lead - 1] : 1,
                                .t = shape->t,
                                .s = shape->s,
                                .d = shape->d,
                                .e = shape->e,
                                .scale = shape->scale,
                                .is_causal = shape->diagonal == 0,
                                .is_grad = is_grad};
  kind.batch = shape->stack / kind.heads;
  if (has_mask || (!kind.is_causal && shape->diagonal != shape->s) || !is_wanted(program, &kind))
    return NULL;
  for (struct attention_plan *plan = program->attention; plan; plan = plan->next)
    if (is_same(attention_dnn_kind(plan->dnn), &kind))
      return plan->dnn;
  struct attention_dnn *dnn = plan_new(program, &kind);
  if (!dnn)
    return NULL;
  struct attention_plan *plan = arena_new(&program->memory, sizeof *plan);
  *plan = (struct attention_plan){dnn, program->attention};
  program->attention = plan;
  return dnn;
}

void attention_plans_free(struct backend_program *program) {
  for (struct attention_plan *plan = program->attention; plan; plan = plan->next)
    attention_dnn_free(plan->dnn);
}
