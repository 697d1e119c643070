/* Every loss with every option against PyTorch's numbers (tests/parity/losses.json, which losses.py beside it
   makes): the mean over a step and its gradient, from one microbatch and from four, on every backend. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/agree/float_setting.h"
#include "common/agree/spec.h"
#include "model/graph/autodiff.h"
#include "model/losses/loss.h"
#include "worker/backend/backend.h"

enum { WATCHED = 5 }; /* loss_sum, gradient, correct, scored, denominator */

/* A case of the file, and what of it was computed so far. */
struct trial {
  json_t *json;
  const char *name;
  const struct loss_def *loss;
  Weir__RunSpec *spec;
  struct shape shape; /* of the whole step's output */
  int64_t elems;
  float *output;
  double sums[WATCHED];
  float *gradient; /* f32[elems] */
};

/* The loss of one microbatch, with the gradient of its output. */
struct piece {
  struct graph *graph;
  struct loss_site site;
  int watched[WATCHED], n_watched;
  struct trial *trial;
  int64_t first, elems; /* of the step's output */
};

static double number_at(const struct trial *trial, const char *key, int64_t i) {
  return json_number_value(json_array_get(json_object_get(trial->json, key), (size_t)i));
}

static void trial_init(struct trial *trial, json_t *json) {
  struct err err = ERR_NONE;
  json_t *shape = json_object_get(json, "shape");
  char *options = json_dumps(json_object_get(json, "options"), JSON_REAL_PRECISION(15)), *text;
  *trial = (struct trial){.json = json, .name = json_string_value(json_object_get(json, "name"))};
  trial->loss = loss_find(json_string_value(json_object_get(json, "loss")));
  text = mem_printf("model: {loss_options: %s}", options);
  if (spec_read("options", text, strlen(text), &trial->spec, &err))
    fail_msg("%s: %s", trial->name, err.text);
  free(text);
  free(options);
  trial->shape.rank = (int)json_array_size(shape);
  for (int d = 0; d < trial->shape.rank; d++)
    trial->shape.dim[d] = json_integer_value(json_array_get(shape, (size_t)d));
  trial->elems = shape_elems(&trial->shape);
  trial->output = mem_new((size_t)trial->elems * sizeof *trial->output);
  trial->gradient = mem_new((size_t)trial->elems * sizeof *trial->gradient);
  for (int64_t i = 0; i < trial->elems; i++)
    trial->output[i] = (float)number_at(trial, "output", i);
}

static void trial_fini(struct trial *trial) {
  spec_free(trial->spec);
  free(trial->output);
  free(trial->gradient);
}

/* Inputs of the graph: the output, the labels, the scale. */
static void piece_init(struct piece *piece, struct trial *trial, int64_t samples) {
  struct shape shape = trial->shape;
  struct err err = ERR_NONE;
  struct loss_site *site = &piece->site;
  bool *wanted;
  int *grads, seed;
  *piece = (struct piece){.graph = graph_new(), .trial = trial};
  piece->graph->opset = 17;
  shape.dim[0] = samples;
  piece->elems = shape_elems(&shape);
  *site = (struct loss_site){.graph = piece->graph,
                             .output = graph_add_input(piece->graph, "output", DTYPE_F32, &shape),
                             .samples = samples,
                             .options = trial->spec->model->loss_options,
                             .loss = trial->loss};
  if (loss_check_options(trial->loss, site->options, &err) || trial->loss->attach(site, &err))
    fail_msg("%s: %s", trial->name, err.text);
  seed = graph_add_input(piece->graph, "scale", DTYPE_F32, &(struct shape){0});
  wanted = mem_new((size_t)piece->graph->n_values);
  grads = mem_new((size_t)piece->graph->n_values * sizeof *grads);
  wanted[site->output] = true;
  if (autodiff_run(piece->graph,
                   &(struct derivative){
                       .roots = &site->values.loss_sum, .seeds = &seed, .n_roots = 1, .wanted = wanted},
                   grads, &err))
    fail_msg("%s: %s", trial->name, err.text);
  piece->watched[0] = site->values.loss_sum;
  piece->watched[1] = grads[site->output];
  piece->watched[2] = site->values.correct;
  piece->watched[3] = site->values.scored;
  piece->watched[4] = site->values.denominator;
  piece->n_watched = site->rule.classes > 0 ? WATCHED : 2;
  free(wanted);
  free(grads);
}

static void on_value(void *user, int watch, const float *data) {
  struct piece *piece = user;
  if (watch == 1)
    memcpy(piece->trial->gradient + piece->first, data, (size_t)piece->elems * sizeof *data);
  else
    piece->trial->sums[watch] += (double)data[0];
}

/* What the labels of the whole step add up to. */
static double denominator_of(const struct trial *trial, const struct label_rule *rule) {
  size_t n = json_array_size(json_object_get(trial->json, "labels"));
  double sum = 0;
  if (rule->classes == 0)
    return (double)trial->shape.dim[0] * rule->sample_denominator;
  for (size_t i = 0; i < n; i++)
    sum += label_weight(rule, (int64_t)number_at(trial, "labels", (int64_t)i));
  return sum;
}

