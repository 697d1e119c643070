/* Ops that only move elements: Transpose, Concat, Split, Slice, Tile, Compress, DepthToSpace and their
   gradients, as copies between strided tensors. They work in the layout and the type that their input has. */
#include "worker/backend/cuda/moves/moves.h"

#include <string.h>

#include "model/ops/compress.h"
#include "model/ops/slice.h"
#include "worker/backend/cuda/moves/copy.h"

struct move {
  int from, to; /* arguments of the step; from -1: `to` is filled with zeros */
  struct cuda_copy copy;
};

struct moves {
  int n;
  struct move move[];
};

/* A step of up to `n` moves. usage: moves_new, cuda_read and cuda_write, moves_add, moves_end. */
static struct cuda_step *moves_new(struct backend_program *program, const struct node *node, int n) {
  struct cuda_step *step = cuda_step_new(program, node);
  size_t size = sizeof(struct moves) + (size_t)n * sizeof(struct move);
  step->details = arena_new(cuda_view(program)->memory, size);
  return step;
}

/* The copy of another move, whose dimensions are the caller's to add. */
static struct cuda_copy *moves_add(struct cuda_step *step, int from, int to) {
  struct moves *moves = step->details;
  struct move *move = &moves->move[moves->n++];
  move->from = from;
  move->to = to;
  move->copy.element = cuda_element(step->args[to].tensor.type);
  return &move->copy;
}

static void moves_add_zeros(struct cuda_step *step, int to) {
  moves_add(step, -1, to);
}

static int enqueue_copies(struct backend_program *program, const struct cuda_step *step, cudaStream_t stream,
                          struct err *err) {
  const struct moves *moves = step->details;
  (void)program;
  for (int m = 0; m < moves->n; m++) {
    const struct move *move = &moves->move[m];
    const struct cuda_tensor *to = &step->args[move->to].tensor;
    if (move->from < 0)
      cuda_fill_launch(to->data, to->elems, cuda_element(to->type), 0, stream);
    else
      cuda_copy_launch(&move->copy, step->args[move->from].tensor.data, to->data, stream);
  }
  return cuda_check(step->node, cudaGetLastError(), "start a copy", err);
}

static void moves_end(struct backend_program *program, struct cuda_step *step) {
  struct moves *moves = step->details;
  for (int m = 0; m < moves->n; m++)
    if (moves->move[m].from >= 0)
      cuda_copy_settle(&moves->move[m].copy);
  step->enqueue = enqueue_copies;
  cuda_step_end(program, step);
}

enum cuda_layout moves_layout(const struct backend_program *program, const struct node *node) {
  const struct graph *graph = cuda_view(program)->graph;
  int rank = node_output(graph, node, 0)->shape.rank;
  bool is_same_rank = node_input(graph, node, 0)->shape.rank == rank;
  return is_same_rank && rank >= 3 && rank <= 5 ? cuda_layout_of(program, node->inputs[0]) : CUDA_DENSE;
}

/* Dimension d of the result is dimension perm[d] of the input, whatever the input's layout. Keys of attention
   are left with the elements of each side by side, if they are so in the input. */
static bool prepare_transpose(struct backend_program *program, const struct node *node) {
  struct cuda_step *step = moves_new(program, node, 1);
  const struct attr *perm = node_attr(node, "perm");
  int x = cuda_read(program, step, node->inputs[0], CUDA_ANY_TYPE, CUDA_ANY_LAYOUT);
  int rank = step->args[x].tensor.rank;
  bool is_run = perm && rank >= 2 && cuda_stride(&step->args[x].tensor, (int)perm->ints[rank - 2]) == 1;
  bool is_key = is_run && cuda_attention_wants_turned(program, node->outputs[0]);
  int y = cuda_write(program, step, node->outputs[0], step->args[x].tensor.type,
                     is_key ? CUDA_TURNED : CUDA_DENSE);
  struct cuda_copy *copy = moves_add(step, x, y);
  const struct cuda_tensor *from = &step->args[x].tensor, *to = &step->args[y].tensor;
  for (int d = 0; d < to->rank; d++)
    cuda_copy_dim(copy, to->dim[d], cuda_stride(from, perm ? (int)perm->ints[d] : to->rank - 1 - d),
                  cuda_stride(to, d));
  moves_end(program, step);
  return true;
}

