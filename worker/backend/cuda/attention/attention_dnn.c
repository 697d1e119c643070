/* ScaledAttention by cuDNN. Keys come as [d, s], and cuDNN wants the elements of each side by side: they are
   turned round before, and their gradient after, unless they lie so (CUDA_TURNED). */
#include "worker/backend/cuda/attention/attention_dnn.h"

#include <stdlib.h>

#include "worker/backend/cuda/moves/copy.h"

/* cuDNN is told that tensors begin at multiples of 16 bytes: of 4 sums. */
enum { ALIGN = 256, SUMS_ALIGN = 4, ELEMENT = 2 /* bytes of a bf16 */ };
/* What a plan may take. A gradient that repeats its bits holds those of all scores, so that a part of the
   batch is done at a time. */
static const size_t WORKSPACE_MAX = (size_t)512 << 20;
static const int64_t SCORES_BYTES_MAX = (int64_t)256 << 20;

/* Parts of the scratch. ALONG, of a forward pass: logarithms that nobody wants. */
enum { WORKSPACE, KEYS, DKEYS, ALONG, DQUERY_SUM, PARTS };

struct attention_dnn {
  struct attention_kind kind; /* of all */
  struct attention_graph graph;
  int64_t group; /* of the batch, at a time: divides it */
  struct cuda_copy turn, turn_back;
  size_t parts[PARTS + 1]; /* where each begins; the last is the end */
};

/* The largest part of the batch whose scores, in tiles of 64, are few enough, and which ends where sums may
   begin; 0: none. */
static int64_t group_of(const struct attention_kind *kind, bool is_fast) {
  int64_t bytes = kind->heads * ((kind->t + 63) / 64 * 64) * ((kind->s + 63) / 64 * 64) * ELEMENT;
  if (is_fast || !kind->is_grad)
    return kind->batch;
  for (int64_t group = kind->batch; group > 0; group--)
    if (kind->batch % group == 0 && group * bytes <= SCORES_BYTES_MAX &&
        (group == kind->batch || group * kind->heads * kind->t % SUMS_ALIGN == 0))
      return group;
  return 0;
}

/* [stack, d, s] as [stack, s, d], or back. */
static struct cuda_copy turn_of(int64_t stack, int64_t rows, int64_t columns) {
  struct cuda_copy copy = {.element = ELEMENT};
  cuda_copy_dim(&copy, stack, rows * columns, rows * columns);
  cuda_copy_dim(&copy, columns, 1, rows);
  cuda_copy_dim(&copy, rows, columns, 1);
  cuda_copy_settle(&copy);
  return copy;
}

static void scratch_layout(struct attention_dnn *own) {
  const struct attention_kind *kind = &own->kind;
  size_t rows = (size_t)(own->group * kind->heads * kind->t);
  size_t keys = (size_t)(own->group * kind->heads * kind->s * kind->d) * ELEMENT;
  const size_t bytes[PARTS] = {[WORKSPACE] = dnn_graph_workspace_bytes(own->graph.dnn),
                               [KEYS] = keys,
                               [DKEYS] = kind->is_grad ? keys : 0,
                               [ALONG] = rows * sizeof(float),
                               [DQUERY_SUM] = own->graph.tensors[ATTENTION_DQUERY_SUM] < 0
                                                  ? 0
                                                  : rows * (size_t)kind->d * sizeof(float)};
  for (int p = 0; p < PARTS; p++)
    own->parts[p + 1] = own->parts[p] + (bytes[p] + ALIGN - 1) / ALIGN * ALIGN;
}

