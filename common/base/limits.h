/* What others may take of a process of ours, in one place: bounds that peers meet over the network.
   docs/SECURITY.md#limits has the same table, with what is said beyond each. */
#ifndef WEIR_COMMON_BASE_LIMITS_H
#define WEIR_COMMON_BASE_LIMITS_H

#include <stdint.h>

/* Connections that others have open to a process. An address is an IPv4 address or the first half of an
   IPv6 one. Both are fewer where the process may open few descriptors: see common/door/visitors.h. */
enum { LIMIT_CONNECTIONS = 60000, LIMIT_ADDRESS_CONNECTIONS = 1024 };

/* Headers of one call. gRPC refuses more than 8 KiB, but only when all of them have come. */
enum { LIMIT_HEADER_BYTES = 16 * 1024, LIMIT_HEADER_FRAMES = 16 };

/* From a connection's begin until it has shown its certificate and speaks HTTP/2. */
enum { LIMIT_HANDSHAKE_MS = 10000 };

/* Calls that are open on a connection; its client keeps others back until some have ended. Of a worker at
   most 64 wait at a server (worker/train/transfer/server_link.c), so none can wait for one that is kept back.
 */
enum { LIMIT_STREAMS = 4096 };

#endif
