/* Who may go on calling a port, or answering our calls. TLS looks at a certificate in the handshake alone;
   the guard looks at its last second and at denied.txt of our own folder: of a port whenever a call is
   accepted, and each second while it lasts; of a client in each handshake, and whenever a message comes. */
#ifndef WEIR_COMMON_RPC_GUARD_H
#define WEIR_COMMON_RPC_GUARD_H

#include <grpc/grpc.h>

#include "common/rpc/tls.h"

struct rpc_guard;
struct rpc_guest; /* a certificate that others have shown; counted */

/* Counted. tls NULL: NULL, and nobody is looked at. One of a port logs whom it refuses, changes of the list,
   and that our own certificate ends; one of a client only what it cannot take. */
struct rpc_guard *rpc_guard_new(const struct rpc_tls *tls, bool is_of_port);
struct rpc_guard *rpc_guard_get(struct rpc_guard *guard);
void rpc_guard_put(struct rpc_guard *guard); /* its guests were put; NULL is ignored */

/* The certificate of the other end of the connection that the call goes by: one that was accepted, or that
   has brought a message. Any thread. */
struct rpc_guest *rpc_guard_meet(struct rpc_guard *guard, grpc_call *call);
struct rpc_guest *rpc_guard_meet_pem(struct rpc_guard *guard, const char *pem,
                                     size_t size);                         /* that was read elsewhere */
void rpc_guest_put(struct rpc_guest *guest);                               /* NULL is ignored */
const struct cert_holder *rpc_guest_holder(const struct rpc_guest *guest); /* NULL: it names nobody */

/* Whether it may call, or answer, now. Any thread. Errors: EXPIRED; DENIED by the file, or for a certificate
   that names nobody. */
int rpc_guard_check(struct rpc_guard *guard, struct rpc_guest *guest, struct err *err);

/* Reads what may have changed in our folder, and warns of a certificate of ours that ends within a week. To
   be called each second; rpc_guard_check does as well. */
void rpc_guard_look(struct rpc_guard *guard);

#endif
