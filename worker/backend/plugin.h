/* weir-cuda.so: all that needs CUDA, loaded at run time, so that one worker binary serves every machine. */
#ifndef WEIR_WORKER_BACKEND_PLUGIN_H
#define WEIR_WORKER_BACKEND_PLUGIN_H

#include "worker/backend/backend.h"
#include "worker/collective/collective.h"

/* Changes whenever what the two sides share does; besides, both must be of one build (WEIR_BUILD). */
enum { PLUGIN_ABI = 1, PLUGIN_DEVICES_MAX = 64 };

struct plugin_device {
  char name[128]; /* "NVIDIA H200" */
  uint64_t memory_bytes, free_bytes;
};

struct plugin {
  unsigned abi;
  const char *build;
  const struct backend_def *backend;       /* "cuda" */
  const struct collective_def *collective; /* "nccl" */
  /* Fills devices and returns how many there are. Errors (-1): UNAVAILABLE for no driver, a driver too old, a
     library too old, no device; each names what is missing and what to do. */
  int (*devices)(struct plugin_device *devices, int max, struct err *err);
};

/* What weir-cuda.so exports. */
#define PLUGIN_SYMBOL "weir_plugin"
extern const struct plugin weir_plugin;

/* Loads it once for the process: the file named by WEIR_CUDA, or weir-cuda.so beside the executable or in
   ../lib. NULL with an error: NOT_FOUND without such a file, UNAVAILABLE when it cannot be loaded (names the
   library that is missing) or is of another build. Any thread. */
const struct plugin *plugin_load(struct err *err);

#endif
