/* Why a port and we do not get along by TLS: gRPC says no more than that the connection failed. */
#ifndef WEIR_COMMON_CERTS_PEER_H
#define WEIR_COMMON_CERTS_PEER_H

#include "common/certs/names.h"

enum { CERT_PEER_ANY = CERT_ROLES }; /* whatever member it is */

/* Makes a handshake of its own, reads the certificate that the port at HOST:PORT shows, and appends to the
   error whose it is, who signed it, until when it is valid, and what to do. folder: our certificates; NULL:
   we have none. wanted: the role that the port must have, or CERT_PEER_ANY. Appends nothing where no
   certificate is shown. Blocks, for two seconds at most beside the name's resolution. */
void cert_peer_explain(const char *address, const char *folder, int wanted, struct err *err);

#endif
