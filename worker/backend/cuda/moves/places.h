/* Rows of a tensor that indices name. Read by C and CUDA C. */
#ifndef WEIR_WORKER_BACKEND_CUDA_MOVES_PLACES_H
#define WEIR_WORKER_BACKEND_CUDA_MOVES_PLACES_H

#include <cuda_runtime_api.h>
#include <stdbool.h>

#include "worker/backend/cuda/engine/divide.h"
#include "worker/backend/cuda/engine/sort.h"
#include "worker/backend/cuda/engine/tensor.h"

/* The data is rows of `run` elements. Row r of the tensor beside it belongs to the row of the data that is
   found so: the digits of r in the dimensions `dim` times `stride`, and the `tuple` indices that begin at
   element (r % period) * tuple, index k of which counts `index_stride[k]` rows and is less than size[k]. */
struct cuda_places {
  struct cuda_tensor indices; /* I32 or I64; its data is set when it is known */
  int node;                   /* for faults */
  int64_t rows, run, data_rows;
  int rank, tuple;
  struct cuda_divisor dim[CUDA_RANK_MAX], period;
  int64_t stride[CUDA_RANK_MAX], index_stride[CUDA_RANK_MAX], size[CUDA_RANK_MAX];
  bool is_unsigned; /* negative indices count from no end */
};

/* Rows of `run` elements, of `element` bytes each: 1, 2, 4, 8 or 16. */
struct cuda_gather {
  const void *data;
  void *out;
  int64_t run;
  int element;
  struct cuda_fault *fault;
};

#ifdef __cplusplus
extern "C" {
#endif
/* out[r] = data[place of r] */
void cuda_gather_launch(const struct cuda_places *places, const struct cuda_gather *gather,
                        cudaStream_t stream);
/* Sorts the rows by where they go. */
void cuda_places_sort_launch(const struct cuda_places *places, const struct cuda_sorting *sorting,
                             struct cuda_fault *fault, cudaStream_t stream);
#ifdef __cplusplus
}
#else
#include "worker/backend/cuda/engine/cuda.h"

/* Of a node whose indices are input 1 and whose data has that shape: Gather, GatherElements, GatherND,
   ScatterElements, ScatterND and their gradients. */
struct cuda_places cuda_places_of(const struct graph *graph, const struct node *node,
                                  const struct shape *data);
/* Adds a gather of `run` elements a row from argument `data` to argument `to` to what a step enqueues. */
void cuda_gather_enqueue(const struct backend_program *program, const struct cuda_places *places,
                         const struct cuda_tensor *data, const struct cuda_tensor *to, cudaStream_t stream);
#endif

#endif
