/* Copies to the device: what an execution begins with, and weights as they come. */
#include "worker/backend/cuda/engine/program.h"

static int copy_up(struct backend_program *program, void *to, const void *from, size_t size_bytes,
                   struct err *err) {
  if (size_bytes == 0)
    return ERR_OK;
  return cuda_check(NULL, cudaMemcpyAsync(to, from, size_bytes, cudaMemcpyDefault, program->up),
                    "copy to the device", err);
}

/* An input that only the backward part reads is there from the start, too. */
static int inputs_copy(struct backend_program *program, const struct backend_run *run, struct err *err) {
  const struct graph *graph = program->graph;
  for (int i = 0; i < graph->n_inputs; i++) {
    int b = program->values[graph->inputs[i]].buffer;
    const struct cuda_buffer *buffer = b < 0 ? NULL : &program->buffers[b];
    if (buffer && buffer->first >= 0 &&
        copy_up(program, cuda_root_data(program, buffer, run->in), run->inputs[i], buffer->size_bytes, err))
      return err->code;
  }
  return ERR_OK;
}

int cuda_upload_begin(struct backend_program *program, int first, const struct backend_run *run,
                      struct err *err) {
  cuda_timeline_mark(program, &program->segments[first], CUDA_MARK_UP);
  program->pinned->context = (struct cuda_context){
      .seed = run->context.seed, .step = run->context.step, .microbatch = run->context.microbatch};
  int code = copy_up(program, &program->words->context, &program->pinned->context,
                     sizeof program->pinned->context, err);
  if (!code)
    code = cuda_check(NULL,
                      cudaMemsetAsync(&program->words->fault, 0, sizeof program->words->fault, program->up),
                      "clear memory", err);
  if (!code && run->part != BACKEND_BACKWARD)
    code = inputs_copy(program, run, err);
  return code;
}

/* What a weight's bytes are to be in this execution. */
struct wanted {
  const void *data, *own; /* own: the graph's */
  uint64_t version, execution;
};

static bool is_fresh(const struct cuda_buffer *buffer, const struct wanted *wanted) {
  const void *data = wanted->data, *own = wanted->own;
  if (buffer->filled_from == NULL)
    return false;
  if (buffer->filled_in == wanted->execution)
    return true;
  if (data == own)
    return buffer->filled_from == own;
  return buffer->filled_from != own && wanted->version != 0 && buffer->filled_version == wanted->version;
}

/* Weights of a segment that go up in one copy: they lie side by side where they come from, and where they go.
 */
struct weights_copy {
  const char *from;
  char *to;
  size_t size_bytes;
  int first, n; /* of the segment's weights; n 0: none yet */
};

/* The weights of a segment on their way up. */
struct upload {
  struct backend_program *program;
  const struct cuda_segment *segment;
  const struct backend_run *run;
  struct weights_copy copy; /* being gathered */
};

static bool copy_adjoins(const struct weights_copy *copy, int at, const void *data,
                         const struct cuda_buffer *buffer) {
  return copy->n > 0 && copy->first + copy->n == at && copy->from + copy->size_bytes == data &&
         copy->to + copy->size_bytes == buffer->data;
}

/* Enqueues the copy, and makes what is made of its weights. */
static int copy_end(struct upload *upload, struct err *err) {
  struct backend_program *program = upload->program;
  const struct weights_copy *copy = &upload->copy;
  const char *from = copy->from;
  int code = copy_up(program, copy->to, from, copy->size_bytes, err);
  for (int w = copy->first; w < copy->first + copy->n && !code; w++) {
    struct cuda_buffer *buffer = &program->buffers[program->values[upload->segment->weights[w]].buffer];
    for (int c = buffer->conversions; c >= 0 && !code; c = program->conversions[c].next) {
      const struct cuda_step *step = program->conversions[c].step;
      if (program->buffers[step->args[1].buffer].is_used)
        code = step->enqueue(program, step, program->up, err);
    }
    if (!code)
      buffer->filled_from = from;
    buffer->filled_version = upload->run->weights_version;
    from += buffer->size_bytes;
  }
  upload->copy = (struct weights_copy){0};
  return code;
}

/* Of the segment's weight `at`: goes with the copy that is being gathered, or begins another one. */
static int upload_value(struct upload *upload, int at, struct err *err) {
  struct backend_program *program = upload->program;
  const struct backend_run *run = upload->run;
  struct weights_copy *copy = &upload->copy;
  int value = upload->segment->weights[at], b = program->values[value].buffer;
  bool is_given = run->weights && run->weights[value];
  const void *own = program->graph->values[value].data, *data = is_given ? run->weights[value] : own;
  struct cuda_buffer *buffer = b < 0 || !program->buffers[b].is_used ? NULL : &program->buffers[b];
  struct wanted wanted = {data, own, run->weights_version, program->execution};
  bool is_needed = buffer && !is_fresh(buffer, &wanted);
  if (buffer)
    buffer->filled_in = program->execution;
  if (is_needed && !copy_adjoins(copy, at, data, buffer) && copy_end(upload, err))
    return err->code;
  if (is_given && run->before_weight)
    run->before_weight(run->user, value);
  if (!is_needed)
    return ERR_OK;
  if (is_given && copy->n == 0)
    cuda_device_reach(program->view.options.device, data);
  if (copy->n == 0)
    *copy = (struct weights_copy){.from = data, .to = buffer->data, .first = at};
  copy->n++;
  copy->size_bytes += buffer->size_bytes;
  buffer->filled_from = NULL;
  return ERR_OK;
}

/* *is_begun: a copy of the segment's was enqueued. */
static int upload_values(struct backend_program *program, const struct cuda_segment *segment,
                         const struct backend_run *run, bool *is_begun, struct err *err) {
  struct upload upload = {.program = program, .segment = segment, .run = run};
  for (int w = 0; w < segment->n_weights; w++) {
    if (upload_value(&upload, w, err))
      return err->code;
    if (upload.copy.n > 0 && !*is_begun)
      cuda_timeline_mark(program, segment, CUDA_MARK_UP);
    *is_begun |= upload.copy.n > 0;
  }
  return copy_end(&upload, err);
}

int cuda_upload_resumed(struct backend_program *program, const struct backend_run *run, struct err *err) {
  struct backend_run again = *run;
  bool is_begun = true; /* with what a part begins with */
  again.before_weight = NULL;
  return upload_values(program, &program->resumed, &again, &is_begun, err);
}

int cuda_upload_weights(struct backend_program *program, struct cuda_segment *segment, bool is_first,
                        const struct backend_run *run, struct err *err) {
  bool is_begun = is_first; /* inputs come before it */
  if (upload_values(program, segment, run, &is_begun, err))
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
