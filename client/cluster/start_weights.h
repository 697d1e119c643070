/* Starting from existing weights (--from): the model's initializers are replaced before it is uploaded. */
#ifndef WEIR_CLIENT_CLUSTER_START_WEIGHTS_H
#define WEIR_CLIENT_CLUSTER_START_WEIGHTS_H

#include "client/cluster/submission.h"

/* from: FILE.safetensors, or RUN[@STEP] of the coordinator (connection may be NULL for a file). Every tensor
   that training would change (trained initializers and running statistics) is taken by its name, and what is
   frozen where `from` has it. Errors:
   INVALID listing the tensors that `from` lacks, or has in another shape or type, or with values that are not
   finite; those of the file, the coordinator, memory. What `from` has besides is ignored and noted on stderr.
 */
int start_weights_apply(struct submission *submission, const char *from, struct connection *connection,
                        struct err *err);

#endif
