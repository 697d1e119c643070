/* A session with the servers of one store, whatever their arrangement: one server, the master that sentinels
   name, or the masters of a cluster. Connections are made when they are needed, and again after trouble. Not
   for several threads at a time: the store keeps a few sessions and lends one to each call. */
#ifndef WEIR_STORAGE_REDIS_REDIS_SESSION_H
#define WEIR_STORAGE_REDIS_REDIS_SESSION_H

#include "storage/redis/redis_link.h"

/* Commands that go together; each to the master of its slot. */
struct redis_batch {
  struct redis_command *commands; /* replies are theirs, and NULL after an error */
  int n;
  int master;         /* one of redis_session_masters; -1: the master of each command's slot */
  bool is_repeatable; /* may be done twice: after a broken connection they are sent once more */
  bool is_write;      /* done when so many replicas as the URL asks for have it */
  bool is_in_doubt;   /* set: a connection broke; which were done is not known */
};

struct redis_session {
  const struct redis_config *config;
  struct redis_link link;       /* SINGLE; SENTINEL: the master */
  struct redis_link *sentinels; /* SENTINEL: [config->n_endpoints] */
  int newest_sentinel;          /* that gave the master's address */
  struct redis_cluster *cluster;
};

/* The config outlives the session. */
struct redis_session *redis_session_new(const struct redis_config *config);
void redis_session_free(struct redis_session *session);

/* Errors: UNAVAILABLE, TIMEOUT, INVALID, IO; those of any command that was refused. */
int redis_session_run(struct redis_session *session, struct redis_batch *batch, struct err *err);
/* The masters there are: (*masters)[*n] for batch->master, freed by the caller, good until the next run with
   master -1 fails. */
int redis_session_masters(struct redis_session *session, int **masters, int *n, struct err *err);

/* For redis_sentinel.c and redis_cluster.c. */

/* The commands of a batch that go to one server. */
struct redis_pipeline {
  struct redis_link *link;
  struct redis_command **commands; /* [n + 1]: with room for a WAIT */
  int n;
  int n_replicas; /* set: that have the writes, or INT_MAX if it does not matter */
};

/* Runs the commands on the connected link, and WAIT after them. Error replies are no error here. */
int redis_pipeline_run(struct redis_pipeline *pipeline, struct redis_batch *batch, struct err *err);
/* Error replies, unexpected types and missing replicas as an error. */
int redis_pipeline_check(const struct redis_pipeline *pipeline, struct err *err);

/* Makes sure that session->link is connected to what a sentinel calls the master and what says so itself. */
int redis_sentinel_connect(struct redis_session *session, struct err *err);

void redis_cluster_init(struct redis_session *session);
void redis_cluster_fini(struct redis_session *session);
int redis_cluster_run(struct redis_session *session, struct redis_batch *batch, struct err *err);
int redis_cluster_masters(struct redis_session *session, int **masters, int *n, struct err *err);
struct redis_link *redis_cluster_link(struct redis_session *session, int master);

/* The slot of a key in a cluster: CRC16 of the key, or of what is between its first braces. */
int redis_key_slot(const char *key, size_t size);

#endif
