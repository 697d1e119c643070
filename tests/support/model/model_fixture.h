/* Models of small ONNX files (onnx_build.h), opened with what a test sets in the spec, or refused:
   spec_init(&spec); spec_freeze(&spec, "fc1"); model = open_model(&build, &spec). */
#ifndef WEIR_TESTS_SUPPORT_MODEL_MODEL_FIXTURE_H
#define WEIR_TESTS_SUPPORT_MODEL_MODEL_FIXTURE_H

#include "model/model.h"
#include "tests/support/model/onnx_build.h"

enum { MODEL_SAMPLES = 4 }; /* of a microbatch */

/* A spec with what a test sets in it. */
struct test_spec {
  Weir__RunSpec run;
  Weir__ModelSpec model;
  Weir__ModelSpec__InputsEntry entries[2], *entry_list[2];
  char *frozen[2];
};

/* An empty spec, to which at most two frozen patterns and two inputs are added: spec_map() feeds the graph
   input from the dataset's column. Texts are not copied; nothing is to be freed. */
void spec_init(struct test_spec *spec);
void spec_freeze(struct test_spec *spec, const char *pattern);
void spec_map(struct test_spec *spec, const char *input, const char *column);

/* Opens the built file in microbatches of MODEL_SAMPLES; it must be accepted. spec may be NULL, as for
   `weir inspect`. The caller closes the model and ends the build. */
struct model *open_model(struct onnx_build *build, const struct test_spec *spec);

/* Asserts that the same is refused, with this code and a text that holds `text`. Ends the build. */
void refuse_model(struct onnx_build *build, const struct test_spec *spec, enum err_code code,
                  const char *text);

/* How many nodes have this ONNX operator. */
int count_ops(const struct graph *graph, const char *op);

/* Begins a build and fills it: x f32[N,2,3,3] -> BatchNormalization -> GlobalAveragePool -> Flatten -> y
   f32[N,2]. trains: with the outputs (and from opset 14 on the attribute) of training mode. */
void build_batch_norm(struct onnx_build *build, int opset, bool trains);

#endif
