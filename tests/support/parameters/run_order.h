/* An order to load a run on parameter servers, with all messages that it points to. Fields may be changed
   between run_order_init() and its use. */
#ifndef WEIR_TESTS_SUPPORT_PARAMETERS_RUN_ORDER_H
#define WEIR_TESTS_SUPPORT_PARAMETERS_RUN_ORDER_H

#include "cluster.pb-c.h"

enum { RUN_ORDER_SERVERS = 3 };

/* Not to be copied: it points to itself. */
struct run_order {
  Weir__LoadRun load;
  Weir__RunSpec spec;
  Weir__ModelSpec model;
  Weir__DataSpec data;
  Weir__DataSource source;
  Weir__TrainSpec train;
  Weir__OptimizerSpec optimizer;
  Weir__ScheduleSpec schedule;
  Weir__EvalSpec eval;
  Weir__WorkersSpec workers;
  Weir__Plan plan;
  Weir__Endpoint endpoints[RUN_ORDER_SERVERS], *servers[RUN_ORDER_SERVERS];
};

/* How much the run trains. batch: samples of a step. */
struct run_size {
  uint64_t steps;
  uint32_t batch, microbatches;
};

/* The order at version 0, in incarnation 0, on "server-1" alone; load.n_servers may be raised, up to
   RUN_ORDER_SERVERS. The model is "mlp.onnx", of 1000 samples; the optimizer has the learning rate lr,
   without momentum. The strings are constants, and name stays the caller's. */
void run_order_init(struct run_order *order, const char *name, struct run_size size, double lr);

#endif
