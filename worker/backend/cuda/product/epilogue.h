/* What follows a matrix product and can be done while it is written: a bias, and ReLU or GELU of that. */
#ifndef WEIR_WORKER_BACKEND_CUDA_PRODUCT_EPILOGUE_H
#define WEIR_WORKER_BACKEND_CUDA_PRODUCT_EPILOGUE_H

#include "worker/backend/cuda/product/product.h"

enum { EPILOGUE_NODES_MAX = 8 };

struct cuda_fusion {
  enum cuda_epilogue epilogue;
  int bias;                               /* value */
  int out;                                /* value that the product is written to */
  int kept;                               /* of BIAS_GELU_KEEP: value; else -1 */
  int nodes[EPILOGUE_NODES_MAX], n_nodes; /* later nodes that are done by it: indices */
};

/* What follows the product [rows, columns] in output 0 of the node. bias: the value that the node adds
   itself; -1: none. CUDA_EPILOGUE_NONE, with that output as `out`, when no later node can be done along with
   the product. */
struct cuda_fusion cuda_fusion_find(const struct backend_program *program, const struct node *node, int bias,
                                    int64_t columns);

/* Whether an epilogue can add the value: a vector of `columns` elements along the last dimension. */
bool cuda_is_bias(const struct value *value, int64_t columns);

#endif
