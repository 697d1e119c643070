/* LinearCrossEntropy: the scores of a chunk of rows at a time, by cuBLASLt; a pass over them finds the losses
   and leaves their gradient, of which two products make those of hidden and weight. Chunks are as long as the
   memory that one would spend on them allows: each reads the weight, and reads and writes its gradient. */
#include "model/ops/linear_cross_entropy.h"

#include "worker/backend/cuda/loss/class_rows.h"
#include "worker/backend/cuda/product/product.h"
#include "worker/backend/cuda/rows/fold.h"

/* Scores of a chunk; its rows in whole tiles of products; and its rows' lengths in whole 16 bytes of BF16. */
enum { CHUNK_ELEMS = 1 << 26, CHUNK_TILE = 128, PITCH_TILE = 8, CLASSES_MAX = 1 << 24 };
/* cuBLASLt's fast kernels take dimensions of whole tiles alone: of an odd number of many classes, the few
   beyond the last tile are multiplied apart. */
enum { SPLIT_MIN = 1024, PARTS_MAX = 2, PART_ALIGN_BYTES = 16 };

/* The products of a chunk with classes `first` to first + classes - 1. */
struct part {
  int64_t first, classes;
  struct cuda_product *scores, *dhidden, *dweight, *dweight_more; /* the last adds to what there is */
};

/* What is prepared for chunks of so many rows. */
struct chunk {
  int64_t rows;
  struct part parts[PARTS_MAX];
  struct cuda_class_pass pass;
  struct cuda_folding dbias;
};

struct linear_step {
  struct linear_sizes sizes;
  enum cuda_type factor; /* the type of products' factors */
  int n_parts;
  int64_t chunks, pitch;          /* pitch: elements from one row of scores to the next */
  struct chunk full, tail;        /* tail: the last one, where it is shorter */
  struct cuda_class_step classes; /* labels, weights, and where the sums go */
  struct cuda_folding dbias;      /* over chunks */
  /* Arguments; -1: none. In F32, scores become their gradient: dscores is scores. */
  int hidden, weight, bias, scores, dscores, workspace, dbias_parts;
  int grads[3]; /* of hidden, weight and bias */
};

static int output_of(const struct node *node, int output) {
  return output < node->n_outputs ? node->outputs[output] : -1;
}

static bool has_gradient(const struct node *node) {
  for (int i = LINEAR_HIDDEN; i <= LINEAR_BIAS; i++)
    if (output_of(node, LINEAR_GRADS + i) >= 0)
      return true;
  return false;
}

static struct cuda_matrix rows_of(enum cuda_type type, int64_t rows, int64_t columns, int64_t pitch) {
  struct cuda_matrix matrix = cuda_matrix_dense(type, rows, columns, false);
  matrix.row_stride = pitch;
  return matrix;
}

static struct cuda_matrix operand_transposed(const struct cuda_matrix *m) {
  return (struct cuda_matrix){.type = m->type,
                              .rows = m->columns,
                              .columns = m->rows,
                              .row_stride = m->column_stride,
                              .column_stride = m->row_stride,
                              .align_bytes = m->align_bytes};
}

static struct cuda_product *product_new(struct backend_program *program, const struct cuda_matrix *a,
                                        const struct cuda_matrix *b, struct cuda_matrix out, float beta) {
  struct cuda_product_shape shape = {.stack = 1, .a = *a, .b = *b, .out = out, .alpha = 1.0f, .beta = beta};
  return cuda_product_new(program, &shape);
}

/* The products of a part of a chunk. Parts' gradients of hidden are added up. False when cuBLASLt lacks one.
 */
