/* Convolutions by tiles. Forward takes windows and puts tiles. Its adjoints are the gradients: that of the
   input spreads tiles and gives windows, that of the weights takes windows, spreads tiles, and multiplies the
   two. */
#include "worker/backend/cpu/conv/tiled.h"

#include <string.h>

#include "worker/backend/cpu/conv/tiles.h"
#include "worker/backend/cpu/product.h"

/* Tiles of a range: what it needs is to stay in the cache, and what a product reads of the kernels is to be
   read for many. */
enum { RANGE_BYTES = 1 << 20, RANGE_LEAST = 128, RANGE_MOST = 512 };

/* Of a whole range, and of the last one, if that is smaller. */
enum { RANGE_WHOLE, RANGE_LAST, RANGE_KINDS };

struct tiled {
  const struct tile_transforms *by;
  dnnl_data_type_t type; /* of images, and of what products multiply */
  enum conv_way way;
  struct tiles in, out; /* windows are of the input; tiles belong to the output */
  struct kernels kernels;
  int64_t tiles, range;
  const struct cpu_product *products[RANGE_KINDS]; /* the gradient of the weights: they add to a sum ... */
  const struct cpu_product *first;                 /* ... which this one begins */
};

static int64_t range_of(int64_t tiles, int64_t bytes_each) {
  int64_t range = RANGE_BYTES / bytes_each / TILE_BLOCK * TILE_BLOCK;
  range = range < RANGE_LEAST ? RANGE_LEAST : range > RANGE_MOST ? RANGE_MOST : range;
  return range < tiles ? range : tiles;
}

static struct tiles tiles_of(const int64_t *image, const int64_t *tiled, const int64_t *pads) {
  return (struct tiles){.samples = image[0],
                        .channels = image[1],
                        .height = image[2],
                        .width = image[3],
                        .rows = (tiled[2] + TILE_SIDE - 1) / TILE_SIDE,
                        .columns = (tiled[3] + TILE_SIDE - 1) / TILE_SIDE,
                        .pad = {pads[0], pads[1]}};
}

static void tiled_init(struct tiled *t, bool is_bf16, enum conv_way way, const struct winograd_shape *shape) {
  static const int64_t no_pads[2];
  int is_five = shape->window->kernel[0] == 5;
  *t = (struct tiled){.by = is_bf16 ? &tiles_bf16[is_five] : &tiles_f32[is_five],
                      .type = is_bf16 ? dnnl_bf16 : dnnl_f32,
                      .way = way,
                      .in = tiles_of(shape->in, shape->out, shape->window->pads_begin),
                      .out = tiles_of(shape->out, shape->out, no_pads),
                      .kernels = {.out = shape->out[1], .in = shape->in[1]}};
  int64_t real = (int64_t)dnnl_data_type_size(t->type), of_sum = sizeof(float);
  t->tiles = t->out.samples * t->out.rows * t->out.columns;
  t->range = range_of(t->tiles, t->by->parts * (t->in.channels * (way == CONV_GRAD_INPUT ? of_sum : real) +
                                                t->out.channels * (way == CONV_FORWARD ? of_sum : real)));
}

/* [rows, parts, columns] */
static struct product_view part_view(const struct tiled *t, int64_t rows, int64_t columns) {
  return (struct product_view){rows, columns, columns, t->by->parts * columns, 1};
}

