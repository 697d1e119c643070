/* One microbatch's forward and backward on the cpu backend: `engine_bench FILE SAMPLES EXECUTIONS [LOSS
   [BACKEND]]`. Prints the median time in milliseconds (of the thread's CPU; on a GPU, of the clock) and the
   program's memory in bytes: "12.34 5678".
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "common/agree/float_setting.h"
#include "common/agree/random.h"
#include "model/model.h"
#include "model/onnx/model_file.h"
#include "worker/backend/plugin.h"

static double time_ms(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

/* Reals are drawn, whole numbers are 0, which is an index of every table; the last input is the loss's scale.
 */
static const void **make_inputs(const struct graph *graph) {
  const void **inputs = mem_new((size_t)graph->n_inputs * sizeof *inputs);
  for (int i = 0; i < graph->n_inputs; i++) {
    const struct value *value = &graph->values[graph->inputs[i]];
    int64_t elems = shape_elems(&value->shape);
    float *data = mem_new((size_t)elems * dtype_size(value->dtype));
    for (int64_t e = 0; e < elems && value->dtype == DTYPE_F32; e++)
      data[e] = (float)(2 * random_uniform((uint64_t)i, (uint64_t)e) - 1);
    inputs[i] = data;
  }
  return inputs;
}

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

static int measure(const struct model *model, int executions, const struct backend_def *backend,
                   struct err *err) {
  clockid_t clock = backend_find(backend->name) ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
  int n = model->n_params + 1;
  int *watched = mem_new((size_t)n * sizeof *watched);
  double *times = mem_new((size_t)executions * sizeof *times);
  struct backend_run run = {.inputs = make_inputs(model->train)};
  struct backend_program *program;
  watched[0] = model->train_loss.loss_sum;
  for (int p = 0; p < model->n_params; p++)
    watched[1 + p] = model->params[p].grad;
  if (backend->prepare(&(struct backend_request){.graph = model->train, .watched = watched, .n_watched = n},
                       &program, err))
    return err->code;
  for (int e = 0; e < executions; e++) {
    double begin = time_ms(clock);
    run.weights_version = (uint64_t)e + 1; /* weights change at every step */
    if (backend->run(program, &run, err))
      return err->code;
    times[e] = time_ms(clock) - begin;
  }
  qsort(times, (size_t)executions, sizeof *times, compare);
  printf("%.3f %zu\n", times[executions / 2], backend->memory_bytes(program));
  backend->release(program);
  return 0;
}

int main(int argc, char **argv) {
  float_setting_apply();
  Weir__RunSpec spec = WEIR__RUN_SPEC__INIT;
  Weir__ModelSpec model_spec = WEIR__MODEL_SPEC__INIT;
  const struct backend_def *backend;
  struct model *model = NULL;
  struct err err = ERR_NONE;
  void *bytes;
  size_t size;
  if (argc < 4 || atoi(argv[2]) < 1 || atoi(argv[3]) < 1) {
    fprintf(stderr, "usage: engine_bench FILE SAMPLES EXECUTIONS [LOSS [BACKEND]]\n");
    return 2;
  }
  model_spec.loss = argc > 4 && *argv[4] ? argv[4] : NULL;
  spec.model = &model_spec;
  backend = plugin_backend(argc > 5 ? argv[5] : "cpu", &err);
  if (!backend || model_file_read(argv[1], &bytes, &size, &err) ||
      model_open(&(struct model_source){.onnx = bytes,
                                        .size_bytes = size,
                                        .spec = model_spec.loss ? &spec : NULL,
                                        .samples = atoi(argv[2])},
                 &model, &err) ||
      measure(model, atoi(argv[3]), backend, &err)) {
    fprintf(stderr, "engine_bench: %s\n", err.text);
    return 1;
  }
  model_close(model);
  free(bytes);
  return 0;
}
