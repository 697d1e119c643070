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

/* Calls that one client has open at a time, and makes a second, on however many connections; so many more may
   come in a burst. Calls of members among themselves are not counted: tickets say whose they are. */
enum { LIMIT_CLIENT_CALLS = 512, LIMIT_CLIENT_RATE = 200, LIMIT_CLIENT_BURST = 2000 };

/* From the begin of a call until all of its only message has come. */
enum { LIMIT_REQUEST_MS = 30000 };

/* Messages, but those that carry a block. gRPC's default. */
enum { LIMIT_MESSAGE_BYTES = 4 << 20 };

/* A port that speaks HTTP: connections that are open, the headers of a request, and how long a connection may
   be without an answer that it has taken, whatever it does meanwhile. */
enum { LIMIT_HTTP_CONNECTIONS = 64, LIMIT_HTTP_HEADER_BYTES = 16 * 1024, LIMIT_HTTP_MS = 60000 };

/* A spec, with its aliases written out. */
enum { LIMIT_SPEC_BYTES = 4 << 20 };

/* A model, its external data included, or all of a sweep. */
#define LIMIT_MODEL_BYTES (UINT64_C(2) << 30)

/* Submissions at a time. For how long one may be silent, and how many bytes come a second on average, after a
   time in which it may be slow. */
enum {
  LIMIT_UPLOADS = 16,
  LIMIT_UPLOAD_IDLE_MS = 30000,
  LIMIT_UPLOAD_RATE = 16384,
  LIMIT_UPLOAD_SLOW_MS = 60000
};

/* What a tenant, one that has no quota of it, may read at a time: downloads of its clients, which may be
   slow; verifications; downloads of its own workers, or of all members that are nobody's. */
enum { LIMIT_TENANT_DOWNLOADS = 32, LIMIT_TENANT_VERIFICATIONS = 4, LIMIT_MEMBER_DOWNLOADS = 64 };

/* Runs that wait or run. */
enum { LIMIT_RUNS = 500 };

#endif
