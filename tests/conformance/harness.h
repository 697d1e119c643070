/* What the conformance suites share: TAP lines, one execution of a graph on a backend, comparison of tensors.
   Header-only, because every .c of this folder is a program of its own. */
#ifndef WEIR_TESTS_CONFORMANCE_HARNESS_H
#define WEIR_TESTS_CONFORMANCE_HARNESS_H

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/graph/op.h"
#include "tests/conformance/host_nodes.h"
#include "worker/backend/plugin.h"

/* Test results in the Test Anything Protocol. */
static struct { int count, failed, skipped; } tap;

/* What was printed is seen even if the program dies. */
static inline void tap_init(void) {
  setvbuf(stdout, NULL, _IOLBF, 0);
}

__attribute__((format(printf, 2, 3))) static inline void tap_result(bool is_ok, const char *format, ...) {
  va_list args;
  tap.failed += !is_ok;
  printf("%s %d - ", is_ok ? "ok" : "not ok", ++tap.count);
  va_start(args, format);
  vprintf(format, args);
  va_end(args);
  putchar('\n');
}

static inline void tap_skip(const char *name, const char *reason) {
  tap.skipped++;
  printf("ok %d - %s # SKIP %s\n", ++tap.count, name, reason);
}

/* The plan, and a last line for people. Returns the program's exit status. */
static inline int tap_finish(void) {
  printf("1..%d\n# %d passed, %d failed, %d skipped\n", tap.count, tap.count - tap.failed - tap.skipped,
         tap.failed, tap.skipped);
  return tap.failed != 0;
}

/* A file of the build that this program is of: WEIR_CUDA names it, if it is there and no other is named. */
static inline void suite_name_file(const char *name) {
  char self[4096];
  ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
  char *tests = NULL;
  self[length > 0 ? length : 0] = '\0';
  for (char *at = self; (at = strstr(at, "/tests/")); at++)
    tests = at;
  if (!tests)
    return;
  snprintf(tests, sizeof self - (size_t)(tests - self), "/%s", name);
  if (access(self, F_OK) == 0)
    setenv("WEIR_CUDA", self, 0);
}

/* The plugin that was built with this program, unless WEIR_CUDA names another. */
static inline void suite_name_plugin(void) {
  suite_name_file("weir-cuda.so");
}

/* The backend "cuda" for a suite of its own: on a GPU if the program's first argument is its name, else on
   the simulated device. NULL with an error: of plugin_load. */
static inline const struct backend_def *suite_cuda(int *argc, char ***argv, struct err *err) {
  bool is_real = *argc > 1 && strcmp((*argv)[1], PLUGIN_BACKEND) == 0;
  *argc -= is_real;
  *argv += is_real;
  suite_name_file(is_real ? "weir-cuda.so" : "simulation/weir-cuda.so");
  return plugin_backend(PLUGIN_BACKEND, err);
}

/* Of a backend with a device. is_whole: the suite has executed all that it has, so that each reason was met.
 */
static inline void suite_tell_host_nodes(bool is_whole) {
  tap_result(host_nodes.strays == 0, "only what is listed runs on the host (%d nodes)", host_nodes.n);
  for (size_t i = 0; is_whole && i < HOST_REASONS; i++)
    if (!host_reasons[i].is_of_vectors)
      tap_result(host_nodes.met[i], "%s runs on the host: %s", host_reasons[i].op, host_reasons[i].why);
}

enum { BACKENDS_MAX = 8 };

/* The backends that a suite is run on; ends with NULL. */
struct backends {
  const struct backend_def *at[BACKENDS_MAX + 1];
};

/* The built-in ones, or the one that is named, which compute in that precision here. False with an error,
   that of plugin_backend or backend_check_precision, if there is none. */
static inline bool backends_init(struct backends *backends, const char *only, enum precision precision,
                                 struct err *err) {
  int n = 0;
  *backends = (struct backends){{NULL}};
  suite_name_plugin();
  for (int b = 0; backend_at(b) && n < BACKENDS_MAX; b++)
    if (!only && backend_check_precision(backend_at(b), precision, err) == ERR_OK)
      backends->at[n++] = backend_at(b);
  if (only)
    backends->at[0] = plugin_backend(only, err);
  if (only && backends->at[0] && backend_check_precision(backends->at[0], precision, err))
    backends->at[0] = NULL;
  return backends->at[0] != NULL;
}

/* Of a backend that cannot be had on this machine: the whole suite is one skip. Returns the exit status. */
static inline int suite_skip(const char *backend, const struct err *err) {
  tap_skip(backend ? backend : "the suite", err->text);
  return tap_finish();
}

static inline int64_t value_elems(const struct graph *graph, int value) {
  return shape_elems(&graph->values[value].shape);
}

static inline size_t value_size(const struct graph *graph, int value) {
  return (size_t)value_elems(graph, value) * dtype_size(graph->values[value].dtype);
}

/* Values to read after an execution, and their bytes. */
struct outcome {
  const struct graph *graph;
  int *values, n;
  void **data; /* [n], owned */
};

static inline void outcome_init(struct outcome *outcome, const struct graph *graph, const int *values,
                                int n) {
  *outcome = (struct outcome){.graph = graph, .n = n};
  outcome->values = mem_new((size_t)n * sizeof *outcome->values);
  outcome->data = mem_new((size_t)n * sizeof *outcome->data);
  for (int i = 0; i < n; i++) {
    outcome->values[i] = values[i];
    outcome->data[i] = mem_new(value_size(graph, values[i]) + 1);
  }
}

static inline void outcome_fini(struct outcome *outcome) {
  for (int i = 0; i < outcome->n; i++)
    free(outcome->data[i]);
  free(outcome->data);
  free(outcome->values);
}

