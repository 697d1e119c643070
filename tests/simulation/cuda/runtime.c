/* Devices, settings and errors. A device that failed answers every later call with the error that it failed
   of, as CUDA's sticky errors do. */
#include "tests/simulation/cuda/simulation.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/err.h"

static atomic_int lost[SIM_DEVICES_MAX];
static atomic_int user; /* the process; those that it forks are refused, as CUDA refuses them */
static __thread int current_device;
static __thread cudaError_t last_error;

uint64_t sim_setting(const char *name, uint64_t otherwise) {
  const char *text = getenv(name);
  return text && *text ? strtoull(text, NULL, 0) : otherwise;
}

uint64_t sim_seed(void) {
  return sim_setting("WEIR_SIMULATED_SEED", 1);
}

uint64_t sim_memory_bytes(void) {
  return sim_setting("WEIR_SIMULATED_MEMORY", (uint64_t)16 << 30);
}

int sim_devices(void) {
  uint64_t n = sim_setting("WEIR_SIMULATED_DEVICES", 1);
  return n > SIM_DEVICES_MAX ? SIM_DEVICES_MAX : (int)n;
}

int sim_device(void) {
  return current_device;
}

void sim_complain(const char *format, ...) {
  va_list arguments;
  char text[512];
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  fprintf(stderr, "simulated device: %s\n", text);
}

cudaError_t sim_return(cudaError_t error) {
  if (error)
    last_error = error;
  return error;
}

static void *driver_main(void *argument) {
  for (;;)
    pause();
  return argument;
}

/* The driver has a thread of its own from its first call on: signals come to it that its caller had not
   blocked. */
static void driver_start(void) {
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, driver_main, NULL) == 0);
  pthread_detach(thread);
}

/* Of the driver and the number of devices. */
static cudaError_t driver_error(void) {
  static pthread_once_t started = PTHREAD_ONCE_INIT;
  const char *driver = getenv("WEIR_SIMULATED_DRIVER");
  int first_user = 0;
  if (driver && (strcmp(driver, "none") == 0 || strcmp(driver, "old") == 0))
    return cudaErrorInsufficientDriver;
  if (sim_devices() == 0)
    return cudaErrorNoDevice;
  if (!atomic_compare_exchange_strong(&user, &first_user, getpid()) && first_user != getpid())
    return cudaErrorInitializationError;
  pthread_once(&started, driver_start);
  return cudaSuccess;
}

cudaError_t sim_device_error(int device) {
  cudaError_t error = driver_error();
  return error ? error : (cudaError_t)lost[device];
}

void sim_device_lose(int device, cudaError_t error, const char *why) {
  int well = cudaSuccess;
  if (atomic_compare_exchange_strong(&lost[device], &well, (int)error))
    sim_complain("device %d fails at %s: %s", device, why, cudaGetErrorName(error));
}

cudaError_t cudaGetDeviceCount(int *count) {
  cudaError_t error = driver_error();
  *count = error ? 0 : sim_devices();
  return sim_return(error);
}

cudaError_t cudaSetDevice(int device) {
  cudaError_t error = driver_error();
  if (!error && (device < 0 || device >= sim_devices()))
    error = cudaErrorInvalidDevice;
  if (!error)
    current_device = device;
  return sim_return(error ? error : sim_device_error(device));
}

