/* Tensors in blocks of channels with tensors of their channels. */
#include "worker/backend/cpu/channels.h"

#include <string.h>

#include "model/ops/shared/elementwise.h"

enum { BLOCK_MAX = 16 };

/* The large tensor, f32[n, blocks, positions, block]: channels beyond `channels` are padding, which stays 0.
   The small one's strides: 0 where it is broadcast. */
struct channels {
  int64_t n, channels, blocks, positions, block;
  int64_t stride_n, stride_c, stride_p;
};

/* False unless the layout is n, blocks of channels, spatial dimensions, channels of the block. */
static bool channels_of_layout(const dnnl_memory_desc_t *layout, struct channels *of) {
  const dnnl_blocking_desc_t *blocking = &layout->format_desc.blocking;
  int64_t stride;
  if (layout->ndims < 3 || layout->format_kind != dnnl_blocked || blocking->inner_nblks != 1 ||
      blocking->inner_idxs[0] != 1 || (blocking->inner_blks[0] != 16 && blocking->inner_blks[0] != 8) ||
      layout->offset0 != 0)
    return false;
  *of = (struct channels){.n = layout->dims[0], .channels = layout->dims[1], .positions = 1};
  of->block = blocking->inner_blks[0];
  of->blocks = layout->padded_dims[1] / of->block;
  stride = of->block;
  for (int d = layout->ndims - 1; d >= 2; stride *= layout->dims[d], d--) {
    if (blocking->strides[d] != stride)
      return false;
    of->positions *= layout->dims[d];
  }
  return blocking->strides[1] == stride && (of->n == 1 || blocking->strides[0] == stride * of->blocks);
}

/* The small tensor's strides. False unless it belongs to the channels, to the positions or to whole samples.
 */
static bool channels_fit(struct channels *channels, const struct shape *large, const struct shape *small) {
  int64_t dims[RANK_MAX] = {0}, positions = 1;
  for (int d = 0; d < large->rank; d++) {
    int own = d - (large->rank - small->rank);
    dims[d] = own < 0 ? 1 : small->dim[own];
    positions *= d < 2 ? 1 : dims[d];
  }
  if (positions != 1 && (positions != channels->positions || dims[1] != 1))
    return false;
  channels->stride_p = positions != 1;
  channels->stride_c = dims[1] != 1 ? 1 : 0;
  channels->stride_n = dims[0] != 1 ? dims[1] * positions : 0;
  return true;
}

static bool channels_init(struct backend_program *program, int large, const struct shape *small,
                          struct channels *channels) {
  const struct value *value = &program->graph->values[large];
  dnnl_memory_desc_t layout = cpu_layout(program, large);
  return small->rank <= value->shape.rank && layout.ndims == value->shape.rank &&
         channels_of_layout(&layout, channels) && channels_fit(channels, &value->shape, small);
}

/* out = large op small in one block: small is positions[p] or, where that is NULL, lanes[l]. */
typedef void channels_op(const struct channels *channels, const float *large, const float *lanes,
                         const float *positions, float *out);

#define BLOCK_LOOP(block, small, expression)                                                                 \
  for (int64_t p = 0; p < channels->positions; p++)                                                          \
    ELEMENTWISE_FOR (l, block) {                                                                             \
      float x = large[p * (block) + l], s = small;                                                           \
      out[p * (block) + l] = expression;                                                                     \
    }

#define CHANNELS_OP(function, expression)                                                                    \
  static void function(const struct channels *channels, const float *large, const float *lanes,              \
                       const float *positions, float *out) {                                                 \
    if (positions && channels->block == 16)                                                                  \
      BLOCK_LOOP(16, positions[p], expression)                                                               \
    else if (positions)                                                                                      \
      BLOCK_LOOP(8, positions[p], expression)                                                                \
    else if (channels->block == 16)                                                                          \
      BLOCK_LOOP(16, lanes[l], expression)                                                                   \
    else                                                                                                     \
      BLOCK_LOOP(8, lanes[l], expression)                                                                    \
  }

CHANNELS_OP(add, x + s)
CHANNELS_OP(subtract, x - s)
CHANNELS_OP(subtract_from, s - x)
CHANNELS_OP(multiply, s *x)
CHANNELS_OP(divide, x / s)
CHANNELS_OP(divide_into, s / x)

/* By the op's name; [1]: where the second input is the large one. */
static const struct {
  const char *op;
  channels_op *function[2];
} channels_ops[] = {
    {"Add", {add, add}},
    {"Div", {divide, divide_into}},
    {"Mul", {multiply, multiply}},
    {"Sub", {subtract, subtract_from}},
};

struct broadcast_step {
  struct channels channels;
  channels_op *function;
};