static bool part_init(struct part *part, struct backend_program *program, const struct node *node,
                      const struct linear_step *own, int64_t rows) {
  const struct linear_sizes *sizes = &own->sizes;
  int dhidden = output_of(node, LINEAR_GRADS + LINEAR_HIDDEN);
  struct cuda_matrix hidden = rows_of(own->factor, rows, sizes->features, sizes->features);
  struct cuda_matrix weight =
      cuda_matrix_dense(own->factor, sizes->features, part->classes, sizes->is_transposed);
  struct cuda_matrix scores = rows_of(CUDA_F32, rows, part->classes, own->pitch);
  struct cuda_matrix dscores = rows_of(own->factor, rows, part->classes, own->pitch);
  weight.align_bytes = scores.align_bytes = dscores.align_bytes = part->first > 0 ? PART_ALIGN_BYTES : 0;
  struct cuda_matrix weight_t = operand_transposed(&weight);
  struct cuda_matrix a = operand_transposed(sizes->is_transposed ? &dscores : &hidden);
  struct cuda_matrix b = sizes->is_transposed ? hidden : dscores;
  struct cuda_matrix dweight = rows_of(CUDA_F32, a.rows, b.columns, b.columns);
  dweight.align_bytes = weight.align_bytes;
  part->scores = product_new(program, &hidden, &weight, scores, 0.0f);
  if (!part->scores)
    return false;
  if (dhidden >= 0)
    part->dhidden =
        product_new(program, &dscores, &weight_t,
                    rows_of(cuda_type_of(program, dhidden), rows, sizes->features, sizes->features),
                    part->first > 0 || own->n_parts == 1 ? 0.0f : 1.0f);
  if (dhidden >= 0 && !part->dhidden)
    return false;
  if (output_of(node, LINEAR_GRADS + LINEAR_WEIGHT) < 0)
    return true;
  part->dweight = product_new(program, &a, &b, dweight, 0.0f);
  part->dweight_more = product_new(program, &a, &b, dweight, 1.0f);
  return part->dweight && part->dweight_more;
}

/* Few classes come first: their share of the gradient of hidden is rounded once more than that of the many.
 */
static bool chunk_init(struct chunk *chunk, struct backend_program *program, const struct node *node,
                       const struct linear_step *own, int64_t rows) {
  int64_t classes = own->sizes.classes, few = own->n_parts > 1 ? classes % PITCH_TILE : 0;
  bool is_ok = true;
  chunk->rows = rows;
  if (few > 0)
    chunk->parts[0] = (struct part){.first = classes - few, .classes = few};
  chunk->parts[own->n_parts - 1] = (struct part){.classes = classes - few};
  for (int p = 0; p < own->n_parts && is_ok; p++)
    is_ok = part_init(&chunk->parts[p], program, node, own, rows);
  return is_ok;
}

/* Rows of classes that lie a pitch apart: each as a row, or each class as one. */
static bool score_rows(struct cuda_rows *rows, const struct linear_step *own, int64_t n, bool by_class) {
  bool fits =
      by_class ? cuda_rows_init(rows, 1, 1, n, own->pitch) : cuda_rows_init(rows, 1, n, own->pitch, 1);
  *(by_class ? &rows->rows : &rows->n) = own->sizes.classes;
  return fits;
}

/* The chunks and all that can fail, before anything is added to the program. */
static bool chunks_init(struct linear_step *own, struct backend_program *program, const struct node *node,
                        int n_parts) {
  const struct linear_sizes *sizes = &own->sizes;
  int64_t rows = CHUNK_ELEMS / own->pitch / CHUNK_TILE * CHUNK_TILE, rest;
  own->n_parts = n_parts;
  rows = rows < CHUNK_TILE ? CHUNK_TILE : rows;
  rows = rows < sizes->rows ? rows : sizes->rows;
  own->chunks = (sizes->rows + rows - 1) / rows;
  rest = sizes->rows % rows;
  return chunk_init(&own->full, program, node, own, rows) &&
         score_rows(&own->full.pass.rows, own, rows, false) &&
         score_rows(&own->full.dbias.fold.rows, own, rows, true) &&
         cuda_rows_init(&own->dbias.fold.rows, 1, 1, own->chunks, sizes->classes) &&
         (rest == 0 || (chunk_init(&own->tail, program, node, own, rest) &&
                        score_rows(&own->tail.pass.rows, own, rest, false) &&
                        score_rows(&own->tail.dbias.fold.rows, own, rest, true)));
}

