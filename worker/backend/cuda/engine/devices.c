/* The devices of this machine. */
#include <pthread.h>
#include <stdio.h>

#include "worker/backend/cuda/engine/program.h"
#include "worker/backend/plugin.h"

static int in_use = -1; /* atomic: a device that some thread uses */
static uint64_t used;   /* atomic: all that were */
static __thread bool has_device;

int cuda_device_use(int device, struct err *err) {
  cudaGetLastError(); /* what somebody else left on this thread is not ours; a lost device says so again */
  if (cuda_check(NULL, cudaSetDevice(device), "use the device", err))
    return err->code;
  has_device = true;
  __atomic_store_n(&in_use, device, __ATOMIC_RELAXED);
  __atomic_fetch_or(&used, UINT64_C(1) << device % PLUGIN_DEVICES_MAX, __ATOMIC_RELAXED);
  return ERR_OK;
}

bool cuda_device_use_any(void) {
  int device = __atomic_load_n(&in_use, __ATOMIC_RELAXED);
  struct err err = ERR_NONE;
  return has_device || (device >= 0 && !cuda_device_use(device, &err));
}

void cuda_device_reach(int device, const void *bytes) {
  static uint64_t reached[PLUGIN_DEVICES_MAX]; /* atomic; by device: the peers that were tried */
  struct cudaPointerAttributes attributes;
  uint64_t devices = __atomic_load_n(&used, __ATOMIC_RELAXED);
  int can = 0, peer;
  if ((devices & (devices - 1)) == 0)
    return; /* it is alone */
  if (cudaPointerGetAttributes(&attributes, bytes) == cudaSuccess &&
      attributes.type == cudaMemoryTypeDevice) {
    peer = attributes.device;
    if (peer == device || peer >= PLUGIN_DEVICES_MAX || device >= PLUGIN_DEVICES_MAX)
      return;
    if (__atomic_fetch_or(&reached[device], UINT64_C(1) << peer, __ATOMIC_RELAXED) >> peer & 1)
      return;
    if (cudaDeviceCanAccessPeer(&can, device, peer) == cudaSuccess && can)
      cudaDeviceEnablePeerAccess(peer, 0);
  }
  cudaGetLastError(); /* it is looked at after a launch */
}

static pthread_once_t fingerprint_once = PTHREAD_ONCE_INIT;
static char fingerprint[128];

static void fingerprint_make(void) {
  int runtime = 0;
  size_t blas = cublasLtGetVersion(), dnn = cudnnGetVersion();
  cudaRuntimeGetVersion(&runtime);
  snprintf(fingerprint, sizeof fingerprint, "CUDA %d.%d cuDNN %zu.%zu.%zu cuBLASLt %zu.%zu.%zu",
           runtime / 1000, runtime % 1000 / 10, dnn / 10000, dnn % 10000 / 100, dnn % 100, blas / 10000,
           blas % 10000 / 100, blas % 100);
}

const char *cuda_fingerprint(void) {
  pthread_once(&fingerprint_once, fingerprint_make);
  return fingerprint;
}
