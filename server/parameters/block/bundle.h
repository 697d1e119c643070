/* Several pushes that came in one call: each is a parameters_call of its own, on its block's shard, and their
   answers go back together, once the last is there. One that is refused is not held back by others which wait
   for their versions: once each of them waits or is answered the call is answered, and those that wait as if
   they had been put off: their parts were taken, and their versions can be pulled. Any thread. */
#ifndef WEIR_SERVER_PARAMETERS_BLOCK_BUNDLE_H
#define WEIR_SERVER_PARAMETERS_BLOCK_BUNDLE_H

#include "common/base/memory.h"
#include "common/rpc/server.h"
#include "common/share/share.h"

struct bundle;
struct parameters_call;

/* Of n parts, at most SHARE_PARTS_MAX; the service's reference, until the call is closed. */
struct bundle *bundle_new(struct rpc_call *rpc, uint32_t n);
struct bundle *bundle_get(struct bundle *bundle);
void bundle_put(struct bundle *bundle); /* NULL is ignored */

/* The call of a part; NULL: it has none. The service's alone. */
void bundle_set_call(struct bundle *bundle, uint32_t part, struct parameters_call *call);
struct parameters_call *bundle_call(const struct bundle *bundle, uint32_t part);
uint32_t bundle_parts(const struct bundle *bundle);

/* The part was taken, when its block had this version, and waits. Again: nothing. */
void bundle_wait(struct bundle *bundle, uint32_t part, uint64_t version);
/* What becomes of a part, once for each. data (may be NULL): the version's bytes, of a shared buffer. True if
   they are named in the answer: it may have gone already, and what cannot be named is to be pulled. */
bool bundle_answer(struct bundle *bundle, uint32_t part, uint64_t version, struct share *share,
                   const struct buffer *data);
void bundle_refuse(struct bundle *bundle, uint32_t part, const struct err *err);

#endif
