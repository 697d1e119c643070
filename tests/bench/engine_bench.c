/* One microbatch's forward and backward on the cpu backend: `engine_bench FILE SAMPLES EXECUTIONS [LOSS
   [BACKEND[:PRECISION] [RECOMPUTE [BYTES]]]]`. Prints the median time in milliseconds (of the thread's CPU;
   on a GPU, of the clock) and the program's memory in bytes: "12.34 5678"; with RECOMPUTE also how many
   resident bytes came by making and running it, its memory without replay, replays and steps. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

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

/* Copies of the parameters, as a step has them: what a program keeps of weights is made anew with each
 * version.
 */
static const float **make_weights(const struct model *model) {
  const float **weights = mem_new((size_t)model->train->n_values * sizeof *weights);
  for (int p = 0; p < model->n_params; p++) {
    const struct value *value = &model->train->values[model->params[p].train_value];
    size_t bytes = (size_t)shape_elems(&value->shape) * sizeof(float);
    weights[model->params[p].train_value] = memcpy(mem_new(bytes), value->data, bytes);
  }
  return weights;
}

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

/* Of this process: what is resident and not of a file. */
static long anonymous_bytes(void) {
  FILE *file = fopen("/proc/self/statm", "r");
  long resident = 0, shared = 0;
  if (file && fscanf(file, "%*d %ld %ld", &resident, &shared) != 2)
    resident = shared = 0;
  if (file)
    fclose(file);
  return (resident - shared) * sysconf(_SC_PAGESIZE);
}

/* What is measured, and how. */
struct subject {
  const struct model *model;
  const struct backend_def *backend;
  struct backend_options options;
  int executions;
  bool tells_replays;
};

static void subject_print(const struct subject *subject, const struct backend_program *program,
                          double took_ms, long before_bytes) {
  struct backend_replayed replayed = {0};
  printf("%.3f %zu", took_ms, subject->backend->memory_bytes(program));
  if (subject->tells_replays && subject->backend->replayed)
    subject->backend->replayed(program, &replayed);
  if (subject->tells_replays)
    printf(" %ld %zu %d %d", anonymous_bytes() - before_bytes, replayed.unreplayed_bytes, replayed.n_replays,
           replayed.n_steps);
  printf("\n");
}

static int measure(const struct subject *subject, struct err *err) {
  const struct model *model = subject->model;
  const struct backend_def *backend = subject->backend;
  int executions = subject->executions;
  malloc_trim(0); /* what opening the model left is not there for the program */
  long before_bytes = anonymous_bytes();
  clockid_t clock = backend_find(backend->name) ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
  int n = model->n_params + 1;
  int *watched = mem_new((size_t)n * sizeof *watched);
  double *times = mem_new((size_t)executions * sizeof *times);
  struct backend_run run = {.inputs = make_inputs(model->train), .weights = make_weights(model)};
  struct backend_program *program;
  watched[0] = model->train_loss.loss_sum;
  for (int p = 0; p < model->n_params; p++)
    watched[1 + p] = model->params[p].grad;
  struct backend_request request = {
      .graph = model->train, .watched = watched, .n_watched = n, .options = subject->options};
  if (backend->prepare(&request, &program, err))
    return err->code;
  for (int e = 0; e < executions; e++) {
    double begin = time_ms(clock);
    run.weights_version = (uint64_t)e + 1; /* weights change at every step */
    if (backend->run(program, &run, err))
      return err->code;
    times[e] = time_ms(clock) - begin;
  }
  qsort(times, (size_t)executions, sizeof *times, compare);
  subject_print(subject, program, times[executions / 2], before_bytes);
  backend->release(program);
  return 0;
}

/* "cpu", "cpu:bf16" */
static int backend_read(char *text, struct subject *subject, struct err *err) {
  char *precision = strchr(text, ':');
  if (precision)
    *precision++ = '\0';
  if (precision && !precision_find(precision, &subject->options.precision))
    return err_set(err, ERR_INVALID, "there is no precision '%s'", precision);
  subject->backend = plugin_backend(text, err);
  return subject->backend ? backend_check_precision(subject->backend, subject->options.precision, err)
                          : (int)err->code;
}

int main(int argc, char **argv) {
  float_setting_apply();
  Weir__RunSpec spec = WEIR__RUN_SPEC__INIT;
  Weir__ModelSpec model_spec = WEIR__MODEL_SPEC__INIT;
  struct subject subject = {.tells_replays = argc > 6};
  struct model *model = NULL;
  struct err err = ERR_NONE;
  void *bytes;
  size_t size;
  if (argc < 4 || atoi(argv[2]) < 1 || atoi(argv[3]) < 1 ||
      (argc > 6 && !replay_mode_find(argv[6], &subject.options.replay))) {
    fprintf(stderr,
            "usage: engine_bench FILE SAMPLES EXECUTIONS [LOSS [BACKEND[:PRECISION] [RECOMPUTE [BYTES]]]]\n");
    return 2;
  }
  model_spec.loss = argc > 4 && *argv[4] ? argv[4] : NULL;
  spec.model = &model_spec;
  char usual[] = "cpu";
  subject.executions = atoi(argv[3]);
  subject.options.most_bytes = argc > 7 ? strtoull(argv[7], NULL, 10) : 0;
  if (backend_read(argc > 5 ? argv[5] : usual, &subject, &err) ||
      model_file_read(argv[1], &bytes, &size, &err) ||
      model_open(&(struct model_source){.onnx = bytes,
                                        .size_bytes = size,
                                        .spec = model_spec.loss ? &spec : NULL,
                                        .samples = atoi(argv[2])},
                 &model, &err) ||
      (subject.model = model, measure(&subject, &err))) {
    fprintf(stderr, "engine_bench: %s\n", err.text);
    return 1;
  }
  model_close(model);
  free(bytes);
  return 0;
}
