/* The device that a worker computes on: --device, resolved. */
#ifndef WEIR_WORKER_DEVICE_H
#define WEIR_WORKER_DEVICE_H

#include "worker/backend/plugin.h"

struct device_choice {
  const struct backend_def *backend;
  int indices[PLUGIN_DEVICES_MAX]; /* of GPUs; one executor each */
  uint64_t memory_bytes[PLUGIN_DEVICES_MAX];
  int n;          /* 0: the CPU */
  char name[512]; /* as people are told: "cpu", "cuda:0,1" */
  char kind[512]; /* what decides about bits besides the backend: their names; "" of a CPU */
};

/* text: "cpu", "cuda" (the first GPU), "cuda:N[,N...]", or "auto": all GPUs, or else the CPU, which is logged
   with the reason. cpu: the backend of a CPU. Errors: INVALID for a text that names no device or none that is
   here; those of plugin_load and of its devices. */
int device_choose(const char *text, const struct backend_def *cpu, struct device_choice *out,
                  struct err *err);

#endif
