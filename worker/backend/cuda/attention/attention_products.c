/* ScaledAttention by matrix products, for a group of the stack's matrices at a time. */
#include "worker/backend/cuda/attention/attention_products.h"

#include "worker/backend/cuda/product/product.h"

enum { SCORES, MIXED, D_WEIGHTS, D_VALUE, D_QUERY, D_KEY, PRODUCTS };

/* Of fewer rows or columns tiles waste little. */
enum { SIDE_MIN = 32 };
/* Scores that are held at once, in elements: of these there are up to 16 bytes each. */
static const int64_t SCORES_MAX = 16 << 20;

struct attention_products {
  struct cuda_attention shape;
  enum cuda_type type;
  bool is_grad;
  int64_t group;                                  /* matrices at a time */
  struct cuda_product *products[2][PRODUCTS];     /* of a whole group, and of the last one */
  size_t scores_bytes, weights_bytes, work_bytes; /* parts of the scratch */
};

static bool product_add(struct backend_program *program, struct attention_products *own, int form, int which,
                        const struct cuda_product_shape *shape) {
  struct cuda_product *product = cuda_product_new(program, shape);
  own->products[form][which] = product;
  if (product && cuda_product_workspace_bytes(product) > own->work_bytes)
    own->work_bytes = cuda_product_workspace_bytes(product);
  return product != NULL;
}

/* A stack within a tensor, begun anywhere: aligned as its matrices are. */
static struct cuda_matrix stack_within(enum cuda_type type, int64_t rows, int64_t columns,
                                       bool is_transposed) {
  struct cuda_matrix matrix = cuda_matrix_dense(type, rows, columns, is_transposed);
  matrix.align_bytes = 256;
  while (rows * columns * (type == CUDA_BF16 ? 2 : 4) % matrix.align_bytes != 0)
    matrix.align_bytes /= 2;
  return matrix;
}