/* All of the smaller tensor, which begins at `begin` along an axis of the larger one. */
static void copy_part(struct cuda_step *step, int from, int to, int axis, int64_t begin) {
  struct cuda_copy *copy = moves_add(step, from, to);
  const struct cuda_tensor *x = &step->args[from].tensor, *y = &step->args[to].tensor;
  bool is_joining = y->dim[axis] > x->dim[axis];
  for (int d = 0; d < x->rank; d++)
    cuda_copy_dim(copy, is_joining ? x->dim[d] : y->dim[d], cuda_stride(x, d), cuda_stride(y, d));
  if (is_joining)
    copy->to_begin = begin * cuda_stride(y, axis);
  else
    copy->from_begin = begin * cuda_stride(x, axis);
}

static int axis_of(const struct node *node, int rank, int64_t otherwise) {
  int64_t axis = node_attr_int(node, "axis", otherwise);
  return (int)(axis < 0 ? axis + rank : axis);
}

/* The inputs' type, if it is one; else f32. */
static enum cuda_type common_type(const struct backend_program *program, const struct node *node) {
  enum cuda_type type = cuda_type_of(program, node->inputs[0]);
  for (int i = 1; i < node->n_inputs; i++)
    if (cuda_type_of(program, node->inputs[i]) != type)
      return CUDA_F32;
  return type;
}

static bool prepare_concat(struct backend_program *program, const struct node *node) {
  enum cuda_type type = common_type(program, node);
  enum cuda_layout layout = moves_layout(program, node);
  struct cuda_step *step = moves_new(program, node, node->n_inputs);
  int64_t at = 0;
  for (int i = 0; i < node->n_inputs; i++)
    cuda_read(program, step, node->inputs[i], type, layout);
  int y = cuda_write(program, step, node->outputs[0], type, layout);
  int axis = axis_of(node, step->args[y].tensor.rank, 0);
  for (int i = 0; i < node->n_inputs; i++) {
    copy_part(step, i, y, axis, at);
    at += step->args[i].tensor.dim[axis];
  }
  moves_end(program, step);
  return true;
}

static bool prepare_split(struct backend_program *program, const struct node *node) {
  const struct graph *graph = cuda_view(program)->graph;
  enum cuda_layout layout = moves_layout(program, node);
  struct cuda_step *step = moves_new(program, node, node->n_outputs);
  int x = cuda_read(program, step, node->inputs[0], CUDA_ANY_TYPE, layout);
  int axis = axis_of(node, step->args[x].tensor.rank, 0);
  int64_t at = 0;
  for (int o = 0; o < node->n_outputs; o++) {
    if (node->outputs[o] < 0)
      continue;
    int y = cuda_write(program, step, node->outputs[o], step->args[x].tensor.type, layout);
    copy_part(step, x, y, axis, at);
    at += node_output(graph, node, o)->shape.dim[axis];
  }
  moves_end(program, step);
  return true;
}

/* The elements of a slice, between `whole` and a tensor of them alone. Places in a result are walked upwards.
 */
