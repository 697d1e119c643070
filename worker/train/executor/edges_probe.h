/* The edges of a worker's stages in the probe, which computes without the neighbours: what they would send is
   drawn, and what would go to them is hashed. */
#ifndef WEIR_WORKER_TRAIN_EXECUTOR_EDGES_PROBE_H
#define WEIR_WORKER_TRAIN_EXECUTOR_EDGES_PROBE_H

#include "common/base/sha256.h"
#include "worker/train/executor/edges.h"

/* A message of that layout: reals between -1 and 1, drawn by counters from the key, else zeros. Freed by the
   caller; NULL when out of memory. */
unsigned char *message_draw(const struct message_layout *layout, const struct backend_message *message,
                            uint64_t key);

/* What the executor's program receives for a part across an edge, drawn. As message_draw. */
unsigned char *edges_draw(const struct executor *executor, enum backend_part part);
/* Its pieces, as backend_run.receive says them. */
void edges_look(const struct executor *executor, enum backend_part part, const unsigned char *message,
                const void **pieces);
/* A hash of what it sends for the part. */
void edges_hash(const struct executor *executor, enum backend_part part, const void *const *pieces,
                char hex[SHA256_HEX_SIZE]);

#endif
