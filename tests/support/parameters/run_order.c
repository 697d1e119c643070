#include "tests/support/parameters/run_order.h"

#include <stdbool.h>

enum { SAMPLES = 1000 };

static void init_messages(struct run_order *order) {
  weir__load_run__init(&order->load);
  weir__run_spec__init(&order->spec);
  weir__model_spec__init(&order->model);
  weir__data_spec__init(&order->data);
  weir__data_source__init(&order->source);
  weir__train_spec__init(&order->train);
  weir__optimizer_spec__init(&order->optimizer);
  weir__schedule_spec__init(&order->schedule);
  weir__eval_spec__init(&order->eval);
  weir__workers_spec__init(&order->workers);
  weir__plan__init(&order->plan);
}

static void name_servers(struct run_order *order) {
  static const char *const ids[RUN_ORDER_SERVERS] = {"server-1", "server-2", "server-3"};
  for (int s = 0; s < RUN_ORDER_SERVERS; s++) {
    order->servers[s] = &order->endpoints[s];
    weir__endpoint__init(order->servers[s]);
    order->servers[s]->id = (char *)ids[s];
  }
}

void run_order_init(struct run_order *order, const char *name, struct run_size size, double lr) {
  init_messages(order);
  name_servers(order);
  order->source.format = (char *)"idx";
  order->data.train = &order->source;
  order->model.onnx = (char *)"mlp.onnx";
  order->optimizer.has_lr = true;
  order->optimizer.lr = lr;
  order->train.has_steps = order->train.has_batch = order->train.has_microbatches = true;
  order->train.steps = order->plan.steps = size.steps;
  order->train.batch = size.batch;
  order->train.microbatches = size.microbatches;
  order->train.optimizer = &order->optimizer;
  order->train.schedule = &order->schedule;
  order->spec.name = (char *)name;
  order->spec.model = &order->model;
  order->spec.data = &order->data;
  order->spec.train = &order->train;
  order->spec.eval = &order->eval;
  order->spec.workers = &order->workers;
  order->plan.train_samples = SAMPLES;
  order->load.run = (char *)name;
  order->load.spec = &order->spec;
  order->load.plan = &order->plan;
  order->load.n_servers = 1;
  order->load.servers = order->servers;
  order->load.manifest = (char *)"";
}