static bool linear_init(struct linear_step *own, struct backend_program *program, const struct node *node) {
  struct linear_sizes sizes = linear_sizes_of(cuda_view(program)->graph, node);
  struct cuda_folding folding = cuda_folding_of(FOLD_SUM, FINISH_A);
  bool is_split = sizes.is_transposed && sizes.classes >= SPLIT_MIN && sizes.classes % PITCH_TILE != 0;
  *own = (struct linear_step){.sizes = sizes,
                              .factor = cuda_factor_type(program),
                              .pitch = (sizes.classes + PITCH_TILE - 1) / PITCH_TILE * PITCH_TILE,
                              .classes = cuda_class_step_of(program, node),
                              .dbias = folding,
                              .bias = -1,
                              .workspace = -1,
                              .dbias_parts = -1,
                              .grads = {-1, -1, -1}};
  own->full.dbias = own->tail.dbias = folding;
  return sizes.classes <= CLASSES_MAX &&
         ((is_split && chunks_init(own, program, node, PARTS_MAX)) || chunks_init(own, program, node, 1));
}

static void workspace_grow(size_t *size_bytes, const struct cuda_product *product) {
  size_t need = product ? cuda_product_workspace_bytes(product) : 0;
  *size_bytes = need > *size_bytes ? need : *size_bytes;
}

/* Chunks' scores, gradients and sums, and what products need. */
static void add_scratch(struct backend_program *program, struct cuda_step *step, struct linear_step *own) {
  const struct chunk *const chunks[] = {&own->full, &own->tail};
  size_t elems = (size_t)(own->full.rows * own->pitch), workspace = 0;
  int64_t blocks = own->full.pass.blocks * (own->chunks - 1);
  blocks += own->tail.rows ? own->tail.pass.blocks : own->full.pass.blocks;
  for (int p = 0; p < 2 * PARTS_MAX; p++) {
    const struct part *part = &chunks[p / PARTS_MAX]->parts[p % PARTS_MAX];
    workspace_grow(&workspace, part->scores);
    workspace_grow(&workspace, part->dhidden);
    workspace_grow(&workspace, part->dweight);
    workspace_grow(&workspace, part->dweight_more);
  }
  own->scores = own->dscores = cuda_scratch(program, step, elems * sizeof(float));
  if (own->factor == CUDA_BF16 && has_gradient(step->node))
    own->dscores = cuda_scratch(program, step, elems * sizeof(uint16_t));
  own->classes.sums = cuda_scratch(program, step, (size_t)blocks * CLASS_SUMS * sizeof(double));
  if (workspace > 0)
    own->workspace = cuda_scratch(program, step, workspace);
}

/* The bias's gradient: of each chunk a fold, and of the chunks another. */
static void plan_bias(struct backend_program *program, struct cuda_step *step, struct linear_step *own) {
  own->dbias.out[0] = own->grads[LINEAR_BIAS];
  own->dbias.x = own->dbias_parts = cuda_rows_scratch(program, step, own->chunks * own->sizes.classes);
  cuda_folding_plan(program, step, &own->full.dbias);
  if (own->tail.rows)
    cuda_folding_plan(program, step, &own->tail.dbias);
  cuda_folding_plan(program, step, &own->dbias);
}

static void plan_pass(const struct backend_program *program, const struct cuda_step *step,
                      struct cuda_class_pass *pass) {
  pass->node = step->node->index;
  pass->fault = cuda_view(program)->fault;
  pass->has_ignored = true;
  pass->ignored = node_attr_int(step->node, "ignore_index", -100);
  pass->smoothing = (double)node_attr_float(step->node, "label_smoothing", 0);
  cuda_class_pass_plan(pass);
}

