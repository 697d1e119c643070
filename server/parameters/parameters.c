/* The parameters role. */
#include "server/parameters/parameters.h"

#include <stdlib.h>

#include "common/machine/cores.h"
#include "common/machine/memory_available.h"
#include "server/parameters/link.h"
#include "server/parameters/service.h"

enum { SHARDS_DEFAULT_MAX = 16, SHARDS_MAX = 64, STORE_PATIENCE_MS = 60000, KEEPER_PATIENCE_MS = 15000 };

struct parameters {
  struct run_table runs;
  struct rpc_service service;
  struct shard_budgets budgets;
  struct shard *shards[SHARDS_MAX];
  uint32_t n_shards;
  struct store *store;
  const char *store_url;
  int keeper_patience_ms;
  struct pace_options pace;
  struct link *link; /* NULL before join */
};

struct parameters *parameters_new(const struct parameters_options *options) {
  struct parameters *parameters = mem_new(sizeof *parameters);
  uint64_t available_bytes = memory_available_bytes("");
  int cores = cores_available("");
  int shards = options->shards > 0          ? options->shards
               : cores < SHARDS_DEFAULT_MAX ? cores
                                            : SHARDS_DEFAULT_MAX;
  run_table_init(&parameters->runs);
  parameters->service = service_over(&parameters->runs);
  parameters->store = options->store;
  parameters->store_url = options->store_url;
  parameters->keeper_patience_ms =
      options->keeper_patience_ms > 0 ? options->keeper_patience_ms : KEEPER_PATIENCE_MS;
  parameters->budgets.parts.bytes_max = available_bytes / 2;
  parameters->budgets.calls.bytes_max = available_bytes / 8;
  parameters->pace = options->pace ? *options->pace : pace_defaults;
  parameters->n_shards = (uint32_t)(shards < 1 ? 1 : shards < SHARDS_MAX ? shards : SHARDS_MAX);
  for (uint32_t s = 0; s < parameters->n_shards; s++)
    parameters->shards[s] = shard_new(&parameters->budgets);
  return parameters;
}

const struct rpc_service *parameters_service(const struct parameters *parameters) {
  return &parameters->service;
}

void parameters_join(struct parameters *parameters, struct rpc_client *client, const char *coordinator,
                     const Weir__Hello *hello) {
  struct link_options options = {.client = client,
                                 .coordinator = coordinator,
                                 .hello = hello,
                                 .runs = &parameters->runs,
                                 .shards = parameters->shards,
                                 .n_shards = parameters->n_shards,
                                 .store = parameters->store,
                                 .store_url = parameters->store_url,
                                 .store_patience_ms = STORE_PATIENCE_MS,
                                 .keeper_patience_ms = parameters->keeper_patience_ms,
                                 .pace = parameters->pace};
  CHECK(!parameters->link);
  parameters->link = link_start(&options);
}

void parameters_measure(void *user, struct metric_page *page) {
  struct parameters *parameters = user;
  struct hosted_run **runs;
  int n_runs = run_table_list(&parameters->runs, &runs);
  uint64_t blocks = 0, bytes = 0;
  for (int i = 0; i < n_runs; i++) {
    blocks += runs[i]->n_own;
    for (uint32_t b = 0; b < runs[i]->n_own; b++)
      bytes += runs[i]->blocks[b].elems * sizeof(float);
    hosted_run_put(runs[i]);
  }
  free(runs);
  metric_tell(page, METRIC_SERVER_RUNS, n_runs);
  metric_tell(page, METRIC_SERVER_BLOCKS, (double)blocks);
  metric_tell(page, METRIC_SERVER_BLOCK_BYTES, (double)bytes);
  metric_tell(page, METRIC_SERVER_HELD_BYTES,
              (double)__atomic_load_n(&parameters->budgets.parts.bytes, __ATOMIC_RELAXED));
}

void parameters_ask_to_leave(struct parameters *parameters) {
  link_ask_to_leave(parameters->link);
}

bool parameters_may_leave(struct parameters *parameters) {
  return link_may_leave(parameters->link);
}

void parameters_leave(struct parameters *parameters) {
  if (parameters->link)
    link_stop(parameters->link);
  run_table_remove(&parameters->runs, NULL, "the server is stopping");
}

void parameters_free(struct parameters *parameters) {
  if (!parameters)
    return;
  for (uint32_t s = 0; s < parameters->n_shards; s++)
    shard_settle(parameters->shards[s]);
  for (uint32_t s = 0; s < parameters->n_shards; s++)
    shard_free(parameters->shards[s]);
  link_free(parameters->link);
  run_table_fini(&parameters->runs);
  free(parameters);
}