static int64_t lanes_used(const struct channels *channels, int64_t block) {
  int64_t left = channels->channels - block * channels->block;
  return left < channels->block ? left : channels->block;
}

static void zero_padding(const struct channels *channels, int64_t used, float *out) {
  for (int64_t p = 0; p < channels->positions && used < channels->block; p++)
    memset(out + p * channels->block + used, 0, (size_t)(channels->block - used) * sizeof *out);
}

static int run_broadcast(struct backend_program *program, struct cpu_step *step,
                         const struct backend_run *run, struct err *err) {
  (void)program, (void)run, (void)err;
  const struct broadcast_step *details = step->details;
  const struct channels *channels = &details->channels;
  const float *large = step->args[0].data, *small = step->args[1].data;
  float *out = step->args[2].data;
  int64_t size = channels->positions * channels->block;
  for (int64_t n = 0; n < channels->n; n++)
    for (int64_t b = 0; b < channels->blocks; b++, large += size, out += size) {
      const float *of_block = small + n * channels->stride_n + b * channels->block * channels->stride_c;
      float lanes[BLOCK_MAX] = {0};
      int64_t used = lanes_used(channels, b);
      for (int64_t l = 0; l < used && !channels->stride_p; l++)
        lanes[l] = of_block[l * channels->stride_c];
      details->function(channels, large, lanes, channels->stride_p ? of_block : NULL, out);
      zero_padding(channels, used, out);
    }
  return ERR_OK;
}

bool channels_prepare_broadcast(struct backend_program *program, const struct node *node, int whole) {
  struct broadcast_step details = {0};
  int large = node->inputs[whole], small = node->inputs[!whole];
  if (!channels_init(program, large, &program->graph->values[small].shape, &details.channels))
    return false;
  for (size_t i = 0; i < sizeof channels_ops / sizeof channels_ops[0]; i++)
    if (strcmp(channels_ops[i].op, node->op->name) == 0)
      details.function = channels_ops[i].function[whole];
  CHECK(details.function);
  dnnl_memory_desc_t layout = cpu_layout(program, large);
  struct cpu_step *step = cpu_step_new(program, node);
  int x = cpu_read(program, step, 0, large, &layout);
  cpu_read(program, step, 0, small, NULL);
  cpu_write_over(program, step, 0, &layout, x);
  step->details = arena_copy(&program->memory, &details, sizeof details);
  step->run = run_broadcast;
  cpu_step_end(program, step, NULL);
  return true;
}

/* sums f64[block] += the positions of one block, some in f32 first. */
static void add_positions(const struct channels *channels, const float *x, double *sums) {
  enum { CHUNK = 128 };
  int64_t block = channels->block;
  for (int64_t begin = 0; begin < channels->positions; begin += CHUNK) {
    int64_t end = begin + CHUNK < channels->positions ? begin + CHUNK : channels->positions;
    float part[BLOCK_MAX] = {0};
    for (int64_t p = begin; p < end; p++)
      for (int64_t l = 0; l < block; l++)
        part[l] += x[p * block + l];
    for (int64_t l = 0; l < block; l++)
      sums[l] += part[l];
  }
}

static int run_sum(struct backend_program *program, struct cpu_step *step, const struct backend_run *run,
                   struct err *err) {
  (void)program, (void)run, (void)err;
  const struct channels *channels = step->details;
  const float *x = step->args[0].data;
  float *out = step->args[1].data;
  int64_t size = channels->positions * channels->block, rows = channels->stride_n ? channels->n : 1;
  for (int64_t row = 0; row < rows; row++)
    for (int64_t b = 0; b < channels->blocks; b++) {
      double sums[BLOCK_MAX] = {0};
      for (int64_t n = row; n < (channels->stride_n ? row + 1 : channels->n); n++)
        add_positions(channels, x + (n * channels->blocks + b) * size, sums);
      for (int64_t l = 0; l < lanes_used(channels, b); l++)
        out[row * channels->channels + b * channels->block + l] = (float)sums[l];
    }
  return ERR_OK;
}

bool channels_prepare_sum(struct backend_program *program, const struct node *node) {
  struct channels channels;
  const struct shape *out = &node_output(program->graph, node, 0)->shape;
  if (!channels_init(program, node->inputs[0], out, &channels) || channels.stride_p ||
      (!channels.stride_c && channels.channels != 1))
    return false;
  dnnl_memory_desc_t layout = cpu_layout(program, node->inputs[0]);
  struct cpu_step *step = cpu_step_new(program, node);
  cpu_read(program, step, 0, node->inputs[0], &layout);
  cpu_write(program, step, 0, node->outputs[0], NULL);
  step->details = arena_copy(&program->memory, &channels, sizeof channels);
  step->run = run_sum;
  cpu_step_end(program, step, NULL);
  return true;
}