static bool range_products(struct backend_program *program, struct tiled *t, int kind, int64_t n) {
  int64_t in = t->kernels.in, out = t->kernels.out;
  int64_t from = t->way == CONV_FORWARD ? in : out, to = t->way == CONV_FORWARD ? out : in;
  struct cpu_product_shape shape = {.stack = t->by->parts,
                                    .a = part_view(t, n, from),
                                    .b = part_view(t, from, to),
                                    .out = part_view(t, n, to),
                                    .alpha = 1,
                                    .factors = t->type,
                                    .result = dnnl_f32};
  if (t->way == CONV_GRAD_WEIGHT) {
    shape.a = (struct product_view){out, n, out, 1, t->by->parts * out};
    shape.b = part_view(t, n, in);
    shape.out = part_view(t, out, in);
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
  tiled_init(t, program->is_bf16, way, shape);
  int64_t last = t->tiles % t->range;
  if (!range_products(program, t, RANGE_WHOLE, t->range) ||
      (last && !range_products(program, t, RANGE_LAST, last)))
    return NULL;
  return t;
}

/* The range that begins at tile `first`, and its product's kind. */
static struct tile_range range_at(const struct tiled *t, int64_t first, int *kind) {
  bool is_last = t->tiles - first < t->range;
  *kind = is_last ? RANGE_LAST : RANGE_WHOLE;
  return (struct tile_range){first, is_last ? t->tiles - first : t->range};
}

enum {
  IMAGE_FROM,
  IMAGE_WEIGHTS,
  IMAGE_TO,
  IMAGE_KERNELS,
  IMAGE_FACTORS,
  IMAGE_M,
  IMAGE_BIAS,
  IMAGE_SUMS = IMAGE_BIAS
};

/* Of a range: factors of the first image, and what their products make of the second one. */
static int run_range(struct backend_program *program, struct cpu_step *step, struct tile_range range,
                     const struct cpu_product *product, struct err *err) {
  const struct tiled *t = step->details;
  const void *from = step->args[IMAGE_FROM].data;
  void *factors = step->args[IMAGE_FACTORS].data, *to = step->args[IMAGE_TO].data;
  float *m = step->args[IMAGE_M].data;
  if (t->way == CONV_FORWARD)
    t->by->take(&t->in, range, from, factors);
  else
    t->by->spread(&t->out, range, from, factors);
  if (!cpu_product_run(program, product, factors, step->args[IMAGE_KERNELS].data, m))
    return node_error(step->node, err, ERR_INTERNAL, "oneDNN failed to multiply matrices");
  if (t->way == CONV_FORWARD)
    t->by->put(&t->out, range, m, step->n_args > IMAGE_BIAS ? step->args[IMAGE_BIAS].data : NULL, to);
  else
    t->by->give(&t->in, range, m, step->args[IMAGE_SUMS].data, to);
  return ERR_OK;
}

static int run_image(struct backend_program *program, struct cpu_step *step, const struct backend_run *run,
                     struct err *err) {
  const struct tiled *t = step->details;
  const float *weights = step->args[IMAGE_WEIGHTS].data;
  int kind, status = ERR_OK;
  (void)run;
  if (t->way == CONV_FORWARD)
    t->by->kernels_take(&t->kernels, weights, step->args[IMAGE_KERNELS].data);
  else {
    t->by->kernels_take_turned(&t->kernels, weights, step->args[IMAGE_KERNELS].data);
    memset(step->args[IMAGE_SUMS].data, 0, (size_t)tiles_sums(&t->in, t->by->kernel) * sizeof(float));
  }
  for (int64_t first = 0; first < t->tiles && status == ERR_OK; first += t->range) {
    struct tile_range range = range_at(t, first, &kind);
    status = run_range(program, step, range, t->products[kind], err);
  }
  return status;
}

static void parts_scratch(struct backend_program *program, struct cpu_step *step, int64_t rows,
                          int64_t columns, dnnl_data_type_t type) {
  const struct tiled *t = step->details;
  cpu_scratch(program, step, t->by->parts * rows * columns, type);
}

/* Forward: X, W, [B] -> Y; the gradient of the input: dY, W -> dX. */
static void image_step(struct backend_program *program, const struct node *node, struct tiled *t,
                       const dnnl_memory_desc_t *from, const dnnl_memory_desc_t *to) {
  struct cpu_step *step = cpu_step_new(program, node);
  bool is_forward = t->way == CONV_FORWARD;
  step->run = run_image;
  step->details = t;
  cpu_read(program, step, 0, node->inputs[0], from);
  cpu_read(program, step, 0, node->inputs[1], NULL);
  cpu_write(program, step, 0, node->outputs[0], to);
  parts_scratch(program, step, t->kernels.in, t->kernels.out, t->type);
  parts_scratch(program, step, t->range, is_forward ? t->in.channels : t->out.channels, t->type);
  parts_scratch(program, step, t->range, is_forward ? t->out.channels : t->in.channels, dnnl_f32);
  if (!is_forward)
    cpu_scratch(program, step, tiles_sums(&t->in, t->by->kernel), dnnl_f32);
  else if (node->n_inputs > 2 && node->inputs[2] >= 0)
    cpu_read(program, step, 0, node->inputs[2], NULL);
  cpu_step_end(program, step, NULL);
}

enum { WEIGHTS_DY, WEIGHTS_X, WEIGHTS_DW, WEIGHTS_W, WEIGHTS_V, WEIGHTS_SUM, WEIGHTS_DB };

static int run_weights(struct backend_program *program, struct cpu_step *step, const struct backend_run *run,
                       struct err *err) {
  const struct tiled *t = step->details;
  void *w = step->args[WEIGHTS_W].data, *v = step->args[WEIGHTS_V].data;
  float *sum = step->args[WEIGHTS_SUM].data;
  int kind;
  (void)run;
  for (int64_t first = 0; first < t->tiles; first += t->range) {
    struct tile_range range = range_at(t, first, &kind);
    t->by->take(&t->in, range, step->args[WEIGHTS_X].data, v);
    t->by->spread(&t->out, range, step->args[WEIGHTS_DY].data, w);
    if (!cpu_product_run(program, first > 0 ? t->products[kind] : t->first, w, v, sum))
      return node_error(step->node, err, ERR_INTERNAL, "oneDNN failed to multiply matrices");
  }
  t->by->kernels_put(&t->kernels, sum, step->args[WEIGHTS_DW].data);
  if (step->n_args > WEIGHTS_DB)
    t->by->sum(&t->out, step->args[WEIGHTS_DY].data, step->args[WEIGHTS_DB].data);
  return ERR_OK;
}

/* dY, X -> dW, [dB] */
static void weights_step(struct backend_program *program, const struct node *node, struct tiled *t,
                         const dnnl_memory_desc_t *x, const dnnl_memory_desc_t *dy) {
  struct cpu_step *step = cpu_step_new(program, node);
  step->run = run_weights;
  step->details = t;
  cpu_read(program, step, 0, node->inputs[0], dy);
  cpu_read(program, step, 0, node->inputs[1], x);
  cpu_write(program, step, 0, node->outputs[0], NULL);
  parts_scratch(program, step, t->range, t->out.channels, t->type);
  parts_scratch(program, step, t->range, t->in.channels, t->type);
  parts_scratch(program, step, t->kernels.in, t->kernels.out, dnnl_f32);
  if (node->n_outputs > 1 && node->outputs[1] >= 0)
    cpu_write(program, step, 0, node->outputs[1], NULL);
  cpu_step_end(program, step, NULL);
}

static bool has_isa(dnnl_cpu_isa_t isa) {
  return (dnnl_get_effective_cpu_isa() & isa) == isa;
}

/* Where tiles are computed: in f32 unless larger ones are asked for and pay; in bf16 unless the processor has
   AMX, by which it multiplies many times as fast, and transforms no faster. */
static bool is_taken(const struct backend_program *program, const struct node *node, enum conv_way way,
                     const struct winograd_shape *shape) {
  if (!program->is_bf16)
    return has_isa(dnnl_cpu_isa_avx512_core) && !(program->is_fast && winograd_pays(shape, way));
  if (has_isa(dnnl_cpu_isa_avx512_core_amx))
    return false;
  return way == CONV_GRAD_WEIGHT || cpu_type(program, node->outputs[0]) == dnnl_bf16;
}

bool tiled_prepare(struct backend_program *program, const struct node *node, enum conv_way way,
                   const struct winograd_shape *shape) {
  if (!is_taken(program, node, way, shape) || !winograd_pays_tiled(shape, way, program->is_bf16))
    return false;
  struct tiled *t = tiled_new(program, way, shape);
  if (!t)
    return false;
  dnnl_memory_desc_t in = layout_blocked(shape->in, t->type), out = layout_blocked(shape->out, t->type);
  if (way == CONV_FORWARD)
    image_step(program, node, t, &in, &out);
  else if (way == CONV_GRAD_INPUT)
    image_step(program, node, t, &out, &in);
  else
    weights_step(program, node, t, &in, &out);
  return true;
}