/* A tensor of f32 or bf16 elements from `begin` on in an argument's bytes. */
static struct cuda_tensor part_of(const struct cuda_step *step, int arg, enum cuda_type type, int64_t begin) {
  struct cuda_tensor tensor = cuda_arg_tensor(step, arg);
  tensor.type = type;
  if (tensor.data)
    tensor.data = (char *)tensor.data + (size_t)begin * (type == CUDA_BF16 ? 2 : 4);
  return tensor;
}

/* What one chunk works on. */
struct chunk_run {
  struct backend_program *program;
  const struct cuda_step *step;
  const struct linear_step *own;
  const struct chunk *chunk;
  int64_t index, first; /* of the chunk; its first row */
  cudaStream_t stream;
};

/* io: without the workspace. */
static int chunk_multiply(const struct chunk_run *run, struct cuda_product *product,
                          struct cuda_product_io io, struct err *err) {
  io.workspace = cuda_arg_tensor(run->step, run->own->workspace).data;
  return cuda_product_enqueue(product, run->step->node, &io, run->stream, err);
}

/* scores -> their losses and gradient */
static void pass_over(const struct chunk_run *run, struct cuda_tensor dscores) {
  const struct linear_step *own = run->own;
  const struct cuda_step *step = run->step;
  struct cuda_class_pass pass = run->chunk->pass;
  pass.scores = part_of(step, own->scores, CUDA_F32, 0);
  pass.labels = cuda_arg_tensor(step, own->classes.labels);
  pass.labels.data = (int64_t *)pass.labels.data + run->first;
  pass.bias = cuda_arg_tensor(step, own->bias).data;
  pass.weights = cuda_arg_tensor(step, own->classes.weights).data;
  pass.sums = (double *)cuda_arg_tensor(step, own->classes.sums).data +
              run->index * own->full.pass.blocks * CLASS_SUMS;
  pass.first_row = run->first;
  if (has_gradient(step->node))
    pass.gradient = dscores;
  cuda_class_pass_launch(&pass, run->stream);
}

static void fold_bias(const struct chunk_run *run, struct cuda_tensor dscores) {
  const struct linear_step *own = run->own;
  struct cuda_fold fold = run->chunk->dbias.fold;
  fold.x = dscores;
  fold.out[0] = part_of(run->step, own->dbias_parts, CUDA_F32, run->index * own->sizes.classes);
  fold.partials = cuda_arg_tensor(run->step, run->chunk->dbias.partials).data;
  cuda_fold_launch(&fold, run->stream);
}

/* The gradients of hidden and of weight, of the part's classes. */
static int part_backward(const struct chunk_run *run, const struct part *part, struct err *err) {
  const struct linear_step *own = run->own;
  const struct cuda_step *step = run->step;
  int64_t begin = run->first * own->sizes.features, of_weight = part->first * own->sizes.features;
  const void *hidden = part_of(step, own->hidden, own->factor, begin).data;
  const void *dscores = part_of(step, own->dscores, own->factor, part->first).data;
  if (own->grads[LINEAR_HIDDEN] >= 0) {
    enum cuda_type type = step->args[own->grads[LINEAR_HIDDEN]].tensor.type;
    struct cuda_product_io io = {.a = dscores,
                                 .b = part_of(step, own->weight, own->factor, of_weight).data,
                                 .out = part_of(step, own->grads[LINEAR_HIDDEN], type, begin).data};
    if (chunk_multiply(run, part->dhidden, io, err))
      return err->code;
  }
  if (own->grads[LINEAR_WEIGHT] >= 0) {
    struct cuda_product_io io = {.a = own->sizes.is_transposed ? dscores : hidden,
                                 .b = own->sizes.is_transposed ? hidden : dscores,
                                 .out = part_of(step, own->grads[LINEAR_WEIGHT], CUDA_F32, of_weight).data};
    return chunk_multiply(run, run->index == 0 ? part->dweight : part->dweight_more, io, err);
  }
  return ERR_OK;
}