static void copy_slice(struct cuda_step *step, int from, int to, const struct slice *slice, bool is_back) {
  struct cuda_copy *copy = moves_add(step, from, to);
  const struct cuda_tensor *whole = &step->args[is_back ? to : from].tensor;
  const struct cuda_tensor *part = &step->args[is_back ? from : to].tensor;
  for (int d = 0; d < whole->rank; d++) {
    int64_t n = slice->out.dim[d], stride = slice->step[d] * cuda_stride(whole, d),
            dense = cuda_stride(part, d);
    int64_t begin = slice->start[d] * cuda_stride(whole, d);
    if (is_back && stride < 0) {
      begin += (n - 1) * stride;
      copy->from_begin += (n - 1) * dense;
      cuda_copy_dim(copy, n, -dense, -stride);
    } else {
      cuda_copy_dim(copy, n, is_back ? dense : stride, is_back ? stride : dense);
    }
    *(is_back ? &copy->to_begin : &copy->from_begin) += begin;
  }
}

static bool prepare_slice(struct backend_program *program, const struct node *node) {
  const struct graph *graph = cuda_view(program)->graph;
  enum cuda_layout layout = moves_layout(program, node);
  struct err err = ERR_NONE;
  struct slice slice;
  if (slice_read(graph, node, &node_input(graph, node, 0)->shape, &slice, &err))
    return false;
  struct cuda_step *step = moves_new(program, node, 1);
  int x = cuda_read(program, step, node->inputs[0], CUDA_ANY_TYPE, layout);
  int y = cuda_write(program, step, node->outputs[0], step->args[x].tensor.type, layout);
  copy_slice(step, x, y, &slice, false);
  moves_end(program, step);
  return true;
}

static bool prepare_slice_grad(struct backend_program *program, const struct node *node) {
  const struct graph *graph = cuda_view(program)->graph;
  enum cuda_layout layout = moves_layout(program, node);
  struct err err = ERR_NONE;
  struct slice slice;
  struct shape whole;
  if (slice_grad_read(node, &node_input(graph, node, 0)->shape, &slice, &whole, &err))
    return false;
  struct cuda_step *step = moves_new(program, node, 2);
  int dy = cuda_read(program, step, node->inputs[0], CUDA_ANY_TYPE, layout);
  int dx = cuda_write(program, step, node->outputs[0], step->args[dy].tensor.type, layout);
  moves_add_zeros(step, dx);
  copy_slice(step, dy, dx, &slice, true);
  moves_end(program, step);
  return true;
}

static bool prepare_tile(struct backend_program *program, const struct node *node) {
  struct cuda_step *step = moves_new(program, node, 1);
  int x = cuda_read(program, step, node->inputs[0], CUDA_ANY_TYPE, CUDA_DENSE);
  int y = cuda_write(program, step, node->outputs[0], step->args[x].tensor.type, CUDA_DENSE);
  struct cuda_copy *copy = moves_add(step, x, y);
  const struct cuda_tensor *from = &step->args[x].tensor, *to = &step->args[y].tensor;
  for (int d = 0; d < from->rank; d++) {
    cuda_copy_dim(copy, to->dim[d] / from->dim[d], 0, cuda_stride(to, d) * from->dim[d]);
    cuda_copy_dim(copy, from->dim[d], cuda_stride(from, d), cuda_stride(to, d));
  }
  moves_end(program, step);
  return true;
}

/* Entries that are picked side by side are one copy. */
static bool prepare_compress(struct backend_program *program, const struct node *node) {
  struct err err = ERR_NONE;
  struct compress c;
  if (compress_read(cuda_view(program)->graph, node, &c, &err))
    return false;
  struct cuda_step *step = moves_new(program, node, (int)c.count);
  int x = cuda_read(program, step, node->inputs[0], CUDA_ANY_TYPE, CUDA_DENSE);
  int y = cuda_write(program, step, node->outputs[0], step->args[x].tensor.type, CUDA_DENSE);
  for (int64_t begin = 0, end, at = 0; begin < c.length; begin = end + 1) {
    for (end = begin; end < c.length && c.condition[end]; end++)
      ;
    if (end == begin)
      continue;
    struct cuda_copy *copy = moves_add(step, x, y);
    cuda_copy_dim(copy, c.outer, c.n * c.inner, c.count * c.inner);
    cuda_copy_dim(copy, (end - begin) * c.inner, 1, 1);
    copy->from_begin = begin * c.inner;
    copy->to_begin = at * c.inner;
    at += end - begin;
  }
  moves_end(program, step);
  return true;
}

