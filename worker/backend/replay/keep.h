/* What is kept beyond what has to be. */
#ifndef WEIR_WORKER_BACKEND_REPLAY_KEEP_H
#define WEIR_WORKER_BACKEND_REPLAY_KEEP_H

#include "worker/backend/replay/order.h"

/* Keeps more of what the order makes again, what costs most a byte first, as long as no more than most_bytes
   live at a time. The order is made with is_kept, before and after. */
void keep_more(struct order *order, bool *is_kept, size_t most_bytes);

#endif
