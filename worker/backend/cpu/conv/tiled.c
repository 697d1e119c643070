/* Convolutions by tiles: forward and the gradient of the input are one computation, of which the second has
   its kernels turned about; the gradient of the weights is the adjoint. */
#include "worker/backend/cpu/conv/tiled.h"

#include "worker/backend/cpu/conv/tiles.h"
#include "worker/backend/cpu/product.h"

/* Tiles of a range: what it needs is to stay in the cache, and what a product reads of the kernels is to be
   read for many. */
enum { RANGE_BYTES = 1 << 20, RANGE_LEAST = 128, RANGE_MOST = 512 };

/* Of a whole range, and of the last one, if that is smaller. */
enum { RANGE_WHOLE, RANGE_LAST, RANGE_KINDS };

struct tiled {
  struct tiles from, to; /* windows are taken from one image; tiles belong to the other */
  struct kernels kernels;
  bool is_turned; /* the gradient of the input */
  int64_t tiles, range;
  const struct cpu_product *products[RANGE_KINDS]; /* the gradient of the weights: they add to a sum ... */
  const struct cpu_product *first;                 /* ... which this one begins */
};

static int64_t range_of(int64_t tiles, int64_t bytes_each) {
  int64_t range = RANGE_BYTES / bytes_each / TILE_BLOCK * TILE_BLOCK;
  range = range < RANGE_LEAST ? RANGE_LEAST : range > RANGE_MOST ? RANGE_MOST : range;
  return range < tiles ? range : tiles;
}

static struct tiles tiles_of(const int64_t *image, const int64_t *tiled, int64_t pad_row,
                             int64_t pad_column) {
  return (struct tiles){.samples = image[0],
                        .channels = image[1],
                        .height = image[2],
                        .width = image[3],
                        .rows = (tiled[2] + TILE_SIDE - 1) / TILE_SIDE,
                        .columns = (tiled[3] + TILE_SIDE - 1) / TILE_SIDE,
                        .pad = {pad_row, pad_column}};
}

static void tiled_init(struct tiled *t, enum conv_way way, const struct winograd_shape *shape) {
  const int64_t *pads = shape->window->pads_begin;
  enum { REACH = 2 }; /* of a kernel, beyond the element where it begins */
  *t = (struct tiled){.kernels = {.out = shape->out[1], .in = shape->in[1]},
                      .is_turned = way == CONV_GRAD_INPUT};
  if (t->is_turned) {
    t->from = tiles_of(shape->out, shape->in, REACH - pads[0], REACH - pads[1]);
    t->to = tiles_of(shape->in, shape->in, 0, 0);
  } else {
    t->from = tiles_of(shape->in, shape->out, pads[0], pads[1]);
    t->to = tiles_of(shape->out, shape->out, 0, 0);
  }
  t->tiles = t->to.samples * t->to.rows * t->to.columns;
  int64_t sums = way == CONV_GRAD_WEIGHT ? sizeof(uint16_t) : sizeof(float);
  t->range =
      range_of(t->tiles, TILE_PARTS * (t->from.channels * (int64_t)sizeof(uint16_t) + t->to.channels * sums));
}

/* f32 or bf16[rows, TILE_PARTS, columns] */
static struct product_view part_view(int64_t rows, int64_t columns) {
  return (struct product_view){rows, columns, columns, TILE_PARTS * columns, 1};
}

static bool range_products(struct backend_program *program, struct tiled *t, enum conv_way way, int kind,
                           int64_t n) {
  int64_t in = t->from.channels, out = t->to.channels;
  struct cpu_product_shape shape = {
      TILE_PARTS, part_view(n, in), part_view(in, out), part_view(n, out), 1, false, dnnl_bf16, dnnl_f32};
  if (way == CONV_GRAD_WEIGHT) {
    shape.a = (struct product_view){out, n, out, 1, TILE_PARTS * out};
    shape.b = part_view(n, in);
    shape.out = part_view(out, in);
    if (kind == RANGE_WHOLE && !(t->first = cpu_product_new(program, &shape)))
      return false;
    shape.adds = true;
  }
  t->products[kind] = cpu_product_new(program, &shape);
  return t->products[kind] != NULL;
}

static struct tiled *tiled_new(struct backend_program *program, enum conv_way way,
                               const struct winograd_shape *shape) {
  struct tiled *t = arena_new(&program->memory, sizeof *t);
  tiled_init(t, way, shape);
  int64_t last = t->tiles % t->range;
  if (!range_products(program, t, way, RANGE_WHOLE, t->range) ||
      (last && !range_products(program, t, way, RANGE_LAST, last)))
    return NULL;
  return t;
}

/* The range that begins at tile `first`, and its product's kind. */
static struct tile_range range_at(const struct tiled *t, int64_t first, int *kind) {
  bool is_last = t->tiles - first < t->range;
  *kind = is_last ? RANGE_LAST : RANGE_WHOLE;
  return (struct tile_range){first, is_last ? t->tiles - first : t->range};
}

enum { IMAGE_FROM, IMAGE_WEIGHTS, IMAGE_TO, IMAGE_KERNELS, IMAGE_V, IMAGE_M, IMAGE_BIAS };

