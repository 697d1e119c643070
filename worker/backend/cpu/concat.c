/* Concat and Split along the batch or the channels in blocked layouts, and of dense tensors in bf16. Where no
   block of channels is cut, a part lies in the whole as it does in dense tensors: one run for each image, or
   one in all along the batch. Dense tensors in f32 are left to the reference kernels, which copy the same
   runs. */
#include <string.h>

#include "worker/backend/cpu/cpu.h"

struct parts {
  int n, axis;
  int64_t runs, whole; /* how many runs there are, and bytes of the whole in each */
  int64_t *part;       /* [n] bytes of each part in a run */
};

/* args: the parts, then the whole */
static void copy_runs(const struct cpu_step *step, bool is_split) {
  const struct parts *parts = step->details;
  char *at = step->args[parts->n].data;
  for (int i = 0; i < parts->n; at += parts->part[i++])
    for (int64_t r = 0; r < parts->runs; r++) {
      char *part = (char *)step->args[i].data + r * parts->part[i], *whole = at + r * parts->whole;
      memcpy(is_split ? part : whole, is_split ? whole : part, (size_t)parts->part[i]);
    }
}

static int run_concat(struct backend_program *program, struct cpu_step *step, const struct backend_run *run,
                      struct err *err) {
  (void)program, (void)run, (void)err;
  copy_runs(step, false);
  return ERR_OK;
}

static int run_split(struct backend_program *program, struct cpu_step *step, const struct backend_run *run,
                     struct err *err) {
  (void)program, (void)run, (void)err;
  copy_runs(step, true);
  return ERR_OK;
}

/* What the n values `parts` are of the value `whole`. */
static struct parts *parts_new(struct backend_program *program, const struct node *node, int whole,
                               const int *values, int n) {
  const struct graph *graph = program->graph;
  const struct shape *shape = &graph->values[whole].shape;
  struct parts *parts = arena_new(&program->memory, sizeof *parts);
  int64_t axis = node_attr_int(node, "axis", 0);
  axis += axis < 0 ? shape->rank : 0;
  *parts = (struct parts){.n = n, .axis = (int)axis, .runs = 1};
  for (int d = 0; d < axis; d++)
    parts->runs *= shape->dim[d];
  parts->whole = shape_elems(shape) / parts->runs;
  parts->part = arena_new(&program->memory, (size_t)n * sizeof *parts->part);
  for (int i = 0; i < n; i++)
    parts->part[i] = shape_elems(&graph->values[values[i]].shape) / parts->runs;
  return parts;
}

/* Layouts have the type from here on, and runs are counted in bytes. */
static void parts_set_type(struct parts *parts, dnnl_data_type_t type, dnnl_memory_desc_t *whole,
                           dnnl_memory_desc_t *layouts) {
  int64_t size_bytes = type == dnnl_bf16 ? 2 : 4;
  parts->whole *= size_bytes;
  whole->data_type = type;
  for (int i = 0; i < parts->n; i++) {
    parts->part[i] *= size_bytes;
    layouts[i].data_type = type;
  }
}

static void dense_layouts(const struct backend_program *program, const int *values, int n,
                          dnnl_memory_desc_t *layouts) {
  for (int i = 0; i < n; i++)
    layouts[i] = layout_of_shape(&program->graph->values[values[i]].shape);
}

/* The parts' layouts in the way that the whole's is blocked; false if one of them would cut a block. */
static bool layouts_of_parts(struct backend_program *program, const dnnl_memory_desc_t *whole,
                             const int *values, int n, dnnl_memory_desc_t *layouts) {
  for (int i = 0; i < n; i++) {
    const struct shape *shape = &program->graph->values[values[i]].shape;
    if (!layout_blocked_like(whole, shape->rank, shape->dim, &layouts[i]))
      return false;
  }
  return true;
}

