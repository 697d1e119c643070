/* Building a program: buffers, arguments, steps, and the conversions between forms. */
#include <stdlib.h>
#include <string.h>

#include "worker/backend/cuda/engine/program.h"

const struct cuda_program_view *cuda_view(const struct backend_program *program) {
  return &program->view;
}

struct cuda_buffer *cuda_root(const struct backend_program *program, int buffer) {
  return &program->buffers[program->buffers[buffer].root];
}

int cuda_source_of(const struct backend_program *program, int buffer) {
  const struct cuda_buffer *root = cuda_root(program, buffer);
  if (root->place != PLACE_KEPT)
    return -1;
  return root->source >= 0 ? root->source : program->buffers[buffer].root;
}

static int buffer_add(struct backend_program *program, struct cuda_buffer buffer) {
  int index = program->n_buffers;
  array_reserve((void **)&program->buffers, &program->buffers_capacity, index, sizeof buffer);
  if (buffer.root < 0)
    buffer.root = index;
  buffer.next = buffer.first = buffer.source = buffer.conversions = -1;
  program->buffers[program->n_buffers++] = buffer;
  return index;
}

int cuda_buffer_again(struct backend_program *program, int root) {
  struct cuda_buffer buffer = program->buffers[root];
  buffer.root = buffer.value = -1;
  return buffer_add(program, buffer);
}

/* Bytes that no value names. */
static int buffer_add_bytes(struct backend_program *program, size_t size_bytes) {
  return buffer_add(
      program, (struct cuda_buffer){
                   .type = CUDA_U8, .layout = CUDA_DENSE, .size_bytes = size_bytes, .root = -1, .value = -1});
}

/* How a value's bytes lie. */
struct form {
  enum cuda_type type;
  enum cuda_layout layout;
};

/* A buffer for the value, of its own (root -1) or in the bytes of another one. */
static int buffer_add_value(struct backend_program *program, int value, struct form form, int root) {
  const struct value *v = &program->graph->values[value];
  struct cuda_value *known = &program->values[value];
  int index = buffer_add(
      program, (struct cuda_buffer){.type = form.type,
                                    .layout = form.layout,
                                    .size_bytes = (size_t)shape_elems(&v->shape) * cuda_type_size(form.type),
                                    .root = root,
                                    .value = value});
  int *end = &known->buffer;
  while (*end >= 0)
    end = &program->buffers[*end].next;
  *end = index;
  return index;
}

/* The buffer in which a value was produced. Inputs come with the execution, initializers and constants stay.
 */
static int value_buffer(struct backend_program *program, int value) {
  const struct value *v = &program->graph->values[value];
  if (program->values[value].buffer >= 0)
    return program->values[value].buffer;
  CHECK(v->kind != VALUE_RESULT);
  int index = buffer_add_value(program, value, (struct form){cuda_type_of_dtype(v->dtype), CUDA_DENSE}, -1);
  program->buffers[index].place = v->kind == VALUE_INPUT ? PLACE_PLANNED : PLACE_KEPT;
  return index;
}

/* value -1: the bytes are seen as they are. Returns its index. */
static int arg_add(struct backend_program *program, struct cuda_step *step, int buffer, int value) {
  struct cuda_arg arg = {.buffer = buffer};
  if (value >= 0) {
    const struct shape *shape = &program->graph->values[value].shape;
    arg.tensor.rank = shape->rank;
    memcpy(arg.tensor.dim, shape->dim, (size_t)shape->rank * sizeof shape->dim[0]);
    arg.tensor.elems = shape_elems(shape);
  } else if (buffer >= 0) {
    arg.tensor.rank = 1;
    arg.tensor.dim[0] = arg.tensor.elems = (int64_t)program->buffers[buffer].size_bytes;
  }
  if (buffer >= 0) {
    arg.tensor.type = program->buffers[buffer].type;
    arg.tensor.layout = program->buffers[buffer].layout;
  }
  array_reserve((void **)&step->args, &step->args_capacity, step->n_args, sizeof step->args[0]);
  step->args[step->n_args] = arg;
  return step->n_args++;
}

static int arg_add_written(struct backend_program *program, struct cuda_step *step, int buffer, int value) {
  int arg = arg_add(program, step, buffer, value);
  step->args[arg].is_written = true;
  return arg;
}

/* What is made of weights and constants is made when they come, not when it is read. */
static void conversion_add(struct backend_program *program, int source, int target, struct cuda_step *step) {
  int index = program->n_conversions;
  array_reserve((void **)&program->conversions, &program->conversions_capacity, index,
                sizeof program->conversions[0]);
  program->conversions[program->n_conversions++] =
      (struct cuda_conversion){step, program->buffers[source].conversions};
  program->buffers[source].conversions = index;
  program->buffers[target].place = PLACE_KEPT;
  program->buffers[target].source = source;
}

static int convert_add(struct backend_program *program, const struct node *node, int value, int from,
                       struct form form) {
  struct cuda_step *step = cuda_step_new(program, node);
  int source = cuda_source_of(program, from), target = buffer_add_value(program, value, form, -1);
  step->enqueue = cuda_convert_enqueue;
  step->is_conversion = true;
  arg_add(program, step, from, value);
  arg_add_written(program, step, target, value);
  if (source >= 0)
    conversion_add(program, source, target, step);
  else
    cuda_step_end(program, step);
  return target;
}

