/* weir-cuda.so: all that needs CUDA, loaded at run time, so that one worker binary serves every machine. */
#ifndef WEIR_WORKER_BACKEND_PLUGIN_H
#define WEIR_WORKER_BACKEND_PLUGIN_H

#include "worker/backend/backend.h"
#include "worker/collective/collective.h"
#include "common/trace/trace.h"

/* PLUGIN_ABI grows whenever what the two sides share changes. Besides, both must be of one build: WEIR_BUILD
   of build_id.h. */
enum { PLUGIN_ABI = 8, PLUGIN_DEVICES_MAX = 64 };

struct plugin_device {
  char name[128];        /* what decides about its bits: "NVIDIA H200 (sm_90, 132 multiprocessors)" */
  uint64_t memory_bytes; /* all; what is free of it shows when a program is made */
};

struct plugin {
  unsigned abi;
  const char *build;
  const struct backend_def *backend;       /* "cuda" */
  const struct collective_def *collective; /* "nccl" */
  /* Fills devices and returns how many there are. Errors (-1): UNAVAILABLE for no driver, a driver too old, a
     library too old, no device; each names what is missing and what to do. */
  int (*devices)(struct plugin_device *devices, int max, struct err *err);
  /* Called once, before anything else of the plugin. The plugin has its own copy of the code that it shares
     with the program, state included. So ops and tables are compared by name, and the sink takes the plugin's
     spans to the program's timeline. */
  void (*attach)(const struct trace_sink *sink);
};

#define PLUGIN_BACKEND "cuda"
#define PLUGIN_NO_DRIVER "there is no NVIDIA driver on this machine: install one for CUDA 13"

/* What weir-cuda.so exports. */
#define PLUGIN_SYMBOL "weir_plugin"
extern const struct plugin weir_plugin;

/* Loads it once for the process: the file named by WEIR_CUDA, or weir-cuda.so beside the executable or in
   ../lib. NULL with an error: NOT_FOUND without such a file, UNAVAILABLE when it cannot be loaded (names the
   library that is missing), is of another build, or, not being named, finds no driver here. Any thread. */
const struct plugin *plugin_load(struct err *err);

/* A row of backend.def, or the plugin's backend where it has a device. NULL with an error: NOT_FOUND for an
   unknown name, those of plugin_load and of devices. Any thread. */
const struct backend_def *plugin_backend(const char *name, struct err *err);

#endif
