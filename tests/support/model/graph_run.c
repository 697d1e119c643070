#include "tests/support/model/graph_run.h"

#include "model/graph/op.h"

int graph_run(const struct graph *graph, void **data, struct arena *arena, struct err *err) {
  for (int v = 0; v < graph->n_values; v++) {
    const struct value *value = &graph->values[v];
    if (data[v])
      continue;
    data[v] = value->data ? (void *)value->data
                          : arena_new(arena, (size_t)shape_elems(&value->shape) * dtype_size(value->dtype));
  }
  for (int n = 0; n < graph->n_nodes; n++) {
    struct op_call call;
    op_call_init(&call, arena, graph, graph->nodes[n]);
    for (int i = 0; i < call.node->n_inputs; i++)
      if (call.node->inputs[i] >= 0)
        call.in[i].data = data[call.node->inputs[i]];
    for (int o = 0; o < call.node->n_outputs; o++)
      if (call.node->outputs[o] >= 0)
        call.out[o].data = data[call.node->outputs[o]];
    if (call.node->op->ref(&call, err))
      return err->code;
  }
  return 0;
}
