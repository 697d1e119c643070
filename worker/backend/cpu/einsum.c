/* Einsum and its gradient: the chain of products of model/ops/shared/einsum.h, by oneDNN. */
#include "model/ops/shared/einsum.h"

#include "worker/backend/cpu/cpu.h"
#include "worker/backend/cpu/gemm.h"

static int run_einsum(struct backend_program *program, struct cpu_step *step, const struct backend_run *run,
                      struct err *err) {
  const struct einsum *einsum = step->details;
  struct tensor in[EINSUM_TERMS_MAX];
  (void)program;
  (void)run;
  (void)err;
  for (int t = 0; t < einsum->n_terms; t++)
    in[t].data = step->args[t].data;
  einsum_run(einsum, gemm_multiply, in, step->args[einsum->n_terms].data,
             step->args[einsum->n_terms + 1].data);
  return ERR_OK;
}

static bool prepare_einsum(struct backend_program *program, const struct node *node) {
  struct einsum *einsum = arena_new(&program->memory, sizeof *einsum);
  struct err err = ERR_NONE;
  if (einsum_init(einsum, program->graph, node, &err))
    return false;
  int64_t scratch_elems = einsum_scratch_elems(einsum) + 1;
  dnnl_memory_desc_t scratch = layout_dense(1, &scratch_elems);
  struct cpu_step *step = cpu_step_new(program, node);
  for (int t = 0; t < einsum->n_terms; t++)
    cpu_read(program, step, 0, node->inputs[t], NULL);
  cpu_write(program, step, 0, node->outputs[0], NULL);
  cpu_write(program, step, 0, -1, &scratch);
  step->details = einsum;
  step->run = run_einsum;
  cpu_step_end(program, step, NULL);
  return true;
}

const struct cpu_kernel cpu_einsum = {"Einsum", prepare_einsum};
const struct cpu_kernel cpu_einsum_grad = {"EinsumGrad", prepare_einsum};
