/* The steps that bring a value from one form to another. */
#include "worker/backend/cuda/engine/convert.h"

#include "worker/backend/cuda/engine/program.h"

int cuda_convert_enqueue(struct backend_program *program, const struct cuda_step *step, cudaStream_t stream,
                         struct err *err) {
  (void)program;
  if (step->args[0].tensor.elems == 0)
    return ERR_OK;
  cuda_convert_launch(step->args[0].tensor, step->args[1].tensor, stream);
  return cuda_check(step->node, cudaGetLastError(), "convert a tensor", err);
}
