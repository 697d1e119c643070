#include "tests/support/worker/network.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/random.h"
#include "model/graph/autodiff.h"
#include "model/losses/loss.h"
#include "worker/backend/plugin.h"

static const float *random_data(struct graph *graph, const struct shape *shape, uint64_t key, float scale) {
  int64_t elems = shape_elems(shape);
  float *data = arena_new(&graph->arena, (size_t)elems * sizeof *data);
  for (int64_t i = 0; i < elems; i++)
    data[i] = (2 * random_uniform(random_key(key, 0, 0, 0), (uint64_t)i) - 1) * scale;
  return data;
}

int add_weight(struct network *f, struct shape shape, float scale) {
  struct value value = {.kind = VALUE_INITIALIZER, .dtype = DTYPE_F32, .shape = shape, .producer = -1};
  value.param = value.statistic = -1;
  value.data = random_data(f->graph, &shape, 100 + (uint64_t)f->n_weights, scale);
  f->weights[f->n_weights] = graph_add_value(f->graph, value);
  return f->weights[f->n_weights++];
}

int add_node(struct network *f, const char *op, struct value_list inputs, struct attr_list attrs) {
  return graph_add_node(f->graph, op, inputs, 1, attrs)->outputs[0];
}

int add_conv(struct network *f, int x, int64_t in, int64_t out, int64_t group) {
  struct attr attrs[] = {
      {.name = "kernel_shape", .type = ATTR_INTS, .n = 2, .ints = (int64_t[]){3, 3}},
      {.name = "pads", .type = ATTR_INTS, .n = 4, .ints = (int64_t[]){1, 1, 1, 1}},
      {.name = "group", .type = ATTR_INT, .i = group},
  };
  int w = add_weight(f, (struct shape){4, {out, in / group, 3, 3}}, 0.4f);
  int b = add_weight(f, (struct shape){1, {out}}, 0.2f);
  return add_node(f, "Conv", VALUES(x, w, b), (struct attr_list){attrs, 3});
}

int add_batch_norm(struct network *f, int x, int64_t channels) {
  int scale = add_weight(f, (struct shape){1, {channels}}, 1);
  int shift = add_weight(f, (struct shape){1, {channels}}, 0.5f);
  return graph_add_node(f->graph, "BatchNormTraining", VALUES(x, scale, shift), 4, ATTRS_NONE)->outputs[0];
}

int add_max_pool(struct network *f, int x) {
  struct attr attrs[] = {
      {.name = "kernel_shape", .type = ATTR_INTS, .n = 2, .ints = (int64_t[]){2, 2}},
      {.name = "strides", .type = ATTR_INTS, .n = 2, .ints = (int64_t[]){2, 2}},
  };
  return add_node(f, "MaxPool", VALUES(x), (struct attr_list){attrs, 2});
}

int add_gemm(struct network *f, int x, int64_t in, int64_t out) {
  struct attr attr = {.name = "transB", .type = ATTR_INT, .i = 1};
  int w = add_weight(f, (struct shape){2, {out, in}}, 0.2f);
  int b = add_weight(f, (struct shape){1, {out}}, 0.1f);
  return add_node(f, "Gemm", VALUES(x, w, b), ATTR_LIST(attr));
}

int add_mean(struct network *f, int x) {
  struct attr attrs[] = {
      {.name = "axes", .type = ATTR_INTS, .n = 2, .ints = (int64_t[]){2, 3}},
      {.name = "keepdims", .type = ATTR_INT, .i = 0},
  };
  return add_node(f, "ReduceMean", VALUES(x), (struct attr_list){attrs, 2});
}

void add_backward(struct network *f, int logits) {
  const struct loss_def *loss = loss_find("cross_entropy");
  Weir__LossOptions options = WEIR__LOSS_OPTIONS__INIT;
  struct loss_site site = {
      .graph = f->graph, .output = logits, .samples = BATCH, .options = &options, .loss = loss};
  struct err err = ERR_NONE;
  assert_int_equal(loss->attach(&site, &err), ERR_OK);
  add_gradients(f, site.values.loss_sum);
}

void add_gradients(struct network *f, int loss_sum) {
  struct err err = ERR_NONE;
  bool *wanted;
  int *grads, seed;
  seed = graph_add_constant_f32(f->graph, 1.0f / BATCH);
  wanted = mem_new((size_t)f->graph->n_values);
  grads = mem_new((size_t)f->graph->n_values * sizeof *grads);
  for (int w = 0; w < f->n_weights; w++)
    wanted[f->weights[w]] = true;
  assert_int_equal(
      autodiff_run(f->graph,
                   &(struct derivative){.roots = &loss_sum, .seeds = &seed, .n_roots = 1, .wanted = wanted},
                   grads, &err),
      ERR_OK);
  f->watched[f->n_watched++] = loss_sum;
  for (int w = 0; w < f->n_weights; w++)
    f->watched[f->n_watched++] = grads[f->weights[w]];
  free(wanted);
  free(grads);
}

void network_feed(struct network *f, const struct shape *images) {
  f->images = (float *)random_data(f->graph, images, 7, 1);
  for (int i = 0; i < BATCH; i++)
    f->labels[i] = i * 7 % CLASSES;
  f->inputs[0] = f->images;
  f->inputs[1] = f->labels;
}

