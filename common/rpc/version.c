/* Which gRPC this is. */
#include <grpc/grpc.h>

#include "common/rpc/rpc.h"

const char *rpc_library_version(void) {
  return grpc_version_string();
}
