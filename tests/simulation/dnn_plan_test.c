/* What we ask of cuDNN's fused attention, asked of the real cuDNN: it makes plans, compiled kernels included,
   for GPUs that are described to it, so that this needs its libraries and no GPU. */
#include "tests/conformance/harness.h"

#ifdef WEIR_DNN

#include <dlfcn.h>

#include "worker/backend/cuda/attention/attention_graph.h"

/* As cuDNN itself describes one (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION). */
#define DEVICE(name, version, sms, shared_bytes, l2_bytes)                                                   \
  "{\"deviceName\":\"" name "\",\"cudaDeviceId\":0,\"deviceId\":0,\"deviceVer\":" #version                   \
  ",\"driverVer\":13000,\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],"           \
  "\"regsPerBlock\":65536,\"multiProcessorCount\":" #sms ",\"smClockRateKHz\":1410000,"                      \
  "\"memClockRateKHz\":1593000,\"l2CacheSize\":" #l2_bytes ",\"warpSize\":32,"                               \
  "\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":" #shared_bytes                        \
  ",\"reservedSharedMemoryPerBlock\":1024,\"maxRegistersPerSM\":65536,\"pciDeviceId\":0,"                    \
  "\"maxCtasPerSM\":32,\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,\"isTccDriver\":0,"              \
  "\"supportCoopLaunch\":1,\"totalGlobalMem\":85017493504}"

enum { VERSION_MIN = 91600 }; /* the first that the backend asks */

static const struct {
  const char *name, *properties;
} devices[] = {{"an H100", DEVICE("NVIDIA H100 80GB HBM3", 900, 132, 232448, 52428800)},
               {"an A100", DEVICE("NVIDIA A100-SXM4-80GB", 800, 108, 166912, 41943040)}};

static const struct {
  const char *name;
  struct attention_kind kind;
} cases[] = {
    {"GPT-2",
     {.batch = 4, .heads = 12, .t = 1024, .s = 1024, .d = 64, .e = 64, .scale = 0.125f, .is_causal = true}},
    {"ViT-S/16", {.batch = 16, .heads = 6, .t = 197, .s = 197, .d = 64, .e = 64, .scale = 0.125f}},
    {"narrow heads", {.batch = 2, .heads = 3, .t = 70, .s = 90, .d = 8, .e = 16, .scale = 0.3f}},
};

static cudnnBackendDescriptor_t describe(const char *properties) {
  cudnnBackendDescriptor_t device = NULL;
  cudnnStatus_t status = cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &device);
  if (!status)
    status = cudnnBackendSetAttribute(device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                                      (int64_t)strlen(properties), properties);
  if (!status)
    status = cudnnBackendFinalize(device);
  if (status)
    printf("# a device cannot be described: %s\n", cudnnGetErrorString(status));
  return status ? NULL : device;
}

static bool has_plan(const struct attention_kind *kind, cudnnBackendDescriptor_t device, bool is_fast) {
  struct dnn_target target = {.device = device, .is_fast = is_fast, .workspace_max = (size_t)1 << 30};
  struct attention_graph graph;
  char why[256] = "";
  attention_graph_init(&graph, kind, is_fast);
  bool is_planned = dnn_graph_plan(graph.dnn, &target);
  if (is_planned) {
    printf("# a workspace of %zu bytes\n", dnn_graph_workspace_bytes(graph.dnn));
  } else {
    cudnnGetLastErrorString(why, sizeof why);
    printf("# %s: %s\n", cudnnGetErrorString(dnn_graph_status(graph.dnn)), why);
  }
  attention_graph_fini(&graph);
  return is_planned;
}

static void check_device(const char *name, cudnnBackendDescriptor_t device) {
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    struct attention_kind kind = cases[c].kind;
    tap_result(device && has_plan(&kind, device, false), "%s forward has a plan on %s", cases[c].name, name);
    kind.is_grad = true;
    for (int is_fast = 0; is_fast < 2; is_fast++)
      tap_result(device && has_plan(&kind, device, is_fast), "%s backward has a plan%s on %s", cases[c].name,
                 is_fast ? "" : " that repeats its bits", name);
  }
}

/* The plans compile kernels and load them, which is the driver's part; ours, found by the same name,
 * pretends. */
int main(int argc, char **argv) {
  char driver[4096];
  (void)argc;
  tap_init();
  if (cudnnGetVersion() < VERSION_MIN) {
    tap_skip("plans of cuDNN", "it is older than 9.16");
    return tap_finish();
  }
  snprintf(driver, sizeof driver, "%s.driver/libcuda.so.1", argv[0]);
  if (!dlopen(driver, RTLD_NOW)) {
    tap_result(false, "the driver without a device: %s", dlerror());
    return tap_finish();
  }
  for (size_t d = 0; d < sizeof devices / sizeof *devices; d++) {
    cudnnBackendDescriptor_t device = describe(devices[d].properties);
    check_device(devices[d].name, device);
    if (device)
      cudnnBackendDestroyDescriptor(device);
  }
  return tap_finish();
}

#else

int main(void) {
  tap_init();
  tap_skip("plans of cuDNN", "cuDNN is not installed");
  return tap_finish();
}

#endif
