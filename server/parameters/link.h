/* A parameter server's link to the coordinator: carries out its orders and reports to it. */
#ifndef WEIR_SERVER_PARAMETERS_LINK_H
#define WEIR_SERVER_PARAMETERS_LINK_H

#include "common/rpc/client.h"
#include "server/parameters/run_table.h"
#include "storage/store.h"

struct link;

struct link_options {
  struct rpc_client *client;
  const char *coordinator;
  const Weir__Hello *hello;
  /* These outlive the link. */
  struct run_table *runs;
  struct shard **shards;
  uint32_t n_shards;
  struct store *store; /* may be NULL */
};

struct link *link_start(const struct link_options *options);

/* Leaves: unloads every run, ends the thread. What shards still tell afterwards goes nowhere. */
void link_stop(struct link *link);
void link_free(struct link *link); /* when no shard runs any more. NULL is ignored */

#endif
