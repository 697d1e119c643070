/* Building a program: buffers, arguments, steps, and the reorders between layouts. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "worker/backend/cpu/cpu.h"

void cpu_fail(struct backend_program *program, const struct node *node, dnnl_status_t status,
              const char *what) {
  enum err_code code = status == dnnl_out_of_memory ? ERR_NO_MEMORY : ERR_INTERNAL;
  if (program->err.code)
    return;
  if (node)
    node_error(node, &program->err, code, "oneDNN cannot %s (status %d)", what, (int)status);
  else
    err_set(&program->err, code, "oneDNN cannot %s (status %d)", what, (int)status);
}

static int buffer_add(struct backend_program *program, struct cpu_buffer buffer) {
  int index = program->n_buffers;
  array_reserve((void **)&program->buffers, &program->buffers_capacity, index, sizeof buffer);
  if (buffer.root < 0)
    buffer.root = index;
  buffer.next = -1;
  buffer.first = -1;
  program->buffers[program->n_buffers++] = buffer;
  return index;
}

/* Bytes that no value names. */
static int buffer_add_bytes(struct backend_program *program, const dnnl_memory_desc_t *layout) {
  struct cpu_buffer buffer = {.root = -1, .value = -1, .last_node = INT_MAX};
  buffer.layout = *layout;
  buffer.size_bytes = dnnl_memory_desc_get_size(layout);
  return buffer_add(program, buffer);
}

/* A buffer for the value, of its own (root -1) or in the bytes of another one. */
static int buffer_add_value(struct backend_program *program, int value, const dnnl_memory_desc_t *layout,
                            int root) {
  const struct value *v = &program->graph->values[value];
  struct cpu_value *known = &program->values[value];
  struct cpu_buffer buffer = {.root = root, .value = value, .last_node = known->last_node};
  int64_t elems = shape_elems(&v->shape);
  if (layout) {
    buffer.layout = *layout;
    buffer.size_bytes = dnnl_memory_desc_get_size(layout);
  } else {
    buffer.size_bytes = (size_t)elems * dtype_size(v->dtype);
    if (v->dtype == DTYPE_F32 && elems > 0)
      buffer.layout = layout_of_shape(&v->shape);
  }
  int index = buffer_add(program, buffer);
  int *end = &known->buffer;
  while (*end >= 0)
    end = &program->buffers[*end].next;
  *end = index;
  struct cpu_buffer *owner = &program->buffers[program->buffers[index].root];
  if (owner->last_node < known->last_node)
    owner->last_node = known->last_node;
  return index;
}

static int run_fetch(struct backend_program *program, struct cpu_step *step, const struct backend_run *run,
                     struct err *err) {
  (void)err;
  int value = step->subject;
  const void *data = program->graph->values[value].data;
  if (run->weights && run->weights[value]) {
    if (run->before_weight)
      run->before_weight(run->user, value);
    data = run->weights[value];
  }
  program->buffers[program->values[value].buffer].data = (void *)data;
  return ERR_OK;
}

static void use_written(struct backend_program *program, struct cpu_step *step, int id, int buffer,
                        const dnnl_memory_desc_t *layout) {
  cpu_use(program, step, id, buffer, layout);
  step->args[step->n_args - 1].is_written = true;
}

/* The buffer in which a value was produced; inputs, initializers and constants are taken where they are. */
static int value_buffer(struct backend_program *program, int value) {
  const struct value *v = &program->graph->values[value];
  if (program->values[value].buffer >= 0)
    return program->values[value].buffer;
  CHECK(v->kind != VALUE_RESULT);
  int index = buffer_add_value(program, value, NULL, -1);
  program->buffers[index].place = PLACE_HOST;
  program->buffers[index].data = (void *)v->data;
  if (v->kind == VALUE_INITIALIZER) {
    struct cpu_step *step = cpu_step_new(program, NULL);
    step->run = run_fetch;
    step->is_resumed = true;
    step->subject = value;
    use_written(program, step, 0, index, NULL);
    cpu_step_end(program, step, NULL);
  }
  return index;
}

static dnnl_memory_desc_t produced_layout(struct backend_program *program, int value) {
  int buffer = value_buffer(program, value); /* may move the buffers */
  return program->buffers[buffer].layout;
}

dnnl_memory_desc_t cpu_layout(struct backend_program *program, int value) {
  return layout_typed(produced_layout(program, value), dnnl_f32);
}

