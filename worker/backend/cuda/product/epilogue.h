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

/* Of the product [rows, columns] in output 0 of the node, to which it adds `bias` itself (a value; -1: none).
   NONE, with out that output, when nothing follows that only it feeds. */
struct cuda_fusion cuda_fusion_find(const struct backend_program *program, const struct node *node, int bias,
                                    int64_t columns);

/* A vector of a product's columns, for an epilogue: of that many elements, along the last dimension. */
bool cuda_is_bias(const struct value *value, int64_t columns);

#endif