static bool products_init(struct backend_program *program, struct attention_products *own, int form,
                          int64_t stack) {
  const struct cuda_attention *s = &own->shape;
  enum cuda_type type = own->type;
  struct cuda_matrix query = stack_within(type, s->t, s->d, false),
                     key = stack_within(type, s->d, s->s, false);
  struct cuda_matrix value = stack_within(type, s->s, s->e, false), y = stack_within(type, s->t, s->e, false);
  struct cuda_matrix scores = cuda_matrix_dense(CUDA_F32, s->t, s->s, false);
  struct cuda_matrix weights = cuda_matrix_dense(type, s->t, s->s, false);
  struct cuda_matrix weights_t = cuda_matrix_dense(type, s->s, s->t, true);
  struct cuda_matrix value_t = stack_within(type, s->e, s->s, true);
  struct cuda_matrix key_t = stack_within(type, s->s, s->d, true),
                     query_t = stack_within(type, s->d, s->t, true);
  const struct {
    int which;
    bool is_forward, is_grad;
    struct cuda_product_shape shape;
  } rows[] = {
      {SCORES, true, true, {.stack = stack, .a = query, .b = key, .out = scores, .alpha = s->scale}},
      {MIXED, true, false, {.stack = stack, .a = weights, .b = value, .out = y, .alpha = 1}},
      {D_WEIGHTS, false, true, {.stack = stack, .a = y, .b = value_t, .out = scores, .alpha = 1}},
      {D_VALUE, false, true, {.stack = stack, .a = weights_t, .b = y, .out = value, .alpha = 1}},
      {D_QUERY, false, true, {.stack = stack, .a = weights, .b = key_t, .out = query, .alpha = 1}},
      {D_KEY, false, true, {.stack = stack, .a = query_t, .b = weights, .out = key, .alpha = 1}},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if ((own->is_grad ? rows[i].is_grad : rows[i].is_forward) &&
        !product_add(program, own, form, rows[i].which, &rows[i].shape))
      return false;
  return true;
}

struct attention_products *attention_products_new(struct backend_program *program,
                                                  const struct cuda_attention *shape, bool is_grad) {
  const struct cuda_program_view *view = cuda_view(program);
  int64_t scores = shape->t * shape->s;
  if (view->options.precision == PRECISION_F32 || shape->s < SIDE_MIN || shape->t < SIDE_MIN ||
      scores > SCORES_MAX)
    return NULL;
  struct attention_products *own = arena_new(view->memory, sizeof *own);
  *own = (struct attention_products){.shape = *shape, .type = cuda_factor_type(program), .is_grad = is_grad};
  own->group = SCORES_MAX / scores < shape->stack ? SCORES_MAX / scores : shape->stack;
  int64_t rest = shape->stack % own->group, elems = own->group * scores;
  own->scores_bytes = ((size_t)elems * sizeof(float) + 255) / 256 * 256;
  own->weights_bytes = ((size_t)elems * (own->type == CUDA_BF16 ? 2 : 4) + 255) / 256 * 256;
  if (!products_init(program, own, 0, own->group) || (rest > 0 && !products_init(program, own, 1, rest)))
    return NULL;
  return own;
}

size_t attention_products_bytes(const struct attention_products *own) {
  return (own->scores_bytes + own->weights_bytes) * (own->is_grad ? 2 : 1) + own->work_bytes;
}

/* One group on its way through the products. */
struct group {
  const struct attention_products *own;
  const struct attention_call *call;
  struct err *err;
  struct cuda_attention_group at;
  void *work;
};

static struct group group_init(const struct attention_products *own, const struct attention_call *call,
                               struct err *err) {
  int copies = own->is_grad ? 2 : 1;
  char *scratch = call->scratch, *weights = scratch + copies * own->scores_bytes;
  struct group group = {.own = own, .call = call, .err = err, .at.scores = call->scratch};
  group.at.d_weights = (float *)(void *)(scratch + own->scores_bytes);
  group.at.weights = (struct cuda_tensor){.data = weights, .type = own->type, .layout = CUDA_DENSE};
  group.at.d_scores = group.at.weights;
  group.at.d_scores.data = weights + own->weights_bytes;
  group.work = weights + copies * own->weights_bytes;
  return group;
}

/* The group's matrices, of `elems` each, in a tensor. */
static void *group_matrices(const struct group *group, const struct cuda_tensor *tensor, int64_t elems) {
  return (char *)tensor->data + group->at.index * elems * (tensor->type == CUDA_BF16 ? 2 : 4);
}

static bool group_multiply(const struct group *group, int which, const void *a, const void *b, void *out) {
  struct cuda_product *product = group->own->products[group->at.n < group->own->group][which];
  const struct cuda_product_io io = {.a = a, .b = b, .out = out, .workspace = group->work};
  return cuda_product_enqueue(product, group->call->node, &io, group->call->stream, group->err) == ERR_OK;
}

static void group_at(struct group *group, int64_t index) {
  int64_t rest = group->own->shape.stack - index;
  group->at.index = index;
  group->at.n = rest < group->own->group ? rest : group->own->group;
}

int attention_products_forward(const struct attention_products *own, const struct cuda_attention_io *io,
                               const struct attention_call *call, struct err *err) {
  const struct cuda_attention *s = &own->shape;
  struct group group = group_init(own, call, err);
  for (int64_t index = 0; index < s->stack; index += own->group) {
    group_at(&group, index);
    if (!group_multiply(&group, SCORES, group_matrices(&group, &io->query, s->t * s->d),
                        group_matrices(&group, &io->key, s->d * s->s), group.at.scores))
      return err->code;
    cuda_attention_softmax_launch(s, &group.at, io, call->stream);
    if (!group_multiply(&group, MIXED, group.at.weights.data, group_matrices(&group, &io->value, s->s * s->e),
                        group_matrices(&group, &io->y, s->t * s->e)))
      return err->code;
  }
  return ERR_OK;
}

static bool group_back(const struct group *group, const struct cuda_attention_io *io) {
  const struct cuda_attention *s = &group->own->shape;
  const void *query = group_matrices(group, &io->query, s->t * s->d),
             *key = group_matrices(group, &io->key, s->d * s->s);
  const void *value = group_matrices(group, &io->value, s->s * s->e),
             *dy = group_matrices(group, &io->dy, s->t * s->e);
  if (!group_multiply(group, SCORES, query, key, group->at.scores) ||
      !group_multiply(group, D_WEIGHTS, dy, value, group->at.d_weights))
    return false;
  cuda_attention_weigh_launch(s, &group->at, io, group->call->stream);
  return group_multiply(group, D_VALUE, group->at.weights.data, dy,
                        group_matrices(group, &io->dvalue, s->s * s->e)) &&
         group_multiply(group, D_QUERY, group->at.d_scores.data, key,
                        group_matrices(group, &io->dquery, s->t * s->d)) &&
         group_multiply(group, D_KEY, query, group->at.d_scores.data,
                        group_matrices(group, &io->dkey, s->d * s->s));
}

int attention_products_backward(const struct attention_products *own, const struct cuda_attention_io *io,
                                const struct attention_call *call, struct err *err) {
  struct group group = group_init(own, call, err);
  cuda_attention_along_launch(&own->shape, io, call->stream);
  for (int64_t index = 0; index < own->shape.stack; index += own->group) {
    group_at(&group, index);
    if (!group_back(&group, io))
      return err->code;
  }
  return ERR_OK;
}
