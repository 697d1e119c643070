/* A parameter server's link to the coordinator: it carries out orders and reports. Runs outlive the link:
   while there is no coordinator they go on, and the next coordinator says what is to be kept. */
#ifndef WEIR_SERVER_PARAMETERS_LINK_H
#define WEIR_SERVER_PARAMETERS_LINK_H

#include "common/rpc/client.h"
#include "server/parameters/load/run_table.h"
#include "storage/store.h"

struct link;

struct link_options {
  struct rpc_client *client;
  const char *coordinator; /* HOST:PORT, or several separated by commas */
  const Weir__Hello *hello;
  /* These outlive the link. */
  struct run_table *runs;
  struct shard **shards;
  uint32_t n_shards;
  struct store *store;      /* may be NULL */
  const char *store_url;    /* of it, for messages; may be NULL */
  int store_patience_ms;    /* how long a run that is to be loaded waits for a store that is away */
  int keeper_patience_ms;   /* likewise for the server that keeps its sums */
  struct pace_options pace; /* when a step is late */
};

struct link *link_start(const struct link_options *options);

/* Asks the coordinator to move all blocks to other servers; runs go on meanwhile. Once. */
void link_ask_to_leave(struct link *link);
/* After it: whether there is nothing to wait for any more, since no run is here, or no other server can take
   them. */
bool link_may_leave(struct link *link);

/* Leaves the coordinator, unloads every run and ends the threads. Reports that shards still make are dropped.
   Waits for the store's answer if a call to it is under way. */
void link_stop(struct link *link);
void link_free(struct link *link); /* when no shard runs any more. NULL is ignored */

#endif
