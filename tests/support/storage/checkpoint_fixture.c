#include "tests/support/storage/checkpoint_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "client/models/model_kind.h"
#include "common/agree/spec.h"
#include "common/base/message.h"
#include "model/model.h"
#include "tests/support/model/model_bytes.h"

extern const struct model_kind_def model_kind_mlp;

static const char tiny_spec_text[] =
    "name: tiny\n"
    "model: {onnx: mlp.onnx, loss: cross_entropy}\n"
    "data: {train: {format: idx, images: i, labels: l}}\n"
    "train: {steps: 20, batch: 8, microbatches: 2, optimizer: {name: sgd, lr: 0.1, momentum: 0.9}}\n";

uint8_t *tiny_model(size_t *size) {
  static const char *const options[] = {"--input", "1,4,4", "--classes", "3", "--hidden", "5", NULL};
  struct model_recipe recipe = {.kind = &model_kind_mlp, .options = options, .seed = 1};
  struct err err = ERR_NONE;
  void *onnx;
  assert_int_equal(model_bytes(&recipe, &onnx, size, &err), 0);
  return onnx;
}

Weir__RunSpec *tiny_spec(void) {
  Weir__RunSpec *spec;
  struct err err = ERR_NONE;
  assert_int_equal(spec_read("spec", tiny_spec_text, sizeof tiny_spec_text - 1, &spec, &err), 0);
  assert_int_equal(spec_check(spec, &err), 0);
  return spec;
}

float tiny_weight(uint64_t step, size_t i) {
  return (float)step + (float)i / 256;
}

Weir__Manifest *tiny_manifest(struct store *store, const char *run, uint64_t step) {
  Weir__Manifest manifest = WEIR__MANIFEST__INIT;
  Weir__Plan plan = WEIR__PLAN__INIT;
  Weir__WrittenBlock blocks[TINY_BLOCKS], *list[TINY_BLOCKS];
  char keys[TINY_BLOCKS][STORE_KEY_SIZE], model_key[STORE_KEY_SIZE];
  struct err err = ERR_NONE;
  struct model *model;
  Weir__Manifest *copy;
  size_t onnx_bytes;
  uint8_t *onnx = tiny_model(&onnx_bytes);
  manifest.spec = tiny_spec();
  assert_int_equal(store_put(store, onnx, onnx_bytes, model_key, &err), 0);
  assert_int_equal(
      model_open(
          &(struct model_source){.onnx = onnx, .size_bytes = onnx_bytes, .spec = manifest.spec, .samples = 4},
          &model, &err),
      0);
  assert_int_equal(model->n_blocks, TINY_BLOCKS);
  assert_int_equal(model->param_elems, TINY_PARAMS);
  for (uint32_t b = 0; b < TINY_BLOCKS; b++) {
    uint32_t elems = model->blocks[b].elems;
    float *values = mem_new(2 * elems * sizeof *values);
    for (uint32_t i = 0; i < elems && b < model->n_param_blocks; i++) {
      values[i] = tiny_weight(step, model->blocks[b].begin + i);
      values[elems + i] = -values[i];
    }
    assert_int_equal(store_put(store, values, 2 * elems * sizeof *values, keys[b], &err), 0);
    free(values);
    weir__written_block__init(&blocks[b]);
    blocks[b].block = b;
    blocks[b].bytes = 2 * elems * sizeof(float);
    blocks[b].sha256 = keys[b];
    list[b] = &blocks[b];
  }
  plan.train_samples = TINY_SAMPLES;
  plan.steps = TINY_STEPS;
  manifest.run = (char *)run;
  manifest.plan = &plan;
  manifest.model_sha256 = model_key;
  manifest.incarnation = 1;
  manifest.term = 1;
  manifest.step = step;
  manifest.blocks = list;
  manifest.n_blocks = TINY_BLOCKS;
  copy = message_copy(&manifest);
  spec_free(manifest.spec);
  model_close(model);
  free(onnx);
  return copy;
}