/* The whole blocked as most of its elements are already; false if they are not blocked. */
static bool layout_of_whole(struct backend_program *program, const struct node *node,
                            dnnl_memory_desc_t *layout) {
  const struct shape *out = &node_output(program->graph, node, 0)->shape;
  int64_t blocked = 0;
  for (int i = 0; i < node->n_inputs; i++) {
    dnnl_memory_desc_t part = cpu_layout(program, node->inputs[i]), like;
    if (!layout_blocked_like(&part, out->rank, out->dim, &like))
      continue;
    if (blocked == 0)
      *layout = like;
    blocked += shape_elems(&node_input(program->graph, node, i)->shape);
  }
  return blocked > 0 && 2 * blocked >= shape_elems(out);
}

/* bf16 if all parts were produced in it. */
static dnnl_data_type_t concat_type(struct backend_program *program, const struct node *node) {
  for (int i = 0; i < node->n_inputs; i++)
    if (cpu_produced_type(program, node->inputs[i]) != dnnl_bf16)
      return dnnl_f32;
  return cpu_type(program, node->outputs[0]);
}

/* X1, ..., Xn -> Y */
static bool prepare_concat(struct backend_program *program, const struct node *node) {
  dnnl_memory_desc_t whole, layouts[OP_INPUTS_MAX];
  int n = node->n_inputs;
  struct parts *parts = parts_new(program, node, node->outputs[0], node->inputs, n);
  dnnl_data_type_t type = concat_type(program, node);
  if (parts->axis > 1 || !layout_of_whole(program, node, &whole) ||
      !layouts_of_parts(program, &whole, node->inputs, n, layouts)) {
    dense_layouts(program, node->outputs, 1, &whole);
    dense_layouts(program, node->inputs, n, layouts);
    if (type == dnnl_f32)
      return false;
  }
  parts_set_type(parts, type, &whole, layouts);
  struct cpu_step *step = cpu_step_new(program, node);
  step->run = run_concat;
  step->details = parts;
  for (int i = 0; i < n; i++)
    cpu_read(program, step, 0, node->inputs[i], &layouts[i]);
  cpu_write(program, step, 0, node->outputs[0], &whole);
  cpu_step_end(program, step, NULL);
  return true;
}

/* bf16 if the whole was produced in it, and no part is to be exact. */
static dnnl_data_type_t split_type(struct backend_program *program, const struct node *node) {
  for (int i = 0; i < node->n_outputs; i++)
    if (cpu_type(program, node->outputs[i]) != dnnl_bf16)
      return dnnl_f32;
  return cpu_produced_type(program, node->inputs[0]);
}

/* X -> Y1, ..., Yn */
static bool prepare_split(struct backend_program *program, const struct node *node) {
  dnnl_memory_desc_t whole = cpu_layout(program, node->inputs[0]), layouts[OP_OUTPUTS_MAX];
  int n = node->n_outputs;
  for (int i = 0; i < n; i++)
    if (node->outputs[i] < 0)
      return false;
  struct parts *parts = parts_new(program, node, node->inputs[0], node->outputs, n);
  dnnl_data_type_t type = split_type(program, node);
  if (parts->axis > 1 || !layouts_of_parts(program, &whole, node->outputs, n, layouts)) {
    dense_layouts(program, node->inputs, 1, &whole);
    dense_layouts(program, node->outputs, n, layouts);
    if (type == dnnl_f32)
      return false;
  }
  parts_set_type(parts, type, &whole, layouts);
  struct cpu_step *step = cpu_step_new(program, node);
  int source = cpu_buffer_in(program, node, node->inputs[0], &whole);
  step->run = run_split;
  step->details = parts;
  for (int i = 0; i < n; i++)
    cpu_write(program, step, 0, node->outputs[i], &layouts[i]);
  cpu_use(program, step, 0, source, &whole);
  cpu_step_end(program, step, NULL);
  return true;
}

const struct cpu_kernel cpu_concat = {"Concat", prepare_concat};
const struct cpu_kernel cpu_split = {"Split", prepare_split};
