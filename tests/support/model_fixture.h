/* Models of small ONNX files, opened with what a test sets in their spec, or refused. */
#ifndef WEIR_TESTS_MODEL_FIXTURE_H
#define WEIR_TESTS_MODEL_FIXTURE_H

#include "model/model.h"
#include "tests/support/onnx_build.h"

enum { MODEL_SAMPLES = 4 }; /* of a microbatch */

/* A spec with what a test sets in it. */
struct test_spec {
  Weir__RunSpec run;
  Weir__ModelSpec model;
  Weir__ModelSpec__InputsEntry entries[2], *entry_list[2];
  char *frozen[2];
};

void spec_init(struct test_spec *spec);

void spec_freeze(struct test_spec *spec, const char *pattern);

void spec_map(struct test_spec *spec, const char *input, const char *column);

struct model *open_model(struct onnx_build *build, const struct test_spec *spec);

/* The model is refused with the code and a text that holds this one. Ends the build. */
void refuse_model(struct onnx_build *build, const struct test_spec *spec, enum err_code code,
                  const char *text);

int count_ops(const struct graph *graph, const char *op);

/* x f32[N,2,3,3] -> BatchNormalization -> GlobalAveragePool -> Flatten -> y f32[N,2] */
void build_batch_norm(struct onnx_build *build, int opset, bool trains);

#endif
