/* weir version: this build and the libraries that it runs with. */
#include <jansson.h>
#include <protobuf-c/protobuf-c.h>
#include <stdio.h>
#include <zlib.h>

#include "build_id.h"
#include "client/command.h"
#include "common/agree/spec.h"
#include "common/base/sha256.h"
#include "common/rpc/rpc.h"

#define WEIR_VERSION "0.1.0"

static int version_run(const struct args *args) {
  (void)args;
  printf("weir %s (build %s)\n", WEIR_VERSION, WEIR_BUILD);
  printf("grpc core %s\n", rpc_library_version());
  printf("protobuf-c %s\n", protobuf_c_version());
  printf("openssl %s\n", sha256_library_version());
  printf("zlib %s\n", zlibVersion());
  printf("libyaml %s\n", spec_library_version());
  printf("jansson %s\n", jansson_version_str());
  return EXIT_DONE;
}

const struct command_def command_version = {
    .name = "version",
    .summary = "print the version of weir and its libraries",
    .arguments = "",
    .description =
        "Prints the version, the commit that it was built from, and the versions of the libraries that it "
        "runs with, one a line.",
    .examples = "weir version\n",
    .run = version_run,
};
