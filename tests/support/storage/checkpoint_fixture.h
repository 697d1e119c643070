/* A small model with momentum, and checkpoints of it written as parameter servers write them. What fails
   here fails the test. */
#ifndef WEIR_TESTS_SUPPORT_STORAGE_CHECKPOINT_FIXTURE_H
#define WEIR_TESTS_SUPPORT_STORAGE_CHECKPOINT_FIXTURE_H

#include "spec.pb-c.h"
#include "storage/store.h"
#include "store.pb-c.h"

/* The model: an MLP of 16 inputs, 5 hidden units, 3 classes. Blocks: its weights, and the statistics. */
enum { TINY_STEPS = 20, TINY_SAMPLES = 100, TINY_PARAMS = 16 * 5 + 5 + 5 * 3 + 3, TINY_BLOCKS = 2 };

/* The ONNX file; the caller frees the bytes. */
uint8_t *tiny_model(size_t *size);

/* The run's spec, checked; freed with spec_free(). */
Weir__RunSpec *tiny_spec(void);

/* The weight i, of TINY_PARAMS, in the version made by `step`; its momentum is the negative. */
float tiny_weight(uint64_t step, size_t i);

/* Puts the model and the blocks of a version (weights, then momentum) into the store and returns the
   manifest, which is not written: that is what commits it. The statistics block is zeros in all versions.
   Freed with message_free(). */
Weir__Manifest *tiny_manifest(struct store *store, const char *run, uint64_t step);

#endif
