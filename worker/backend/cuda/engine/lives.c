/* When the bytes of buffers are in use, once all steps are known, and which results take the bytes of what
   their step is the last to read. Replays (replay.c) come later. */
#include "worker/backend/cuda/engine/program.h"

static int root_of(const struct backend_program *program, const struct cuda_arg *arg) {
  return arg->buffer < 0 ? -1 : program->buffers[arg->buffer].root;
}

static void root_use(struct backend_program *program, int root, int step) {
  struct cuda_buffer *buffer = &program->buffers[root];
  if (buffer->first < 0)
    buffer->first = step;
  if (buffer->last < step)
    buffer->last = step;
}

void cuda_uses_find(struct backend_program *program) {
  for (int b = 0; b < program->n_buffers; b++)
    program->buffers[b].is_used = false;
  for (int s = 0; s < program->n_steps; s++)
    for (int a = 0; a < program->steps[s]->n_args; a++) {
      int buffer = program->steps[s]->args[a].buffer,
          source = buffer < 0 ? -1 : cuda_source_of(program, buffer);
      if (buffer >= 0)
        cuda_root(program, buffer)->is_used = true;
      if (source >= 0)
        program->buffers[source].is_used = true;
    }
}

int cuda_delivery_until(const struct backend_program *program, int step) {
  int k = 0, n = step < program->n_forward ? program->n_forward_segments : program->n_segments;
  if (n == 0)
    return 0; /* they are not cut yet */
  while (program->segments[k].end <= step)
    k++;
  k = k + CUDA_SEGMENTS_BEHIND < n ? k + CUDA_SEGMENTS_BEHIND : n - 1;
  return program->segments[k].end - 1;
}

static void lives_survey(struct backend_program *program) {
  for (int b = 0; b < program->n_buffers; b++)
    program->buffers[b].first = program->buffers[b].last = -1;
  for (int s = 0; s < program->n_steps; s++) {
    const struct cuda_step *step = program->steps[s];
    for (int a = 0; a < step->n_args; a++)
      if (step->args[a].buffer >= 0)
        root_use(program, root_of(program, &step->args[a]), s);
    if (step->kind == CUDA_STEP_DELIVERY)
      root_use(program, root_of(program, &step->args[0]), cuda_delivery_until(program, s));
  }
}

/* Whether argument `to` of step s, which writes it, can have the bytes of argument `from`. */
static bool can_take(const struct backend_program *program, int s, const struct cuda_arg *to,
                     const struct cuda_arg *from) {
  const struct cuda_step *step = program->steps[s];
  int taken = root_of(program, from);
  if (taken < 0 || taken == root_of(program, to))
    return false;
  const struct cuda_buffer *root = &program->buffers[taken];
  if (root->place != PLACE_PLANNED || root->last != s ||
      root->size_bytes != program->buffers[to->buffer].size_bytes)
    return false;
  for (int a = 0; a < step->n_args; a++)
    if (&step->args[a] != from && root_of(program, &step->args[a]) == taken)
      return false;
  return true;
}

static void root_join(struct backend_program *program, int root, int into) {
  program->buffers[into].last = program->buffers[root].last;
  for (int b = 0; b < program->n_buffers; b++)
    if (program->buffers[b].root == root)
      program->buffers[b].root = into;
}

static void bytes_take(struct backend_program *program, int s, const struct cuda_arg *to) {
  const struct cuda_step *step = program->steps[s];
  for (int a = 0; a < step->n_args && a < 64; a++)
    if ((to->over >> a & 1) && can_take(program, s, to, &step->args[a])) {
      root_join(program, root_of(program, to), root_of(program, &step->args[a]));
      return;
    }
}

void cuda_lives_settle(struct backend_program *program) {
  lives_survey(program);
  for (int s = 0; s < program->n_steps; s++)
    for (int a = 0; a < program->steps[s]->n_args; a++)
      if (program->steps[s]->args[a].over)
        bytes_take(program, s, &program->steps[s]->args[a]);
}