void network_init(struct network *f) {
  struct shape image = {4, {BATCH, 1, 12, 12}};
  *f = (struct network){.graph = graph_new()};
  f->graph->opset = 17;
  f->graph->is_training = true;
  int x = graph_add_input(f->graph, "images", DTYPE_F32, &image);
  x = add_conv(f, x, 1, 20, 1);
  x = add_batch_norm(f, x, 20);
  x = add_max_pool(f, add_node(f, "Relu", VALUES(x), ATTRS_NONE));
  int y = add_conv(f, x, 20, 20, 2);
  y = add_node(f, "Relu", VALUES(y), ATTRS_NONE);
  y = add_node(f, "Add", VALUES(x, y), ATTRS_NONE);
  x = add_max_pool(f, y);
  x = add_node(f, "Flatten", VALUES(x), ATTRS_NONE);
  x = add_node(f, "Add", VALUES(add_gemm(f, x, 180, 32), add_gemm(f, add_mean(f, y), 20, 32)), ATTRS_NONE);
  x = add_gemm(f, add_node(f, "Relu", VALUES(x), ATTRS_NONE), 32, CLASSES);
  add_backward(f, x);
  network_feed(f, &image);
}

void network_init_wide(struct network *f) {
  static const int64_t widths[] = {144, 2048, 640, 2048, 640, 2048};
  struct shape image = {4, {BATCH, 1, 12, 12}};
  *f = (struct network){.graph = graph_new()};
  f->graph->opset = 17;
  f->graph->is_training = true;
  int x = graph_add_input(f->graph, "images", DTYPE_F32, &image);
  x = add_node(f, "Flatten", VALUES(x), ATTRS_NONE);
  for (int layer = 0; layer < 5; layer++) {
    x = add_gemm(f, x, widths[layer], widths[layer + 1]);
    f->watched[f->n_watched++] = x;
    x = add_node(f, "Tanh", VALUES(x), ATTRS_NONE);
  }
  add_backward(f, add_gemm(f, x, 2048, CLASSES));
  network_feed(f, &image);
  for (int64_t i = 0; i < shape_elems(&image); i++) /* so many weights make much of little */
    f->images[i] *= 0.01f;
}

void network_fini(struct network *f) {
  graph_free(f->graph);
}

size_t watched_bytes(const struct network *f, int watch) {
  return (size_t)shape_elems(&f->graph->values[f->watched[watch]].shape) * sizeof(float);
}

void answer_init(struct answer *a, const struct network *f) {
  *a = (struct answer){.network = f};
  for (int w = 0; w < f->n_watched; w++)
    a->values[w] = mem_new(watched_bytes(f, w));
}

void answer_fini(struct answer *a) {
  for (int w = 0; w < a->network->n_watched; w++)
    free(a->values[w]);
}

void keep_value(void *user, int watch, const float *data) {
  struct answer *a = user;
  memcpy(a->values[watch], data, watched_bytes(a->network, watch));
  a->order[a->n++] = watch;
}

const struct backend_def *backend_of(const char *name) {
  struct err err = ERR_NONE;
  const struct backend_def *backend = plugin_backend(name, &err);
  if (!backend)
    fail_msg("%s", err.text);
  return backend;
}

struct backend_program *network_prepare_with(const char *backend, const struct network *f,
                                             const struct backend_options *options) {
  struct backend_program *program = NULL;
  struct err err = ERR_NONE;
  struct backend_request request = {.graph = f->graph, .watched = f->watched, .n_watched = f->n_watched};
  if (options)
    request.options = *options;
  if (backend_of(backend)->prepare(&request, &program, &err))
    fail_msg("%s", err.text);
  return program;
}

struct backend_program *network_prepare(const char *backend, const struct network *f) {
  return network_prepare_with(backend, f, NULL);
}

void network_run(const char *backend, struct backend_program *program, const float *const *weights,
                 uint64_t version, struct answer *a) {
  struct err err = ERR_NONE;
  struct backend_run execution = {
      .inputs = a->network->inputs, .weights = weights, .weights_version = version};
  execution.on_value = keep_value;
  execution.user = a;
  a->n = 0;
  if (backend_of(backend)->run(program, &execution, &err))
    fail_msg("%s", err.text);
}

void network_run_once(const char *backend, const struct network *f, struct answer *a) {
  struct backend_program *program = network_prepare(backend, f);
  answer_init(a, f);
  network_run(backend, program, NULL, 0, a);
  backend_of(backend)->release(program);
}

bool answer_is_same(const struct answer *a, const struct answer *b) {
  for (int w = 0; w < a->network->n_watched; w++)
    if (memcmp(a->values[w], b->values[w], watched_bytes(a->network, w)) != 0)
      return false;
  return true;
}

void answer_check_near(const struct answer *a, const struct answer *expected, double tolerance) {
  const struct network *f = a->network;
  for (int w = 0; w < f->n_watched; w++) {
    double error = 0, norm = 0;
    for (size_t i = 0; i < watched_bytes(f, w) / sizeof(float); i++) {
      error += pow((double)a->values[w][i] - expected->values[w][i], 2);
      norm += pow((double)expected->values[w][i], 2);
    }
    if (!(sqrt(error) <= tolerance * sqrt(norm) + 1e-6))
      fail_msg("watch %d: error %g, norm %g", w, sqrt(error), sqrt(norm));
  }
}