dnnl_data_type_t cpu_produced_type(struct backend_program *program, int value) {
  return produced_layout(program, value).data_type;
}

static bool has_same_dims(const dnnl_memory_desc_t *a, const dnnl_memory_desc_t *b) {
  return a->ndims == b->ndims && memcmp(a->dims, b->dims, (size_t)a->ndims * sizeof a->dims[0]) == 0;
}

dnnl_memory_desc_t cpu_layout_as(struct backend_program *program, int value, int ndims, const int64_t *dims) {
  dnnl_memory_desc_t dense = layout_dense(ndims, dims), produced = cpu_layout(program, value);
  return has_same_dims(&produced, &dense) ? produced : dense;
}

dnnl_primitive_desc_t cpu_describe(struct backend_program *program, const void *op_desc,
                                   const_dnnl_primitive_attr_t attr, const_dnnl_primitive_desc_t hint) {
  dnnl_primitive_desc_t desc = NULL;
  dnnl_status_t status =
      dnnl_primitive_desc_create(&desc, op_desc, attr ? attr : program->attr, program->engine, hint);
  if (status == dnnl_out_of_memory)
    cpu_fail(program, NULL, status, "describe a primitive");
  if (status)
    return NULL;
  array_reserve((void **)&program->descs, &program->descs_capacity, program->n_descs, sizeof desc);
  program->descs[program->n_descs++] = desc;
  return desc;
}

enum cpu_rank cpu_rank(const_dnnl_primitive_desc_t desc) {
  const char *name = "ref";
  if (!desc || dnnl_primitive_desc_query(desc, dnnl_query_impl_info_str, 0, &name) || strstr(name, "ref"))
    return CPU_RANK_REFERENCE;
  return strstr(name, "gemm") ? CPU_RANK_GEMM : CPU_RANK_DIRECT;
}

dnnl_primitive_desc_t cpu_describe_fast(struct backend_program *program, const void *op_desc,
                                        const_dnnl_primitive_desc_t hint) {
  dnnl_primitive_desc_t desc = cpu_describe(program, op_desc, NULL, hint);
  return cpu_rank(desc) == CPU_RANK_REFERENCE ? NULL : desc;
}

const dnnl_memory_desc_t *cpu_query(dnnl_primitive_desc_t desc, dnnl_query_t what, int index) {
  const dnnl_memory_desc_t *layout = dnnl_primitive_desc_query_md(desc, what, index);
  CHECK(layout != NULL);
  return layout;
}

static bool is_fresh(const struct backend_program *program, const struct cpu_buffer *buffer,
                     const struct cpu_buffer *source, const struct backend_run *run) {
  if (buffer->filled_from == NULL)
    return false;
  if (buffer->filled_in == program->execution)
    return true;
  const void *own = program->graph->values[source->value].data;
  if (source->data == own)
    return buffer->filled_from == own;
  return buffer->filled_from != own && run->weights_version != 0 &&
         buffer->filled_version == run->weights_version;
}

/* A reorder of what outlives a run: only when it has changed, or another execution had other weights. */
static int run_refill(struct backend_program *program, struct cpu_step *step, const struct backend_run *run,
                      struct err *err) {
  struct cpu_buffer *buffer = &program->buffers[step->args[1].buffer];
  const struct cpu_buffer *source = &program->buffers[program->buffers[step->args[0].buffer].root];
  bool is_as_needed = is_fresh(program, buffer, source, run);
  buffer->filled_in = program->execution;
  if (is_as_needed)
    return ERR_OK;
  int code = cpu_execute(program, step, run, err);
  buffer->filled_from = code ? NULL : source->data;
  buffer->filled_version = run->weights_version;
  return code;
}

/* A buffer's bytes, as a reorder sees them. */
struct buffer_view {
  int buffer;
  dnnl_memory_desc_t layout;
};

