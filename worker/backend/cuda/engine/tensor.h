/* A tensor in device memory, as host code describes it and kernels get it (by value). Read by C and CUDA C.
 */
#ifndef WEIR_WORKER_BACKEND_CUDA_ENGINE_TENSOR_H
#define WEIR_WORKER_BACKEND_CUDA_ENGINE_TENSOR_H

#include <stdint.h>

enum { CUDA_RANK_MAX = 8 };

/* What the bytes are. A value that the graph calls f32 is kept as F32 or, where train.precision allows, BF16;
   kernels compute in f32 either way. ANY, to cuda_read: as it was produced. */
enum cuda_type { CUDA_ANY_TYPE, CUDA_F32, CUDA_BF16, CUDA_F64, CUDA_I32, CUDA_I64, CUDA_U8 /* bool, too */ };

/* Where element [n,c,d1,..] lies: DENSE in row-major order; CHANNELS_LAST in that of [n,d1,..,c], for ranks 3
   to 5; TURNED with the last two dimensions in the order of each other, for ranks from 2: a Transpose or a
   gradient of keys is made in it when only attention or only Transposes read it. dim[] is the graph's shape
   in all. */
enum cuda_layout { CUDA_ANY_LAYOUT, CUDA_DENSE, CUDA_CHANNELS_LAST, CUDA_TURNED };

struct cuda_tensor {
  void *data; /* NULL: absent */
  enum cuda_type type;
  enum cuda_layout layout;
  int rank;
  int64_t dim[CUDA_RANK_MAX];
  int64_t elems;
};

/* What a node's random draws and error reports depend on. It lies in device memory and is written before
   every execution, because captured graphs keep their arguments. */
struct cuda_context {
  uint64_t seed, step;
  uint32_t microbatch;
};

/* The first fault that a kernel found in its data in an execution. node is the node's index + 1, or 0 while
   there is no fault; the thread that claimed the fault writes it last. The host looks at the fault when a
   segment's results have come and when the execution ends. It is 32 bytes at a multiple of 32, which are read
   at once. */
struct cuda_fault {
  int node, is_claimed;
  int64_t value, place;
};

#endif
