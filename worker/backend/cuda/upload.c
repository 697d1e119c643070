/* Copies to the device: what an execution begins with, and weights as they come. */
#include "worker/backend/cuda/program.h"

static int copy_up(struct backend_program *program, void *to, const void *from, size_t size_bytes,
                   struct err *err) {
  if (size_bytes == 0)
    return ERR_OK;
  return cuda_check(NULL, cudaMemcpyAsync(to, from, size_bytes, cudaMemcpyHostToDevice, program->up),
                    "copy to the device", err);
}

int cuda_upload_begin(struct backend_program *program, const struct backend_run *run, struct err *err) {
  const struct graph *graph = program->graph;
  cuda_timeline_mark(program, &program->segments[0], CUDA_MARK_UP);
  program->pinned->context = (struct cuda_context){
      .seed = run->context.seed, .step = run->context.step, .microbatch = run->context.microbatch};
  int code = copy_up(program, &program->words->context, &program->pinned->context,
                     sizeof program->pinned->context, err);
  if (!code)
    code = cuda_check(NULL,
                      cudaMemsetAsync(&program->words->fault, 0, sizeof program->words->fault, program->up),
                      "clear memory", err);
  for (int i = 0; i < graph->n_inputs && !code; i++) {
    int b = program->values[graph->inputs[i]].buffer;
    if (b >= 0 && program->buffers[b].first >= 0)
      code = copy_up(program, program->buffers[b].data, run->inputs[i], program->buffers[b].size_bytes, err);
  }
  return code;
}

static bool is_fresh(const struct cuda_buffer *buffer, const void *data, const void *own,
                     const struct backend_run *run) {
  if (buffer->filled_from == NULL)
    return false;
  if (data == own)
    return buffer->filled_from == own;
  return buffer->filled_from != own && run->weights_version != 0 &&
         buffer->filled_version == run->weights_version;
}

static int fill(struct backend_program *program, struct cuda_buffer *buffer, const void *data,
                struct err *err) {
  int code = copy_up(program, buffer->data, data, buffer->size_bytes, err);
  for (int c = buffer->conversions; c >= 0 && !code; c = program->conversions[c].next) {
    const struct cuda_step *step = program->conversions[c].step;
    code = step->enqueue(program, step, program->up, err);
  }
  return code;
}

/* Of a value that the segment is the first to read. *is_begun: a copy of the segment's was enqueued. */
static int upload_value(struct backend_program *program, const struct cuda_segment *segment, int value,
                        const struct backend_run *run, bool *is_begun, struct err *err) {
  const void *own = program->graph->values[value].data, *data = own;
  int b = program->values[value].buffer;
  if (run->weights && run->weights[value]) {
    if (run->before_weight)
      run->before_weight(run->user, value);
    data = run->weights[value];
  }
  if (b < 0 || is_fresh(&program->buffers[b], data, own, run))
    return ERR_OK;
  if (!*is_begun)
    cuda_timeline_mark(program, segment, CUDA_MARK_UP);
  *is_begun = true;
  program->buffers[b].filled_from = NULL;
  if (fill(program, &program->buffers[b], data, err))
    return err->code;
  program->buffers[b].filled_from = data;
  program->buffers[b].filled_version = run->weights_version;
  return ERR_OK;
}

int cuda_upload_weights(struct backend_program *program, struct cuda_segment *segment,
                        const struct backend_run *run, struct err *err) {
  bool is_begun = segment == program->segments; /* inputs come before the first */
  for (int w = 0; w < segment->n_weights; w++)
    if (upload_value(program, segment, segment->weights[w], run, &is_begun, err))
      return err->code;
  if (run->is_cancelled && run->is_cancelled(run->user))
    return err_set(err, ERR_CANCELLED, "the execution was cancelled");
  if (!is_begun)
    return ERR_OK;
  cuda_timeline_mark(program, segment, CUDA_MARK_UP + 1);
  if (cuda_check(NULL, cudaEventRecord(segment->arrived, program->up), "record an event", err))
    return err->code;
  return cuda_check(NULL, cudaStreamWaitEvent(program->compute, segment->arrived, 0), "order its streams",
                    err);
}