/* A new buffer of the value in layout `to`, filled from `from`. */
static int reorder_add(struct backend_program *program, const struct node *node, int value,
                       const struct buffer_view *from, const dnnl_memory_desc_t *to) {
  struct cpu_buffer *root = &program->buffers[program->buffers[from->buffer].root];
  bool is_kept = root->place == PLACE_HOST && program->graph->values[root->value].kind != VALUE_INPUT;
  struct cpu_step *step = cpu_step_new(program, node);
  int target = buffer_add_value(program, value, to, -1);
  step->owner = -1;
  dnnl_primitive_desc_t desc = NULL;
  if (is_kept) {
    program->buffers[target].place = PLACE_KEPT;
    step->run = run_refill;
    step->is_resumed = true;
  }
  cpu_use(program, step, DNNL_ARG_FROM, from->buffer, &from->layout);
  use_written(program, step, DNNL_ARG_TO, target, to);
  dnnl_status_t status = dnnl_reorder_primitive_desc_create(&desc, &from->layout, program->engine, to,
                                                            program->engine, program->attr);
  if (status)
    cpu_fail(program, node, status, "reorder a tensor");
  cpu_step_end(program, step, desc);
  if (desc)
    dnnl_primitive_desc_destroy(desc);
  return target;
}

int cpu_buffer_in(struct backend_program *program, const struct node *node, int value,
                  const dnnl_memory_desc_t *layout) {
  int source = value_buffer(program, value);
  struct buffer_view from = {.buffer = source, .layout = program->buffers[source].layout};
  dnnl_memory_desc_t to;
  if (from.layout.ndims == 0)
    return source;
  to = layout ? *layout : layout_of_shape(&program->graph->values[value].shape);
  for (int b = source; b >= 0; b = program->buffers[b].next)
    if (layout_is_same(&program->buffers[b].layout, &to))
      return b;
  if (!has_same_dims(&from.layout, &to) && layout_is_dense(&to)) {
    to = layout_typed(layout_dense(from.layout.ndims, from.layout.dims), to.data_type);
  } else if (!has_same_dims(&from.layout, &to)) {
    from.buffer = cpu_buffer_dense(program, node, value, from.layout.data_type);
    from.layout = layout_typed(layout_dense(to.ndims, to.dims), from.layout.data_type);
  }
  return reorder_add(program, node, value, &from, &to);
}

static dnnl_memory_desc_t dense_of(const struct backend_program *program, int value, dnnl_data_type_t type) {
  return layout_typed(layout_of_shape(&program->graph->values[value].shape), type);
}

int cpu_buffer_dense(struct backend_program *program, const struct node *node, int value,
                     dnnl_data_type_t type) {
  dnnl_memory_desc_t dense = dense_of(program, value, type);
  return cpu_buffer_in(program, node, value, &dense);
}

struct cpu_step *cpu_step_new(struct backend_program *program, const struct node *node) {
  struct cpu_step *step = arena_new(&program->memory, sizeof *step);
  step->node = node;
  step->owner = node ? node->index : -1;
  step->run = cpu_execute;
  return step;
}

void cpu_step_release(struct cpu_step *step) {
  for (int a = 0; a < step->n_args; a++)
    dnnl_memory_destroy(step->args[a].memory);
  if (!step->is_replay)
    dnnl_primitive_destroy(step->primitive);
  free(step->args);
}

void cpu_step_set_roots(struct backend_program *program, struct cpu_step *step, const int *roots) {
  for (int a = 0; a < step->n_args; a++) {
    struct cpu_arg *arg = &step->args[a];
    if (arg->buffer < 0)
      continue;
    if (program->buffers[arg->buffer].root != *roots)
      arg->buffer = *roots;
    roots++;
  }
}

int cpu_root_add(struct backend_program *program, int origin) {
  int root = program->n_buffers;
  array_reserve((void **)&program->buffers, &program->buffers_capacity, root, sizeof program->buffers[0]);
  program->buffers[root] = program->buffers[origin];
  program->buffers[root].root = root;
  program->buffers[root].next = -1;
  return program->n_buffers++;
}

void cpu_use(struct backend_program *program, struct cpu_step *step, int id, int buffer,
             const dnnl_memory_desc_t *layout) {
  array_reserve((void **)&step->args, &step->args_capacity, step->n_args, sizeof step->args[0]);
  step->args[step->n_args++] = (struct cpu_arg){
      .id = id, .buffer = buffer, .layout = layout ? *layout : program->buffers[buffer].layout};
}

int cpu_read(struct backend_program *program, struct cpu_step *step, int id, int value,
             const dnnl_memory_desc_t *layout) {
  int buffer = cpu_buffer_in(program, step->node, value, layout);
  dnnl_memory_desc_t dense;
  if (!layout && program->buffers[buffer].layout.ndims > 0) {
    dense = layout_of_shape(&program->graph->values[value].shape);
    layout = &dense;
  }
  cpu_use(program, step, id, buffer, layout);
  return buffer;
}