/* A dimension of the deep tensor [n,c*b*b,h,w] and of the wide one [n,c,h*b,w*b]. */
static void copy_block_dim(struct cuda_copy *copy, bool is_back, int64_t dim, int64_t deep, int64_t wide) {
  cuda_copy_dim(copy, dim, is_back ? wide : deep, is_back ? deep : wide);
}

/* deep -> wide; or back. With mode CRD the block's places are the innermost of the deep channels. */
static bool prepare_blocks(struct backend_program *program, const struct node *node, bool is_back) {
  bool is_crd = strcmp(node_attr_string(node, "mode", "DCR"), "CRD") == 0;
  enum cuda_layout layout = moves_layout(program, node);
  struct cuda_step *step = moves_new(program, node, 1);
  int x = cuda_read(program, step, node->inputs[0], CUDA_ANY_TYPE, layout);
  int y = cuda_write(program, step, node->outputs[0], step->args[x].tensor.type, layout);
  struct cuda_copy *copy = moves_add(step, x, y);
  const struct cuda_tensor *deep = &step->args[is_back ? y : x].tensor;
  const struct cuda_tensor *wide = &step->args[is_back ? x : y].tensor;
  int64_t b = node_attr_int(node, "blocksize", 1), c = wide->dim[1], channel = cuda_stride(deep, 1);
  int64_t row = cuda_stride(wide, 2), column = cuda_stride(wide, 3);
  copy_block_dim(copy, is_back, deep->dim[0], cuda_stride(deep, 0), cuda_stride(wide, 0));
  copy_block_dim(copy, is_back, c, is_crd ? b * b * channel : channel, cuda_stride(wide, 1));
  copy_block_dim(copy, is_back, b, is_crd ? b * channel : b * c * channel, row);
  copy_block_dim(copy, is_back, b, is_crd ? channel : c * channel, column);
  copy_block_dim(copy, is_back, deep->dim[2], cuda_stride(deep, 2), b * row);
  copy_block_dim(copy, is_back, deep->dim[3], cuda_stride(deep, 3), b * column);
  moves_end(program, step);
  return true;
}

static bool prepare_depth_to_space(struct backend_program *program, const struct node *node) {
  return prepare_blocks(program, node, false);
}

static bool prepare_space_to_depth(struct backend_program *program, const struct node *node) {
  return prepare_blocks(program, node, true);
}

const struct cuda_kernel cuda_kernel_compress = {.op = "Compress", .prepare = prepare_compress};
const struct cuda_kernel cuda_kernel_concat = {.op = "Concat", .prepare = prepare_concat};
const struct cuda_kernel cuda_kernel_depth_to_space = {.op = "DepthToSpace",
                                                       .prepare = prepare_depth_to_space};
const struct cuda_kernel cuda_kernel_depth_to_space_grad = {.op = "DepthToSpaceGrad",
                                                            .prepare = prepare_space_to_depth};
const struct cuda_kernel cuda_kernel_slice = {.op = "Slice", .prepare = prepare_slice};
const struct cuda_kernel cuda_kernel_slice_grad = {.op = "SliceGrad", .prepare = prepare_slice_grad};
const struct cuda_kernel cuda_kernel_space_to_depth = {.op = "SpaceToDepth",
                                                       .prepare = prepare_space_to_depth};
const struct cuda_kernel cuda_kernel_split = {.op = "Split", .prepare = prepare_split};
const struct cuda_kernel cuda_kernel_tile = {.op = "Tile", .prepare = prepare_tile, .settings = 1};
const struct cuda_kernel cuda_kernel_transpose = {.op = "Transpose", .prepare = prepare_transpose};