/* The buffer that has the value in that form, behind a conversion if need be. */
static int buffer_in(struct backend_program *program, const struct node *node, int value, enum cuda_type type,
                     enum cuda_layout layout) {
  const struct shape *shape = &program->graph->values[value].shape;
  int produced = value_buffer(program, value);
  if (type == CUDA_ANY_TYPE)
    type = program->buffers[produced].type;
  if (layout == CUDA_ANY_LAYOUT)
    layout = program->buffers[produced].layout;
  CHECK(cuda_layout_suits(shape, layout));
  for (int b = produced; b >= 0; b = program->buffers[b].next)
    if (program->buffers[b].type == type && cuda_layout_is_same(shape, program->buffers[b].layout, layout))
      return b;
  return convert_add(program, node, value, produced, (struct form){type, layout});
}

struct cuda_step *cuda_step_new(struct backend_program *program, const struct node *node) {
  struct cuda_step *step = arena_new(&program->memory, sizeof *step);
  step->node = node;
  return step;
}

int cuda_read(struct backend_program *program, struct cuda_step *step, int value, enum cuda_type type,
              enum cuda_layout layout) {
  int buffer = value < 0 ? -1 : buffer_in(program, step->node, value, type, layout);
  int arg = arg_add(program, step, buffer, value);
  if (buffer >= 0 && layout != CUDA_ANY_LAYOUT) /* the same bytes may have had another name */
    step->args[arg].tensor.layout = layout;
  return arg;
}

int cuda_write(struct backend_program *program, struct cuda_step *step, int value, enum cuda_type type,
               enum cuda_layout layout) {
  int buffer = -1;
  if (value >= 0) {
    type = type == CUDA_ANY_TYPE ? cuda_type_of(program, value) : type;
    layout = layout == CUDA_ANY_LAYOUT ? CUDA_DENSE : layout;
    CHECK(cuda_layout_suits(&program->graph->values[value].shape, layout));
    buffer = buffer_add_value(program, value, (struct form){type, layout}, -1);
  }
  return arg_add_written(program, step, buffer, value);
}

void cuda_allow_over(struct cuda_step *step, int to, int arg) {
  CHECK(arg < 64);
  step->args[to].over |= UINT64_C(1) << arg;
}

int cuda_write_over(struct backend_program *program, struct cuda_step *step, int value, int arg) {
  const struct cuda_tensor *from = &step->args[arg].tensor;
  int to = cuda_write(program, step, value, from->type, from->layout);
  cuda_allow_over(step, to, arg);
  return to;
}

int cuda_scratch(struct backend_program *program, struct cuda_step *step, size_t size_bytes) {
  return arg_add_written(program, step, buffer_add_bytes(program, size_bytes), -1);
}

int cuda_keep(struct backend_program *program, struct cuda_step *step, size_t size_bytes) {
  int buffer = buffer_add_bytes(program, size_bytes);
  struct cuda_node *node = &program->nodes[step->node->index];
  if (node->kept < 0)
    node->kept = buffer;
  return arg_add_written(program, step, buffer, -1);
}

int cuda_read_kept(struct backend_program *program, struct cuda_step *step, int forward) {
  int buffer = forward < 0 ? -1 : program->nodes[forward].kept;
  return buffer < 0 ? -1 : arg_add(program, step, buffer, -1);
}

void cuda_pass_over(struct backend_program *program, const struct node *by, int node) {
  program->nodes[node].done_by = by->index;
}

void cuda_use(struct backend_program *program, struct cuda_step *step, int buffer, bool is_written) {
  int arg = arg_add(program, step, buffer, -1);
  step->args[arg].is_written = is_written;
}

void cuda_step_end(struct backend_program *program, struct cuda_step *step) {
  array_reserve((void **)&program->steps, &program->steps_capacity, program->n_steps,
                sizeof program->steps[0]);
  program->steps[program->n_steps++] = step;
}

void cuda_step_release(struct cuda_step *step) {
  if (step->release)
    step->release(step);
  free(step->args);
}

void cuda_alias(struct backend_program *program, int value, int source) {
  const struct value *from = &program->graph->values[source], *to = &program->graph->values[value];
  const struct node *node = program->graph->nodes[to->producer];
  int buffer = value_buffer(program, source);
  enum cuda_layout layout = program->buffers[buffer].layout;
  if (!shape_is_same(&from->shape, &to->shape)) {
    layout = CUDA_DENSE;
    buffer = buffer_in(program, node, source, CUDA_ANY_TYPE, layout);
  }
  const struct cuda_buffer *found = &program->buffers[buffer];
  buffer_add_value(program, value, (struct form){found->type, layout}, found->root);
}

void cuda_deliver(struct backend_program *program, int value, int watch) {
  struct cuda_step *step = cuda_step_new(program, NULL);
  step->kind = CUDA_STEP_DELIVERY;
  step->watch = watch;
  cuda_read(program, step, value, cuda_type_of_dtype(program->graph->values[value].dtype), CUDA_DENSE);
  cuda_step_end(program, step);
}