/* Labels of the microbatch that begins at label `first`, as the graph wants them; freed by the caller. */
static void *labels_of(const struct piece *piece, int64_t first) {
  const struct value *value = &piece->graph->values[piece->site.labels];
  int64_t n = shape_elems(&value->shape);
  void *labels = mem_new((size_t)n * dtype_size(value->dtype));
  for (int64_t i = 0; i < n; i++)
    if (value->dtype == DTYPE_I64)
      ((int64_t *)labels)[i] = (int64_t)number_at(piece->trial, "labels", first + i);
    else
      ((float *)labels)[i] = (float)number_at(piece->trial, "labels", first + i);
  return labels;
}

/* Runs the step in that many microbatches. Returns its mean loss. */
static double run_step(struct trial *trial, const struct backend_def *backend, int microbatches) {
  struct err err = ERR_NONE;
  struct backend_program *program;
  struct piece piece;
  double denominator;
  float scale;
  piece_init(&piece, trial, trial->shape.dim[0] / microbatches);
  denominator = denominator_of(trial, &piece.site.rule);
  scale = (float)(1 / denominator);
  memset(trial->sums, 0, sizeof trial->sums);
  if (backend->prepare(&(struct backend_request){.graph = piece.graph,
                                                 .watched = piece.watched,
                                                 .n_watched = piece.n_watched},
                       &program, &err))
    fail_msg("%s: %s", trial->name, err.text);
  for (int m = 0; m < microbatches; m++) {
    int64_t labels_each = shape_elems(&piece.graph->values[piece.site.labels].shape);
    void *labels = labels_of(&piece, m * labels_each);
    const void *inputs[] = {trial->output + m * piece.elems, labels, &scale};
    struct backend_run run = {.inputs = inputs, .on_value = on_value, .user = &piece};
    piece.first = m * piece.elems;
    if (backend->run(program, &run, &err))
      fail_msg("%s: %s", trial->name, err.text);
    free(labels);
  }
  if (piece.n_watched == WATCHED)
    assert_true(fabs(trial->sums[4] - denominator) <= 1e-6 * denominator);
  backend->release(program);
  graph_free(piece.graph);
  return trial->sums[0] / denominator;
}

static bool is_near(double got, double want) {
  return fabs(got - want) <= 1e-8 + 1e-6 * fabs(want);
}

static void check_step(struct trial *trial, const struct backend_def *backend, int microbatches) {
  double mean = run_step(trial, backend, microbatches);
  double wanted = json_number_value(json_object_get(trial->json, "mean"));
  if (!is_near(mean, wanted))
    fail_msg("%s on %s, %d microbatches: the mean is %.9g, PyTorch's %.9g", trial->name, backend->name,
             microbatches, mean, wanted);
  for (int64_t i = 0; i < trial->elems; i++)
    if (!is_near((double)trial->gradient[i], number_at(trial, "gradient", i)))
      fail_msg("%s on %s, %d microbatches: element %lld of the gradient is %.9g, PyTorch's %.9g", trial->name,
               backend->name, microbatches, (long long)i, (double)trial->gradient[i],
               number_at(trial, "gradient", i));
  assert_true(trial->sums[2] == (double)json_integer_value(json_object_get(trial->json, "correct")));
  assert_true(trial->sums[3] == (double)json_integer_value(json_object_get(trial->json, "scored")));
}

static void losses_and_gradients_are_pytorch_s_whatever_the_microbatches(void **state) {
  json_error_t why;
  json_t *file = json_load_file("tests/parity/losses.json", 0, &why), *cases, *each;
  size_t i;
  (void)state;
  if (!file)
    fail_msg("tests/parity/losses.json: %s", why.text);
  cases = json_object_get(file, "cases");
  assert_in_range(json_array_size(cases), 20, 1000);
  json_array_foreach(cases, i, each) {
    struct trial trial;
    trial_init(&trial, each);
    for (int b = 0; backend_at(b); b++) {
      check_step(&trial, backend_at(b), 1);
      check_step(&trial, backend_at(b), 4);
    }
    trial_fini(&trial);
  }
  json_decref(file);
}

static void every_loss_has_a_case(void **state) {
  json_t *file = json_load_file("tests/parity/losses.json", 0, NULL), *each;
  (void)state;
  for (int row = 0; loss_at(row); row++) {
    const char *name = loss_at(row)->name;
    bool is_there = false;
    size_t i;
    json_array_foreach(json_object_get(file, "cases"), i, each) is_there |=
        strcmp(json_string_value(json_object_get(each, "loss")), name) == 0;
    if (!is_there)
      fail_msg("tests/parity/losses.json has no case of '%s'", name);
  }
  json_decref(file);
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(losses_and_gradients_are_pytorch_s_whatever_the_microbatches),
      cmocka_unit_test(every_loss_has_a_case),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