static inline void outcome_on_value(void *user, int watch, const float *data) {
  struct outcome *outcome = user;
  memcpy(outcome->data[watch], data, value_size(outcome->graph, outcome->values[watch]));
}

/* The values that no node computes are known without execution. */
static inline void outcome_copy_known(struct outcome *outcome, const void *const *inputs) {
  const struct graph *graph = outcome->graph;
  for (int i = 0; i < outcome->n; i++) {
    const void *known = graph->values[outcome->values[i]].data;
    for (int k = 0; k < graph->n_inputs; k++)
      if (graph->inputs[k] == outcome->values[i])
        known = inputs[k];
    if (graph->values[outcome->values[i]].kind != VALUE_RESULT && known)
      memcpy(outcome->data[i], known, value_size(graph, outcome->values[i]));
  }
}

enum { USUAL_SEED = 7 };

/* What an execution starts from. */
struct feed {
  const void *const *inputs;
  uint64_t seed; /* of what the ops draw */
};

/* Runs a prepared graph once, into outcome. */
static inline int program_run(const struct backend_def *backend, struct backend_program *program,
                              const struct feed *feed, struct outcome *outcome, struct err *err) {
  struct backend_run run = {.inputs = feed->inputs,
                            .context = {.seed = feed->seed, .step = 3, .microbatch = 2},
                            .on_value = outcome_on_value,
                            .user = outcome};
  outcome_copy_known(outcome, feed->inputs);
  return backend->run(program, &run, err);
}

/* Runs a prepared graph once more. Errors: INTERNAL unless it gives the outcome's bits. */
static inline int program_run_again(const struct backend_def *backend, struct backend_program *program,
                                    const struct feed *feed, const struct outcome *outcome, struct err *err) {
  struct outcome again;
  outcome_init(&again, outcome->graph, outcome->values, outcome->n);
  int code = program_run(backend, program, feed, &again, err);
  for (int i = 0; i < outcome->n && !code; i++)
    if (memcmp(outcome->data[i], again.data[i], value_size(outcome->graph, outcome->values[i])) != 0)
      code = err_set(err, ERR_INTERNAL, "a second execution gives other bits of '%s'",
                     outcome->graph->values[outcome->values[i]].name);
  outcome_fini(&again);
  return code;
}

/* The outcome's graph with every forward step run again that may be. */
static inline int graph_replay(const struct backend_def *backend, const struct backend_request *request,
                               const struct feed *feed, const struct outcome *outcome, struct err *err) {
  struct backend_request all = *request;
  struct backend_program *program = NULL;
  all.options.replay = REPLAY_ALWAYS;
  int code = backend->prepare(&all, &program, err);
  if (!code && program_run_again(backend, program, feed, outcome, err))
    code = err_append(err, ", computed again for the backward part");
  backend->release(program);
  return code;
}

/* Prepares and runs the outcome's graph, twice: the second execution must give the first one's bits, and so
   must one that computes activations again. options NULL: the usual ones. */
static inline int graph_execute(const struct backend_def *backend, const struct backend_options *options,
                                const void *const *inputs, struct outcome *outcome, struct err *err) {
  const struct graph *graph = outcome->graph;
  struct backend_request request = {.graph = graph, .watched = outcome->values, .n_watched = outcome->n};
  struct feed feed = {.inputs = inputs, .seed = USUAL_SEED};
  struct backend_program *program = NULL;
  if (options)
    request.options = *options;
  int code = backend->prepare(&request, &program, err);
  if (!code)
    host_nodes_note(backend, program, graph);
  if (!code)
    code = program_run(backend, program, &feed, outcome, err);
  if (!code)
    code = program_run_again(backend, program, &feed, outcome, err);
  backend->release(program);
  if (!code && backend->replayed && !request.options.is_fast)
    code = graph_replay(backend, &request, &feed, outcome, err);
  return code;
}

/* Says why where it is not executed. */
static inline bool graph_executes(const struct backend_def *backend, enum precision precision,
                                  const void *const *inputs, struct outcome *outcome) {
  struct backend_options options = {.precision = precision};
  struct err err = ERR_NONE;
  if (!graph_execute(backend, &options, inputs, outcome, &err))
    return true;
  printf("# %s\n", err.text);
  return false;
}

static inline double element_at(enum dtype dtype, const void *data, int64_t i) {
  switch (dtype) {
  case DTYPE_F32:
    return ((const float *)data)[i];
  case DTYPE_I32:
    return ((const int32_t *)data)[i];
  case DTYPE_I64:
    return (double)((const int64_t *)data)[i];
  default:
    return ((const uint8_t *)data)[i];
  }
}

struct tolerance {
  double relative, absolute;
};

/* Two tensors of a shape. */
struct tensor_pair {
  enum dtype dtype;
  int64_t elems;
  const void *got, *want;
};

/* True if every element of got is near that of want: |got - want| <= absolute + relative |want|; whole
   numbers are the same. Else `text` says which is the first that is not. */
static inline bool tensors_agree(const struct tensor_pair *pair, struct tolerance tolerance, char *text,
                                 size_t size) {
  for (int64_t i = 0; i < pair->elems; i++) {
    double g = element_at(pair->dtype, pair->got, i), w = element_at(pair->dtype, pair->want, i);
    bool is_same = g == w || (isnan(g) && isnan(w));
    if (is_same ||
        (pair->dtype == DTYPE_F32 && fabs(g - w) <= tolerance.absolute + tolerance.relative * fabs(w)))
      continue;
    snprintf(text, size, "element %lld is %.9g, expected %.9g", (long long)i, g, w);
    return false;
  }
  return true;
}

#endif