static int run_image(struct backend_program *program, struct cpu_step *step, const struct backend_run *run,
                     struct err *err) {
  const struct tiled *t = step->details;
  uint16_t *u = step->args[IMAGE_KERNELS].data, *v = step->args[IMAGE_V].data;
  const float *bias = step->n_args > IMAGE_BIAS ? step->args[IMAGE_BIAS].data : NULL;
  int kind;
  (void)run;
  if (t->is_turned)
    kernels_take_turned(&t->kernels, step->args[IMAGE_WEIGHTS].data, u);
  else
    kernels_take(&t->kernels, step->args[IMAGE_WEIGHTS].data, u);
  for (int64_t first = 0; first < t->tiles; first += t->range) {
    struct tile_range range = range_at(t, first, &kind);
    tiles_take(&t->from, range, step->args[IMAGE_FROM].data, v);
    if (!cpu_product_run(program, t->products[kind], v, u, step->args[IMAGE_M].data))
      return node_error(step->node, err, ERR_INTERNAL, "oneDNN failed to multiply matrices");
    tiles_put(&t->to, range, step->args[IMAGE_M].data, bias, step->args[IMAGE_TO].data);
  }
  return ERR_OK;
}

static void parts_scratch(struct backend_program *program, struct cpu_step *step, int64_t rows,
                          int64_t columns, dnnl_data_type_t type) {
  cpu_scratch(program, step, TILE_PARTS * rows * columns, type);
}

/* Forward: X, W, [B] -> Y; the gradient of the input: dY, W -> dX. */
static void image_step(struct backend_program *program, const struct node *node, struct tiled *t,
                       const dnnl_memory_desc_t *from, const dnnl_memory_desc_t *to) {
  struct cpu_step *step = cpu_step_new(program, node);
  step->run = run_image;
  step->details = t;
  cpu_read(program, step, 0, node->inputs[0], from);
  cpu_read(program, step, 0, node->inputs[1], NULL);
  cpu_write(program, step, 0, node->outputs[0], to);
  parts_scratch(program, step, t->kernels.in, t->kernels.out, dnnl_bf16);
  parts_scratch(program, step, t->range, t->from.channels, dnnl_bf16);
  parts_scratch(program, step, t->range, t->to.channels, dnnl_f32);
  if (node->n_inputs > 2 && node->inputs[2] >= 0)
    cpu_read(program, step, 0, node->inputs[2], NULL);
  cpu_step_end(program, step, NULL);
}

enum { WEIGHTS_DY, WEIGHTS_X, WEIGHTS_DW, WEIGHTS_W, WEIGHTS_V, WEIGHTS_SUM };

static int run_weights(struct backend_program *program, struct cpu_step *step, const struct backend_run *run,
                       struct err *err) {
  const struct tiled *t = step->details;
  uint16_t *w = step->args[WEIGHTS_W].data, *v = step->args[WEIGHTS_V].data;
  float *sum = step->args[WEIGHTS_SUM].data;
  int kind;
  (void)run;
  for (int64_t first = 0; first < t->tiles; first += t->range) {
    struct tile_range range = range_at(t, first, &kind);
    tiles_take(&t->from, range, step->args[WEIGHTS_X].data, v);
    tiles_spread(&t->to, range, step->args[WEIGHTS_DY].data, w);
    if (!cpu_product_run(program, first > 0 ? t->products[kind] : t->first, w, v, sum))
      return node_error(step->node, err, ERR_INTERNAL, "oneDNN failed to multiply matrices");
  }
  kernels_put(&t->kernels, sum, step->args[WEIGHTS_DW].data);
  return ERR_OK;
}

/* dY, X -> dW */
static void weights_step(struct backend_program *program, const struct node *node, struct tiled *t,
                         const dnnl_memory_desc_t *x, const dnnl_memory_desc_t *dy) {
  struct cpu_step *step = cpu_step_new(program, node);
  step->run = run_weights;
  step->details = t;
  cpu_read(program, step, 0, node->inputs[0], dy);
  cpu_read(program, step, 0, node->inputs[1], x);
  cpu_write(program, step, 0, node->outputs[0], NULL);
  parts_scratch(program, step, t->range, t->to.channels, dnnl_bf16);
  parts_scratch(program, step, t->range, t->from.channels, dnnl_bf16);
  parts_scratch(program, step, t->kernels.in, t->kernels.out, dnnl_f32);
  cpu_step_end(program, step, NULL);
}

/* Processors with AMX multiply many times as fast, and transform no faster. */
static bool has_amx(void) {
  return (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_amx) == dnnl_cpu_isa_avx512_core_amx;
}

/* Images are to be bf16; of a gradient of a bias oneDNN's kernels take care. */
static bool is_taken(const struct backend_program *program, const struct node *node, enum conv_way way) {
  if (!program->is_bf16 || has_amx())
    return false;
  if (way == CONV_GRAD_WEIGHT)
    return node->n_outputs < 2 || node->outputs[1] < 0;
  return cpu_type(program, node->outputs[0]) == dnnl_bf16;
}

bool tiled_prepare(struct backend_program *program, const struct node *node, enum conv_way way,
                   const struct winograd_shape *shape) {
  if (!is_taken(program, node, way) || !winograd_pays_half(shape, way))
    return false;
  struct tiled *t = tiled_new(program, way, shape);
  if (!t)
    return false;
  dnnl_memory_desc_t in = layout_blocked(shape->in, dnnl_bf16), out = layout_blocked(shape->out, dnnl_bf16);
  if (way == CONV_GRAD_WEIGHT)
    weights_step(program, node, t, &in, &out);
  else
    image_step(program, node, t, t->is_turned ? &out : &in, t->is_turned ? &in : &out);
  return true;
}
