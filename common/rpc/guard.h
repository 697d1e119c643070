/* Who may go on calling a port. TLS looks at a certificate in the handshake alone; the guard looks at its
   last second and at denied.txt of our own folder whenever a call is accepted, and each second while it
   lasts. */
#ifndef WEIR_COMMON_RPC_GUARD_H
#define WEIR_COMMON_RPC_GUARD_H

#include <grpc/grpc.h>

#include "common/rpc/tls.h"

struct rpc_guard;
struct rpc_guest; /* a certificate that calls have shown; counted */

struct rpc_guard *rpc_guard_new(const struct rpc_tls *tls); /* tls NULL: NULL, and nobody is looked at */
void rpc_guard_free(struct rpc_guard *guard);               /* its guests were put; NULL is ignored */

/* The certificate of the connection that the call came by. Any thread. */
struct rpc_guest *rpc_guard_meet(struct rpc_guard *guard, grpc_call *call);
struct rpc_guest *rpc_guard_meet_pem(struct rpc_guard *guard, const char *pem,
                                     size_t size);                         /* of another port */
void rpc_guest_put(struct rpc_guest *guest);                               /* NULL is ignored */
const struct cert_holder *rpc_guest_holder(const struct rpc_guest *guest); /* NULL: it names nobody */

/* Whether it may call now. Any thread. Errors: EXPIRED; DENIED by the file, or for a certificate that names
   nobody. */
int rpc_guard_check(struct rpc_guard *guard, struct rpc_guest *guest, struct err *err);

/* Reads what may have changed in our folder, and warns of a certificate of ours that ends within a week. To
   be called each second; rpc_guard_check does as well. */
void rpc_guard_look(struct rpc_guard *guard);

#endif
