/* A stand-in for weir-cuda.so: the cpu backend under the plugin's name, on as many devices of as much memory
   as the environment says, which can be broken. For what a worker and a cluster make of devices.

   FAKE_CUDA_DEVICES   how many there are (default 1)
   FAKE_CUDA_MEMORY    bytes of each, as they say (default 1 GiB)
   FAKE_CUDA_SAMPLES   how many samples of an execution fit (default any); what oneDNN needs is not the same
                       on all CPUs
   FAKE_CUDA_OTHERS    behind the name of each but the first
   FAKE_CUDA_BROKEN    a file: while it is there, devices fail
   FAKE_CUDA_ABI       the interface's version, if another */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "build_id.h"
#include "common/base/log.h"
#include "worker/backend/plugin.h"

static struct backend_def backend;
static const struct backend_def *cpu;
static uint64_t memory_bytes = UINT64_C(1) << 30;
static int n_devices = 1, samples_max = INT32_MAX;

/* Not const, as the real one is, so that it can be made of the environment. */
extern struct plugin fake asm(PLUGIN_SYMBOL);
struct plugin fake;

static bool is_broken(void) {
  const char *path = getenv("FAKE_CUDA_BROKEN");
  return path && access(path, F_OK) == 0;
}

static int fake_prepare(const struct backend_request *request, struct backend_program **out,
                        struct err *err) {
  const struct graph *graph = request->graph;
  if (graph->n_inputs && graph->values[graph->inputs[0]].shape.dim[0] > samples_max)
    return err_set(err, ERR_NO_MEMORY, "one execution needs %zu bytes of device memory",
                   (size_t)memory_bytes + 1);
  if (cpu->prepare(request, out, err))
    return err->code;
  log_event(LOG_INFO, "fake", "prepared", "device=%d precision=%d is_fast=%d", request->options.device,
            (int)request->options.precision, request->options.is_fast);
  return ERR_OK;
}

static int fake_run(struct backend_program *program, const struct backend_run *run, struct err *err) {
  if (is_broken())
    return err_set(err, ERR_LOST_DEVICE, "the fake device is broken");
  return cpu->run(program, run, err);
}

static const char *fake_fingerprint(void) {
  return "fake";
}

static int fake_devices(struct plugin_device *devices, int max, struct err *err) {
  const char *others = getenv("FAKE_CUDA_OTHERS");
  if (n_devices == 0 || is_broken()) {
    err_set(err, ERR_UNAVAILABLE, "there is no NVIDIA GPU here, says the fake");
    return -1;
  }
  for (int i = 0; i < n_devices && i < max; i++) {
    devices[i] = (struct plugin_device){.memory_bytes = memory_bytes};
    snprintf(devices[i].name, sizeof devices[i].name, "Fake GPU%s", i > 0 && others ? others : "");
  }
  return n_devices;
}

__attribute__((constructor)) static void fake_init(void) {
  cpu = backend_find("cpu");
  backend = *cpu;
  backend.name = PLUGIN_BACKEND;
  backend.prepare = fake_prepare;
  backend.run = fake_run;
  backend.fingerprint = fake_fingerprint;
  if (getenv("FAKE_CUDA_DEVICES"))
    n_devices = atoi(getenv("FAKE_CUDA_DEVICES"));
  if (getenv("FAKE_CUDA_MEMORY"))
    memory_bytes = strtoull(getenv("FAKE_CUDA_MEMORY"), NULL, 10);
  if (getenv("FAKE_CUDA_SAMPLES"))
    samples_max = atoi(getenv("FAKE_CUDA_SAMPLES"));
  fake = (struct plugin){.abi = PLUGIN_ABI,
                         .build = WEIR_BUILD,
                         .backend = &backend,
                         .devices = fake_devices,
                         .attach = trace_redirect};
  if (getenv("FAKE_CUDA_ABI"))
    fake.abi = (unsigned)atoi(getenv("FAKE_CUDA_ABI"));
}