cudaError_t cudaGetDevice(int *device) {
  *device = current_device;
  return sim_return(driver_error());
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *out, int device) {
  cudaError_t error = driver_error();
  if (!error && (device < 0 || device >= sim_devices()))
    error = cudaErrorInvalidDevice;
  if (error)
    return sim_return(error);
  memset(out, 0, sizeof *out);
  snprintf(out->name, sizeof out->name, "Simulated device");
  out->totalGlobalMem = sim_memory_bytes();
  out->major = 9;
  out->multiProcessorCount = 4;
  out->warpSize = 32;
  out->maxThreadsPerBlock = 1024;
  out->maxThreadsPerMultiProcessor = 2048;
  out->sharedMemPerBlock = 48 << 10;
  out->maxGridSize[0] = 0x7fffffff;
  out->maxGridSize[1] = out->maxGridSize[2] = 65535;
  out->unifiedAddressing = 1;
  out->asyncEngineCount = 2;
  out->pciBusID = device + 1;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
  cudaError_t error = driver_error();
  if (!error && (device < 0 || device >= sim_devices()))
    error = cudaErrorInvalidDevice;
  if (error)
    return sim_return(error);
  switch (attribute) {
  case cudaDevAttrComputeCapabilityMajor:
    *value = 9;
    break;
  case cudaDevAttrComputeCapabilityMinor:
    *value = 0;
    break;
  case cudaDevAttrMultiProcessorCount:
    *value = 4;
    break;
  case cudaDevAttrWarpSize:
    *value = 32;
    break;
  case cudaDevAttrMaxThreadsPerBlock:
    *value = 1024;
    break;
  case cudaDevAttrMaxThreadsPerMultiProcessor:
    *value = 2048;
    break;
  case cudaDevAttrMaxSharedMemoryPerBlock:
    *value = 48 << 10;
    break;
  case cudaDevAttrUnifiedAddressing:
  case cudaDevAttrHostRegisterSupported:
    *value = 1;
    break;
  default:
    sim_complain("attribute %d of a device is not simulated", (int)attribute);
    return sim_return(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) {
  *can = device != peer;
  return sim_return(driver_error());
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  static bool is_enabled[SIM_DEVICES_MAX][SIM_DEVICES_MAX];
  if (flags != 0 || peer < 0 || peer >= sim_devices() || peer == current_device)
    return sim_return(cudaErrorInvalidValue);
  if (__atomic_exchange_n(&is_enabled[current_device][peer], true, __ATOMIC_RELAXED))
    return sim_return(cudaErrorPeerAccessAlreadyEnabled);
  return sim_return(driver_error());
}

cudaError_t cudaDriverGetVersion(int *version) {
  const char *driver = getenv("WEIR_SIMULATED_DRIVER");
  *version = !driver || !*driver ? CUDART_VERSION : strcmp(driver, "old") == 0 ? 11080 : 0;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaPeekAtLastError(void) {
  cudaError_t error = sim_device_error(current_device);
  return error ? error : last_error;
}

cudaError_t cudaGetLastError(void) {
  cudaError_t error = cudaPeekAtLastError();
  last_error = cudaSuccess;
  return error;
}

static const struct {
  cudaError_t error;
  const char *name, *text;
} errors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorHostMemoryAlreadyRegistered, "cudaErrorHostMemoryAlreadyRegistered",
     "part or all of the requested memory range is already mapped"},
    {cudaErrorHostMemoryNotRegistered, "cudaErrorHostMemoryNotRegistered",
     "pointer does not correspond to a registered memory region"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched",
     "capture was not initiated in this stream"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined", "capturing stream has unjoined work"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
    {cudaErrorStreamCaptureImplicit, "cudaErrorStreamCaptureImplicit",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {cudaErrorCapturedEvent, "cudaErrorCapturedEvent",
     "operation not permitted on an event last recorded in a capturing stream"},
    {cudaErrorStreamCaptureMerge, "cudaErrorStreamCaptureMerge",
     "operation would result in a merge of separate capture sequences"},
    {cudaErrorStreamCaptureWrongThread, "cudaErrorStreamCaptureWrongThread",
     "attempt to terminate a thread-local capture sequence from another thread"},
    {cudaErrorIllegalState, "cudaErrorIllegalState",
     "the operation cannot be performed in the present state"},
};

const char *cudaGetErrorName(cudaError_t error) {
  for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
    if (errors[i].error == error)
      return errors[i].name;
  return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error) {
  for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
    if (errors[i].error == error)
      return errors[i].text;
  return "unrecognized error code";
}
