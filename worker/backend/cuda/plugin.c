/* What weir-cuda.so exports. */
#include "worker/backend/plugin.h"

#include <nccl.h>
#include <stdio.h>

#include "build_id.h"
#include "worker/backend/cuda/engine/program.h"

/* Of libraries the interfaces are the same in all of a major version, and we take what the first of them had.
   NCCL reads a struct of ours whose size it must know: it is no older than the one that we were built with.
 */
enum { DRIVER_NEEDED = 13000, DNN_MAJOR = 9, BLAS_MAJOR = 13 };

static int check_driver(struct err *err) {
  int driver = 0;
  cudaError_t status = cudaDriverGetVersion(&driver);
  if (status != cudaSuccess || driver == 0)
    return err_set(err, ERR_UNAVAILABLE, "%s", PLUGIN_NO_DRIVER);
  if (driver < DRIVER_NEEDED)
    return err_set(err, ERR_UNAVAILABLE,
                   "the NVIDIA driver is too old: it supports CUDA %d.%d, 13.0 is needed", driver / 1000,
                   driver % 1000 / 10);
  return ERR_OK;
}

static int check_libraries(struct err *err) {
  size_t dnn = cudnnGetVersion(), blas = cublasLtGetVersion();
  int nccl = 0;
  if (dnn / 10000 != DNN_MAJOR)
    return err_set(err, ERR_UNAVAILABLE, "cuDNN is %zu.%zu, a version of %d is needed", dnn / 10000,
                   dnn % 10000 / 100, DNN_MAJOR);
  if (blas / 10000 < BLAS_MAJOR)
    return err_set(err, ERR_UNAVAILABLE, "cuBLASLt is %zu.%zu, %d.0 or later is needed", blas / 10000,
                   blas % 10000 / 100, BLAS_MAJOR);
  if (ncclGetVersion(&nccl) != ncclSuccess || nccl < NCCL_VERSION_CODE)
    return err_set(err, ERR_UNAVAILABLE, "NCCL is %d.%d, %d.%d.%d or later is needed", nccl / 10000,
                   nccl % 10000 / 100, NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH);
  return ERR_OK;
}

/* Nothing that makes a context, which would take memory of every device of the machine. */
static int device_describe(int index, struct plugin_device *device, struct err *err) {
  struct cudaDeviceProp properties;
  if (cuda_check(NULL, cudaGetDeviceProperties(&properties, index), "describe a device", err))
    return err->code;
  *device = (struct plugin_device){.memory_bytes = properties.totalGlobalMem};
  snprintf(device->name, sizeof device->name, "%.64s (sm_%d%d, %d multiprocessors)", properties.name,
           properties.major, properties.minor, properties.multiProcessorCount);
  return ERR_OK;
}

static int plugin_devices(struct plugin_device *devices, int max, struct err *err) {
  int n = 0;
  if (check_driver(err) || check_libraries(err))
    return -1;
  cudaError_t status = cudaGetDeviceCount(&n);
  if (status == cudaErrorNoDevice || (status == cudaSuccess && n == 0)) {
    err_set(err, ERR_UNAVAILABLE, "there is no NVIDIA GPU that CUDA can use on this machine");
    return -1;
  }
  if (status != cudaSuccess) {
    err_set(err, ERR_UNAVAILABLE, "CUDA cannot count the devices: %s", cudaGetErrorString(status));
    return -1;
  }
  for (int i = 0; i < n && i < max; i++) /* the caller may only count: max 0 */
    if (device_describe(i, &devices[i], err)) {
      err->code = ERR_UNAVAILABLE;
      return -1;
    }
  return n;
}

extern const struct backend_def backend_cuda;
extern const struct collective_def collective_nccl;

const struct plugin weir_plugin = {
    .abi = PLUGIN_ABI,
    .build = WEIR_BUILD,
    .backend = &backend_cuda,
    .collective = &collective_nccl,
    .devices = plugin_devices,
    .attach = trace_redirect,
};
