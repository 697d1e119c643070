/* The loader: batches of graph inputs, made ahead by threads of its own. */
#ifndef WEIR_WORKER_DATA_LOADER_H
#define WEIR_WORKER_DATA_LOADER_H

#include "common/agree/plan.h"
#include "model/model.h"
#include "worker/backend/backend.h"
#include "worker/data/dataset.h"

struct loader;

/* One execution's inputs, in the order of the train graph's. */
struct loader_batch {
  void *inputs[MODEL_INPUTS_MAX];
  uint32_t samples; /* valid ones; the rest (of a short last eval chunk) repeats the last valid sample, with
                       ignored labels where they are classes */
};

/* What is loaded, and by how many threads. All outlives the loader. */
struct loader_options {
  const struct model *model; /* its inputs' names, dtypes and shapes */
  const struct plan *plan;
  const Weir__RunSpec *spec;
  struct dataset *train, *eval; /* eval: NULL, none; with data.split it is train */
  int trace_number;             /* of trace_run_begin */
  int threads;                  /* make batches ahead, two for each of them: at least as many as executors */
};

/* Checks the datasets against the model. Errors: those of dataset_bind and sampler_new, NO_MEMORY. */
int loader_new(const struct loader_options *options, struct loader **out, struct err *err);
void loader_free(struct loader *loader); /* every batch was put back; NULL is ignored */
/* From now on only these inputs are read; others have whatever bytes. wanted[columns of the train graph, and
   labels]. Where transforms mix labels all are read. Before the first batch is asked for. */
void loader_want(struct loader *loader, const bool *wanted);
/* Pins the inputs of all batches, where the backend can: once, before the first is asked for. */
void loader_pin(struct loader *loader, const struct backend_def *backend);

/* What this worker will ask for next: its microbatches [begin, end) from `step` on. Any thread; newest wins.
 */
void loader_expect(struct loader *loader, uint64_t step, uint32_t begin, uint32_t end);

/* Inputs of a microbatch of a step: made ahead, or made now. The last is 1 / the denominator of the mean
   that the gradient is of (the whole step, but in modes local and async), which follows from the labels of
   all its samples; 0 where none of them counts. The batch is the caller's until loader_put. Any thread,
   several at a time. */
struct loader_batch *loader_train(struct loader *loader, uint64_t step, uint32_t microbatch);
/* Inputs of execution `part` (0 .. eval_chunk_samples / microbatch_samples - 1) of an eval chunk; NULL when
   that part lies past the end of the eval set. */
struct loader_batch *loader_eval(struct loader *loader, uint32_t chunk, uint32_t part);
void loader_put(struct loader *loader, struct loader_batch *batch);

/* Whether the samples of a microbatch are finite numbers in their file. Errors: INVALID, with the column, the
   sample and its element. Any thread. */
int loader_check_finite(const struct loader *loader, uint64_t step, uint32_t microbatch, struct err *err);

/* Whether the batches so far hold what the files held; else the error of dataset_check. Any thread. */
int loader_check(struct loader *loader, struct err *err);

/* How long callers of loader_train and loader_eval have waited for their batches, all together. Any thread.
 */
double loader_wait_seconds(const struct loader *loader);

#endif
