/* The methods that we speak, and the names of their services. */
#include <stdio.h>
#include <string.h>

#include "cluster.pb-c.h"
#include "common/rpc/core.h"
#include "grpc/health/v1/health.pb-c.h"
#include "grpc/reflection/v1/reflection.pb-c.h"
#include "parameters.pb-c.h"
#include "peers.pb-c.h"
#include "training.pb-c.h"

void rpc_method_service(enum rpc_method_id id, char *out, size_t size) {
  const char *path = rpc_method_defs[id].path + 1;
  snprintf(out, size, "%.*s", (int)strcspn(path, "/"), path);
}

#define LIMIT(request_bytes, reply_bytes)                                                                    \
  ((request_bytes) || (reply_bytes) ? RPC_BLOCK_MESSAGE_BYTES_MAX : WIRE_MESSAGE_BYTES_MAX)

const struct rpc_method_def rpc_method_defs[RPC_METHODS] = {
#define METHOD(id, path, request, reply, request_bytes, reply_bytes, callers)                                \
  [RPC_##id] = {path,                                                                                        \
                {&request##__descriptor, request_bytes, LIMIT(request_bytes, reply_bytes)},                  \
                {&reply##__descriptor, reply_bytes, LIMIT(request_bytes, reply_bytes)},                      \
                CALLERS_##callers},
#include "common/rpc/methods.def"
#undef METHOD
};
