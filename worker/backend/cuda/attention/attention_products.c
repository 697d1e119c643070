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
                        int64_t stack, struct cuda_matrix a, struct cuda_matrix b, struct cuda_matrix out,
                        float alpha) {
  struct cuda_product *product = cuda_product_new(
      program, &(struct cuda_product_shape){.stack = stack, .a = a, .b = b, .out = out, .alpha = alpha});
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
  if (!product_add(program, own, form, SCORES, stack, query, key, scores, s->scale))
    return false;
  if (!own->is_grad)
    return product_add(program, own, form, MIXED, stack, weights, value, y, 1);
  return product_add(program, own, form, D_WEIGHTS, stack, y, stack_within(type, s->e, s->s, true), scores,
                     1) &&
         product_add(program, own, form, D_VALUE, stack, cuda_matrix_dense(type, s->s, s->t, true), y, value,
                     1) &&
         product_add(program, own, form, D_QUERY, stack, weights, stack_within(type, s->s, s->d, true), query,
                     1) &&
         product_add(program, own, form, D_KEY, stack, stack_within(type, s->d, s->t, true), weights, key, 1);
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
  struct backend_program *program;
  const struct attention_products *own;
  const struct node *node;
  cudaStream_t stream;
  struct err *err;
  int64_t index, n;
  float *scores, *d_weights;
  struct cuda_tensor weights, d_scores;
  void *work;
};

static struct group group_init(struct backend_program *program, const struct attention_products *own,
                               const struct node *node, void *scratch, cudaStream_t stream, struct err *err) {
  int copies = own->is_grad ? 2 : 1;
  char *at = scratch, *weights = at + copies * own->scores_bytes;
  struct group group = {
      .program = program, .own = own, .node = node, .stream = stream, .err = err, .scores = scratch};
  group.d_weights = (float *)(void *)(at + own->scores_bytes);
  group.weights = (struct cuda_tensor){.data = weights, .type = own->type, .layout = CUDA_DENSE};
  group.d_scores = group.weights;
  group.d_scores.data = weights + own->weights_bytes;
  group.work = weights + copies * own->weights_bytes;
  return group;
}

/* The group's matrices, of `elems` each, in a tensor. */
static void *group_matrices(const struct group *group, const struct cuda_tensor *tensor, int64_t elems) {
  return (char *)tensor->data + group->index * elems * (tensor->type == CUDA_BF16 ? 2 : 4);
}

static bool group_multiply(const struct group *group, int which, const void *a, const void *b, void *out) {
  struct cuda_product *product = group->own->products[group->n < group->own->group][which];
  const struct cuda_product_io io = {.a = a, .b = b, .out = out, .workspace = group->work};
  return cuda_product_enqueue(group->program, product, group->node, &io, group->stream, group->err) == ERR_OK;
}

static void group_at(struct group *group, int64_t index) {
  int64_t rest = group->own->shape.stack - index;
  group->index = index;
  group->n = rest < group->own->group ? rest : group->own->group;
}

int attention_products_forward(struct backend_program *program, const struct attention_products *own,
                               const struct node *node, const struct cuda_attention_grad *io, float *log_sums,
                               void *scratch, cudaStream_t stream, struct err *err) {
  const struct cuda_attention *s = &own->shape;
  struct group group = group_init(program, own, node, scratch, stream, err);
  for (int64_t index = 0; index < s->stack; index += own->group) {
    group_at(&group, index);
    if (!group_multiply(&group, SCORES, group_matrices(&group, &io->query, s->t * s->d),
                        group_matrices(&group, &io->key, s->d * s->s), group.scores))
      return err->code;
    cuda_attention_softmax_launch(s, index, group.n, group.scores, io->mask, group.weights, log_sums, stream);
    if (!group_multiply(&group, MIXED, group.weights.data, group_matrices(&group, &io->value, s->s * s->e),
                        group_matrices(&group, &io->y, s->t * s->e)))
      return err->code;
  }
  return ERR_OK;
}

static bool group_back(const struct group *group, const struct cuda_attention_grad *io) {
  const struct cuda_attention *s = &group->own->shape;
  const void *query = group_matrices(group, &io->query, s->t * s->d),
             *key = group_matrices(group, &io->key, s->d * s->s);
  const void *value = group_matrices(group, &io->value, s->s * s->e),
             *dy = group_matrices(group, &io->dy, s->t * s->e);
  if (!group_multiply(group, SCORES, query, key, group->scores) ||
      !group_multiply(group, D_WEIGHTS, dy, value, group->d_weights))
    return false;
  cuda_attention_weigh_launch(s, group->index, group->n, group->scores, group->d_weights, io, group->weights,
                              group->d_scores, group->stream);
  return group_multiply(group, D_VALUE, group->weights.data, dy,
                        group_matrices(group, &io->dvalue, s->s * s->e)) &&
         group_multiply(group, D_QUERY, group->d_scores.data, key,
                        group_matrices(group, &io->dquery, s->t * s->d)) &&
         group_multiply(group, D_KEY, query, group->d_scores.data,
                        group_matrices(group, &io->dkey, s->d * s->s));
}

int attention_products_backward(struct backend_program *program, const struct attention_products *own,
                                const struct node *node, const struct cuda_attention_grad *io, void *scratch,
                                cudaStream_t stream, struct err *err) {
  struct group group = group_init(program, own, node, scratch, stream, err);
  cuda_attention_along_launch(&own->shape, io, stream);
  for (int64_t index = 0; index < own->shape.stack; index += own->group) {
    group_at(&group, index);
    if (!group_back(&group, io))
      return err->code;
  }
  return ERR_OK;
}