int cpu_write(struct backend_program *program, struct cpu_step *step, int id, int value,
              const dnnl_memory_desc_t *layout) {
  int buffer = value < 0 ? buffer_add_bytes(program, layout) : buffer_add_value(program, value, layout, -1);
  use_written(program, step, id, buffer, layout);
  return buffer;
}

int cpu_read_dense(struct backend_program *program, struct cpu_step *step, int value, dnnl_data_type_t type) {
  dnnl_memory_desc_t dense = dense_of(program, value, type);
  return cpu_read(program, step, 0, value, &dense);
}

int cpu_write_dense(struct backend_program *program, struct cpu_step *step, int value,
                    dnnl_data_type_t type) {
  dnnl_memory_desc_t dense = dense_of(program, value, type);
  return cpu_write(program, step, 0, value, &dense);
}

int cpu_scratch(struct backend_program *program, struct cpu_step *step, int64_t elems,
                dnnl_data_type_t type) {
  dnnl_memory_desc_t layout = layout_typed(layout_dense(1, &elems), type);
  return cpu_write(program, step, 0, -1, &layout);
}

int cpu_write_over(struct backend_program *program, struct cpu_step *step, int id,
                   const dnnl_memory_desc_t *layout, int buffer) {
  int value = step->node->outputs[0], root = program->buffers[buffer].root;
  const struct cpu_buffer *owner = &program->buffers[root];
  const dnnl_memory_desc_t *had = &program->buffers[buffer].layout;
  bool is_of_type = had->ndims == 0 || had->data_type == (layout ? layout->data_type : dnnl_f32);
  if (value < 0 || owner->place != PLACE_PLANNED || owner->last_node > step->node->index || !is_of_type)
    return cpu_write(program, step, id, value, layout);
  int result = buffer_add_value(program, value, layout, root);
  CHECK(program->buffers[result].size_bytes <= program->buffers[root].size_bytes);
  use_written(program, step, id, result, layout);
  return result;
}

int cpu_write_over_dense(struct backend_program *program, struct cpu_step *step, dnnl_data_type_t type,
                         int buffer) {
  dnnl_memory_desc_t dense = dense_of(program, step->node->outputs[0], type);
  return cpu_write_over(program, step, 0, &dense, buffer);
}

void cpu_step_append(struct backend_program *program, struct cpu_step *step) {
  int at = program->n_steps;
  step->n_exec = 0;
  step->reads_host = false;
  array_reserve((void **)&program->steps, &program->steps_capacity, at, sizeof program->steps[0]);
  program->steps[program->n_steps++] = step;
  for (int a = 0; a < step->n_args; a++) {
    if (step->args[a].buffer < 0)
      continue;
    struct cpu_buffer *root = &program->buffers[program->buffers[step->args[a].buffer].root];
    if (root->first < 0)
      root->first = at;
    root->last = at;
    step->reads_host |= root->place == PLACE_HOST;
    step->n_exec += step->args[a].id != 0;
  }
}

void cpu_step_end(struct backend_program *program, struct cpu_step *step, dnnl_primitive_desc_t desc) {
  if (desc) {
    const dnnl_memory_desc_t *scratch = dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0);
    if (scratch && dnnl_memory_desc_get_size(scratch) > 0)
      cpu_write(program, step, DNNL_ARG_SCRATCHPAD, -1, scratch);
    dnnl_status_t status = dnnl_primitive_create(&step->primitive, desc);
    if (status)
      cpu_fail(program, step->node, status, "create a primitive");
  }
  cpu_step_append(program, step);
}

void cpu_alias(struct backend_program *program, int value, int source) {
  const struct value *from = &program->graph->values[source], *to = &program->graph->values[value];
  const struct node *node = program->graph->nodes[to->producer];
  int buffer = value_buffer(program, source);
  dnnl_memory_desc_t layout = program->buffers[buffer].layout;
  if (!shape_is_same(&from->shape, &to->shape) && layout.ndims > 0) {
    buffer = cpu_buffer_dense(program, node, source, layout.data_type);
    layout = layout_typed(layout_of_shape(&to->shape), layout.data_type);
  }
  buffer_add_value(program, value, layout.ndims > 0 ? &layout : NULL, program->buffers[buffer].root);
}
