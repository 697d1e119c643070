/* In which type values are kept: the rules of precision bf16. */
#include <string.h>

#include "worker/backend/cpu/cpu.h"
#include "worker/backend/node.h"

/* Processors without these instructions compute bf16 by emulation, more slowly than f32. */
static bool has_bf16(void) {
  return (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_bf16) == dnnl_cpu_isa_avx512_core_bf16;
}

int cpu_check_precision(enum precision precision, struct err *err) {
  if (precision == PRECISION_TF32)
    return err_set(err, ERR_UNSUPPORTED, "CPUs compute in fp32 or bf16 only");
  if (precision == PRECISION_BF16 && !has_bf16())
    return err_set(err, ERR_UNSUPPORTED, "this CPU has %s, without instructions for bf16 (AVX512-BF16, AMX)",
                   cpu_isa_name());
  return ERR_OK;
}

/* What adds or moves elements: of an exact result it makes, what it takes is exact. */
static bool passes_on(const struct node *node) {
  static const char *const ops[] = {"Add", "Sum", "Transpose"};
  for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++)
    if (strcmp(node->op->name, ops[i]) == 0)
      return true;
  return node_is_alias(node);
}

void cpu_types_survey(struct backend_program *program) {
  const struct graph *graph = program->graph;
  for (int n = graph->n_nodes - 1; n >= 0 && program->is_bf16; n--) {
    const struct node *node = graph->nodes[n];
    const struct cpu_value *out = node->outputs[0] < 0 ? NULL : &program->values[node->outputs[0]];
    if (!out || !(out->is_watched || out->is_exact) || !passes_on(node))
      continue;
    for (int i = 0; i < node->n_inputs; i++)
      if (node->inputs[i] >= 0)
        program->values[node->inputs[i]].is_exact = true;
  }
}

dnnl_data_type_t cpu_type(const struct backend_program *program, int value) {
  const struct value *v = &program->graph->values[value];
  const struct cpu_value *known = &program->values[value];
  bool is_reduced = program->is_bf16 && v->kind == VALUE_RESULT && v->dtype == DTYPE_F32 &&
                    v->shape.rank >= 2 && !known->is_watched && !known->is_exact;
  return is_reduced ? dnnl_bf16 : dnnl_f32;
}
