/* A small model with momentum, and checkpoints of it written as a server would write them. */
#ifndef WEIR_TESTS_CHECKPOINT_FIXTURE_H
#define WEIR_TESTS_CHECKPOINT_FIXTURE_H

#include <stdlib.h>
#include <string.h>

#include "common/agree/spec.h"
#include "common/base/message.h"
#include "model/model.h"
#include "storage/checkpoint/checkpoint.h"
#include "tests/support/model_bytes.h"

enum { TINY_STEPS = 20, TINY_SAMPLES = 100, TINY_PARAMS = 16 * 5 + 5 + 5 * 3 + 3, TINY_BLOCKS = 2 };

/* The ONNX file; freed by the caller. */
uint8_t *tiny_model(size_t *size);

Weir__RunSpec *tiny_spec(void);

/* What element i of the flat parameter vector is in a test's version. */
float tiny_weight(uint64_t step, size_t i);

/* Writes the model and the blocks of a version (weights, one slot) and makes the manifest. The statistics
   block is the same in all versions. Freed with message_free. */
Weir__Manifest *tiny_manifest(struct store *store, const char *run, uint64_t step);

#endif
