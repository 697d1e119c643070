/* The memory of a program: one block. With one context all buffers share it, by the steps between which they
   live. With several it begins with what is there once and goes on with an arena for each context. */
#include "worker/backend/memory.h"

#include <stdlib.h>

#include "worker/backend/cpu/cpu.h"
#include "worker/backend/replay/split.h"

/* Lives of the roots that the block has, and whose they are. */
struct lives {
  struct memory_span *spans;
  int *owners;
  int n;
};

static void lives_init(const struct backend_program *program, struct lives *lives) {
  size_t n = (size_t)program->n_buffers + 1;
  *lives = (struct lives){.spans = mem_new(n * sizeof *lives->spans), .owners = mem_new(n * sizeof(int))};
  for (int b = 0; b < program->n_buffers; b++) {
    const struct cpu_buffer *buffer = &program->buffers[b];
    if (buffer->root != b || buffer->place == PLACE_HOST || buffer->first < 0)
      continue;
    bool is_kept = buffer->place == PLACE_KEPT;
    lives->owners[lives->n] = b;
    lives->spans[lives->n++] = (struct memory_span){.size_bytes = buffer->size_bytes ? buffer->size_bytes : 1,
                                                    .first = is_kept ? 0 : buffer->first,
                                                    .last = is_kept ? program->n_steps : buffer->last};
  }
}

static void lives_fini(struct lives *lives) {
  free(lives->spans);
  free(lives->owners);
}

static struct split split_into(const struct backend_program *program, int n_contexts) {
  return (struct split){
      .n_steps = program->n_steps, .n_forward = program->n_forward, .n_contexts = n_contexts};
}

size_t cpu_memory_measure(const struct backend_program *program) {
  struct split split = split_into(program, program->n_contexts);
  struct lives lives;
  lives_init(program, &lives);
  size_t bytes = split_plan(&split, lives.spans, lives.n);
  lives_fini(&lives);
  return bytes;
}

static int block_allocate(struct backend_program *program, struct err *err) {
  struct split split = split_into(program, program->n_contexts);
  struct lives lives;
  lives_init(program, &lives);
  program->block_bytes = split_plan(&split, lives.spans, lives.n);
  program->saved_bytes = split.saved_bytes;
  program->block = program->block_bytes ? backend_memory_new(program->block_bytes, err) : NULL;
  for (int i = 0; i < lives.n && program->block; i++) {
    struct cpu_buffer *root = &program->buffers[lives.owners[i]];
    root->is_saved = split_is_saved(&split, &lives.spans[i]);
    root->data = (char *)program->block + (root->is_saved ? split.shared_bytes : 0) + lives.spans[i].offset;
  }
  lives_fini(&lives);
  return program->block_bytes && !program->block ? (int)err->code : ERR_OK;
}

static const struct cpu_buffer *arg_root(const struct backend_program *program, const struct cpu_arg *arg) {
  return &program->buffers[program->buffers[arg->buffer].root];
}

static int step_bind(struct backend_program *program, struct cpu_step *step, struct err *err) {
  int n = 0;
  step->exec = arena_new(&program->memory, ((size_t)step->n_exec + 1) * sizeof step->exec[0]);
  for (int a = 0; a < step->n_args; a++) {
    struct cpu_arg *arg = &step->args[a];
    arg->data = arg_root(program, arg)->data;
    step->uses_saved |= arg_root(program, arg)->is_saved;
    if (!arg->id)
      continue;
    dnnl_status_t status = dnnl_memory_create(&arg->memory, &arg->layout, program->engine,
                                              arg->data ? arg->data : DNNL_MEMORY_NONE);
    if (status) {
      cpu_fail(program, step->node, status, "describe memory");
      *err = program->err;
      return err->code;
    }
    step->exec[n++] = (dnnl_exec_arg_t){arg->id, arg->memory};
  }
  step->n_exec = n;
  return ERR_OK;
}

int cpu_memory_open(struct backend_program *program, struct err *err) {
  int code = block_allocate(program, err);
  for (int s = 0; s < program->n_steps && !code; s++)
    code = step_bind(program, program->steps[s], err);
  return code;
}

int cpu_memory_locate(struct backend_program *program, struct cpu_step *step, int in, struct err *err) {
  for (int a = 0; a < step->n_args; a++) {
    struct cpu_arg *arg = &step->args[a];
    const struct cpu_buffer *root = arg_root(program, arg);
    if (root->place != PLACE_HOST && !root->is_saved)
      continue;
    arg->data = root->is_saved ? (char *)root->data + (size_t)in * program->saved_bytes : root->data;
    if (arg->memory && dnnl_memory_set_data_handle(arg->memory, arg->data) != dnnl_success)
      return err_set(err, ERR_INTERNAL, "oneDNN refused the bytes of '%s'",
                     root->value < 0 ? "a workspace" : program->graph->values[root->value].name);
  }
  step->in = in;
  return ERR_OK;
}

void cpu_memory_bytes(const struct backend_program *program, struct backend_bytes *out) {
  struct split split = split_into(program, 2);
  struct lives lives;
  lives_init(program, &lives);
  split_plan(&split, lives.spans, lives.n);
  out->kept = split_kept_bytes(&split, lives.spans, lives.n);
  out->scratch = split.shared_bytes - out->kept;
  out->saved = split.saved_bytes;
  lives_fini(&lives);
}
