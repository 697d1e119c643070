/* ONNX's own vectors of its training operators (ai.onnx.preview.training) against our optimizers. Each
   operator is one step of an optimizer from given slots. Where its formula is another, the nearest step of
   ours is the same:
   - Adam does not correct its moments at T = 0 (nor its epsilon later): as ours does after very many steps;
   - Momentum adds to the velocity that it is given even at T = 0: as ours does from the second step on;
   - Adagrad is PyTorch's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>

#include "common/agree/float_setting.h"
#include "common/optim/optimizer.h"
#include "tests/conformance/onnx_vector.h"

enum { SLOTS_MAX = 2, ELEMS_MAX = 64 };

static const char folder[] = "/usr/share/libonnx-testdata/data/node";
static const uint64_t after_very_many_steps = 1000000000;
static const double tolerance = 1e-6;

static double attribute_of(const struct vector *vector, const char *name, double otherwise) {
  const Onnx__NodeProto *node = vector->model->graph->node[0];
  for (size_t i = 0; i < node->n_attribute; i++)
    if (strcmp(node->attribute[i]->name, name) == 0)
      return (double)node->attribute[i]->f;
  return otherwise;
}

static bool is_nesterov(const struct vector *vector) {
  const Onnx__NodeProto *node = vector->model->graph->node[0];
  for (size_t i = 0; i < node->n_attribute; i++)
    if (strcmp(node->attribute[i]->name, "mode") == 0)
      return node->attribute[i]->s.len > 0 && node->attribute[i]->s.data[0] == 'n';
  return false;
}

static uint64_t step_of(const struct vector *vector) {
  return *(const uint64_t *)vector_tensor(vector, "input", 1)->data;
}

/* Our step of the operator; spec is settled but for what follows from the vector. */
static uint64_t map_adam(const struct vector *vector, Weir__OptimizerSpec *spec) {
  assert_int_equal(step_of(vector), 0);
  spec->betas[0] = attribute_of(vector, "alpha", 0.9);
  spec->betas[1] = attribute_of(vector, "beta", 0.999);
  spec->eps = attribute_of(vector, "epsilon", 1e-2); /* a vector was made with 1e-2 and does not say so */
  return after_very_many_steps;
}

static uint64_t map_adagrad(const struct vector *vector, Weir__OptimizerSpec *spec) {
  spec->lr_decay = attribute_of(vector, "decay_factor", 0);
  spec->eps = attribute_of(vector, "epsilon", 1e-6);
  return step_of(vector);
}

static uint64_t map_momentum(const struct vector *vector, Weir__OptimizerSpec *spec) {
  spec->momentum = attribute_of(vector, "alpha", 0);
  spec->dampening = step_of(vector) > 0 ? 1 - attribute_of(vector, "beta", 0) : 0;
  spec->nesterov = is_nesterov(vector);
  return step_of(vector) + 1;
}

static const struct mapping {
  const char *name, *optimizer;
  int slots;
  uint64_t (*map)(const struct vector *vector, Weir__OptimizerSpec *spec);
} mappings[] = {
    {"test_adam", "adam", 2, map_adam},
    {"test_adam_multiple", "adam", 2, map_adam},
    {"test_adagrad", "adagrad", 1, map_adagrad},
    {"test_adagrad_multiple", "adagrad", 1, map_adagrad},
    {"test_momentum", "sgd", 1, map_momentum},
    {"test_momentum_multiple", "sgd", 1, map_momentum},
    {"test_nesterov_momentum", "sgd", 1, map_momentum},
};

static void assert_close(const struct mapping *mapping, const float *ours, const struct value *expected) {
  const float *values = expected->data;
  for (int64_t i = 0; i < shape_elems(&expected->shape); i++)
    if (!(fabsf(ours[i] - values[i]) <= tolerance * fmax(1, fabs((double)values[i]))))
      fail_msg("%s: '%s'[%d] is %.9g, expected %.9g", mapping->name, expected->name, (int)i, (double)ours[i],
               (double)values[i]);
}

/* A vector as one step of our optimizer over n tensors. */
struct operator_step {
  const struct mapping *mapping;
  const struct vector *vector;
  const Weir__OptimizerSpec *spec;
  uint64_t step;
  int n;
};

/* Inputs are R, T, then all weights, all gradients, all of each slot; outputs are weights, then slots. */
static void check_tensor(const struct operator_step *of, int tensor) {
  const struct mapping *mapping = of->mapping;
  const struct vector *vector = of->vector;
  int n = of->n;
  const struct value *weights = vector_tensor(vector, "input", 2 + tensor);
  uint32_t elems = (uint32_t)shape_elems(&weights->shape);
  float slots[SLOTS_MAX * ELEMS_MAX], out[ELEMS_MAX];
  struct optimizer_update update = {.step = of->step,
                                    .lr = *(const float *)vector_tensor(vector, "input", 0)->data,
                                    .elems = elems,
                                    .weights = weights->data,
                                    .grad = vector_tensor(vector, "input", 2 + n + tensor)->data,
                                    .out = out,
                                    .slots = slots,
                                    .next_slots = slots};
  assert_in_range(elems, 1, ELEMS_MAX);
  for (int s = 0; s < mapping->slots; s++)
    memcpy(slots + (uint32_t)s * elems, vector_tensor(vector, "input", 2 + (2 + s) * n + tensor)->data,
           elems * sizeof *slots);
  optimizer_find(mapping->optimizer)->update(of->spec, &update);
  assert_close(mapping, out, vector_tensor(vector, "output", tensor));
  for (int s = 0; s < mapping->slots; s++)
    assert_close(mapping, slots + (uint32_t)s * elems, vector_tensor(vector, "output", (1 + s) * n + tensor));
}

static Weir__OptimizerSpec *spec_for(const struct mapping *mapping, const struct vector *vector) {
  Weir__OptimizerSpec *spec = mem_new(sizeof *spec);
  struct err err = ERR_NONE;
  weir__optimizer_spec__init(spec);
  spec->name = mem_strdup(mapping->optimizer);
  assert_int_equal(optimizer_settle(spec, &err), 0);
  spec->weight_decay = attribute_of(vector, "norm_coefficient", 0);
  return spec;
}

static void check_vector(const struct mapping *mapping) {
  char *path = mem_printf("%s/%s", folder, mapping->name), *data = mem_printf("%s/test_data_set_0", path);
  struct vector vector = {0};
  struct err err = ERR_NONE;
  Weir__OptimizerSpec *spec;
  struct operator_step step;
  if (vector_read_model(&vector, path, &err))
    fail_msg("%s: %s", mapping->name, err.text);
  vector.model->opset_import[0]->domain[0] = '\0'; /* the loader reads data of ONNX's own domain */
  if (vector_read_data(&vector, data, &err))
    fail_msg("%s: %s", mapping->name, err.text);
  spec = spec_for(mapping, &vector);
  step = (struct operator_step){.mapping = mapping,
                                .vector = &vector,
                                .spec = spec,
                                .step = mapping->map(&vector, spec),
                                .n = vector.n_outputs / (1 + mapping->slots)};
  assert_int_equal(optimizer_find(mapping->optimizer)->slots(spec), mapping->slots);
  for (int tensor = 0; tensor < step.n; tensor++)
    check_tensor(&step, tensor);
  weir__optimizer_spec__free_unpacked(spec, NULL);
  vector_fini(&vector);
  free(path);
  free(data);
}

static void onnx_training_operators_give_our_steps(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof mappings / sizeof *mappings; i++)
    check_vector(&mappings[i]);
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(onnx_training_operators_give_our_steps),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