static int enqueue_chunk(const struct chunk_run *run, struct err *err) {
  const struct linear_step *own = run->own;
  const struct cuda_step *step = run->step;
  const void *hidden = part_of(step, own->hidden, own->factor, run->first * own->sizes.features).data;
  struct cuda_tensor dscores = part_of(step, own->dscores, own->factor, 0);
  for (int p = 0; p < own->n_parts; p++) {
    const struct part *part = &run->chunk->parts[p];
    struct cuda_product_io io = {
        .a = hidden,
        .b = part_of(step, own->weight, own->factor, part->first * own->sizes.features).data,
        .out = part_of(step, own->scores, CUDA_F32, part->first).data};
    if (chunk_multiply(run, part->scores, io, err))
      return err->code;
  }
  pass_over(run, dscores);
  for (int p = 0; p < own->n_parts; p++)
    if (part_backward(run, &run->chunk->parts[p], err))
      return err->code;
  if (own->grads[LINEAR_BIAS] >= 0)
    fold_bias(run, dscores);
  return cuda_check(step->node, cudaGetLastError(), "pass over scores", err);
}

static int enqueue_linear(struct backend_program *program, const struct cuda_step *step, cudaStream_t stream,
                          struct err *err) {
  const struct linear_step *own = step->details;
  int64_t blocks = 0;
  for (int64_t c = 0; c < own->chunks; c++) {
    const struct chunk *chunk = c == own->chunks - 1 && own->tail.rows ? &own->tail : &own->full;
    struct chunk_run run = {program, step, own, chunk, c, c * own->full.rows, stream};
    if (enqueue_chunk(&run, err))
      return err->code;
    blocks += chunk->pass.blocks;
  }
  if (own->grads[LINEAR_BIAS] >= 0 && cuda_folding_enqueue(&own->dbias, step, stream, err))
    return err->code;
  return cuda_class_step_sum(&own->classes, step, blocks, stream, err);
}

/* hidden, weight, bias, labels, class weights -> sums, dhidden, dweight, dbias */
static bool prepare_linear(struct backend_program *program, const struct node *node) {
  const struct graph *graph = cuda_view(program)->graph;
  struct linear_step *own = arena_new(cuda_view(program)->memory, sizeof *own);
  struct cuda_step *step;
  if (!linear_init(own, program, node))
    return false;
  step = cuda_step_new(program, node);
  own->hidden = cuda_read(program, step, node->inputs[LINEAR_HIDDEN], own->factor, CUDA_DENSE);
  own->weight = cuda_read(program, step, node->inputs[LINEAR_WEIGHT], own->factor, CUDA_DENSE);
  if (node_input(graph, node, LINEAR_BIAS))
    own->bias = cuda_read(program, step, node->inputs[LINEAR_BIAS], CUDA_F32, CUDA_DENSE);
  own->classes.labels = cuda_read(program, step, node->inputs[LINEAR_LABELS], CUDA_I64, CUDA_DENSE);
  if (node_input(graph, node, LINEAR_CLASS_WEIGHTS))
    own->classes.weights = cuda_read(program, step, node->inputs[LINEAR_CLASS_WEIGHTS], CUDA_F32, CUDA_DENSE);
  for (int o = 0; o < CLASS_ROWS_SUMS; o++)
    own->classes.out[o] = cuda_write_optional(program, step, o, CUDA_F32, CUDA_DENSE);
  for (int i = LINEAR_HIDDEN; i <= LINEAR_BIAS; i++)
    own->grads[i] = cuda_write_optional(program, step, LINEAR_GRADS + i,
                                        i == LINEAR_HIDDEN ? CUDA_ANY_TYPE : CUDA_F32, CUDA_DENSE);
  plan_pass(program, step, &own->full.pass);
  if (own->tail.rows)
    plan_pass(program, step, &own->tail.pass);
  add_scratch(program, step, own);
  if (own->grads[LINEAR_BIAS] >= 0)
    plan_bias(program, step, own);
  step->details = own;
  step->enqueue = enqueue_linear;
  cuda_step_end(program, step);
  return true;
}

const struct cuda_kernel cuda_kernel_linear_cross_entropy = {.op = "LinearCrossEntropy",
                                                             .prepare = prepare_linear};
