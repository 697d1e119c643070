/* Whether workers can make teams. */
#include "client/cluster/teams_check.h"

#include "common/base/message.h"
#include "training.pb-c.h"

static uint32_t count_alike(const Weir__ListWorkersReply *reply, uint32_t executors) {
  uint32_t count = 0;
  for (size_t i = 0; i < reply->n_workers; i++)
    count += reply->workers[i]->executors == executors;
  return count;
}

int teams_check(struct connection *connection, const Weir__WorkersSpec *spec, struct err *err) {
  Weir__ListWorkersRequest request = WEIR__LIST_WORKERS_REQUEST__INIT;
  Weir__ListWorkersReply *reply = NULL;
  uint32_t stages = spec->stages, most = 0;
  bool is_enough = stages < 2; /* or auto: each worker finds its own */
  if (is_enough || connection_call(connection, RPC_LIST_WORKERS, &request, (void **)&reply, err))
    return err->code;
  for (size_t i = 0; i < reply->n_workers && !is_enough; i++) {
    uint32_t executors = reply->workers[i]->executors;
    is_enough = executors > 0 && count_alike(reply, executors) >= (stages + executors - 1) / executors;
    most = executors > most ? executors : most;
  }
  if (!is_enough)
    err_set(err, ERR_INVALID,
            "workers.stages: %u stages take as many executors, of one worker or of several that have equally "
            "many: "
            "there %s %zu worker%s of at most %u (--workers, --threads)",
            stages, reply->n_workers == 1 ? "is" : "are", reply->n_workers, reply->n_workers == 1 ? "" : "s",
            most);
  message_free(reply);
  return err->code;
}