struct attention_dnn *attention_dnn_new(struct backend_program *program, const struct attention_kind *kind) {
  const struct cuda_program_view *view = cuda_view(program);
  struct dnn_target target = {
      .handle = view->dnn, .is_fast = view->options.is_fast, .workspace_max = WORKSPACE_MAX};
  int64_t group = group_of(kind, target.is_fast);
  if (group == 0)
    return NULL;
  struct attention_dnn *own = mem_new(sizeof *own);
  own->kind = *kind;
  own->group = group;
  struct attention_kind part = *kind;
  part.batch = own->group;
  attention_graph_init(&own->graph, &part, target.is_fast);
  if (!dnn_graph_plan(own->graph.dnn, &target)) {
    attention_dnn_free(own);
    return NULL;
  }
  own->turn = turn_of(own->group * kind->heads, kind->d, kind->s);
  own->turn_back = turn_of(own->group * kind->heads, kind->s, kind->d);
  scratch_layout(own);
  return own;
}

void attention_dnn_free(struct attention_dnn *own) {
  if (!own)
    return;
  attention_graph_fini(&own->graph);
  free(own);
}

const struct attention_kind *attention_dnn_kind(const struct attention_dnn *own) {
  return &own->kind;
}

size_t attention_dnn_bytes(const struct attention_dnn *own) {
  return own->parts[PARTS];
}

/* The matrices of a part of the batch, of `elems` each. */
static void *matrices_at(const struct attention_dnn *own, void *data, int64_t begin, int64_t elems,
                         size_t element) {
  return data ? (char *)data + (size_t)(begin * own->kind.heads * elems) * element : NULL;
}

int attention_dnn_enqueue(struct backend_program *program, const struct attention_dnn *own,
                          const struct cuda_attention_io *io, const struct attention_call *call,
                          struct err *err) {
  const struct attention_kind *kind = &own->kind;
  char *scratch = call->scratch;
  bool turns_key = io->key.layout != CUDA_TURNED,
       turns_dkey = kind->is_grad && io->dkey.layout != CUDA_TURNED;
  void *along = scratch + own->parts[ALONG];
  cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
  for (int64_t at = 0; at < kind->batch && !status; at += own->group) {
    void *key = matrices_at(own, io->key.data, at, kind->s * kind->d, ELEMENT);
    void *dkey = matrices_at(own, io->dkey.data, at, kind->s * kind->d, ELEMENT);
    void *keys = turns_key ? scratch + own->parts[KEYS] : key;
    void *dkeys = turns_dkey ? scratch + own->parts[DKEYS] : dkey;
    void *const of[ATTENTION_ROLES] = {
        [ATTENTION_QUERY] = matrices_at(own, io->query.data, at, kind->t * kind->d, ELEMENT),
        [ATTENTION_KEY] = keys,
        [ATTENTION_VALUE] = matrices_at(own, io->value.data, at, kind->s * kind->e, ELEMENT),
        [ATTENTION_Y] = matrices_at(own, io->y.data, at, kind->t * kind->e, ELEMENT),
        [ATTENTION_DY] = matrices_at(own, io->dy.data, at, kind->t * kind->e, ELEMENT),
        [ATTENTION_DQUERY] = matrices_at(own, io->dquery.data, at, kind->t * kind->d, ELEMENT),
        [ATTENTION_DKEY] = dkeys,
        [ATTENTION_DVALUE] = matrices_at(own, io->dvalue.data, at, kind->s * kind->e, ELEMENT),
        [ATTENTION_SUMS] = io->log_sums ? matrices_at(own, io->log_sums, at, kind->t, sizeof(float)) : along,
        [ATTENTION_ALONG] = along,
        [ATTENTION_DQUERY_SUM] = scratch + own->parts[DQUERY_SUM]};
    void *data[DNN_TENSORS_MAX] = {NULL};
    for (int role = 0; role < ATTENTION_ROLES; role++)
      if (own->graph.tensors[role] >= 0)
        data[own->graph.tensors[role]] = of[role];
    if (turns_key)
      cuda_copy_launch(&own->turn, key, keys, call->stream);
    status =
        dnn_graph_execute(own->graph.dnn, cuda_view(program)->dnn, data, scratch + own->parts[WORKSPACE]);
    if (turns_dkey && !status)
      cuda_copy_launch(&own->turn_back, dkeys, dkey, call->stream);
  }
  return cuda_dnn_check(call->node, status, "attend", err);
}
