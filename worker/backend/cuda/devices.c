/* The devices of this machine. */
#include <pthread.h>
#include <stdio.h>

#include "worker/backend/cuda/program.h"

static int in_use = -1; /* atomic: a device that some thread uses */
static __thread bool has_device;

int cuda_device_use(int device, struct err *err) {
  cudaGetLastError(); /* what somebody else left on this thread is not ours; a lost device says so again */
  if (cuda_check(NULL, cudaSetDevice(device), "use the device", err))
    return err->code;
  has_device = true;
  __atomic_store_n(&in_use, device, __ATOMIC_RELAXED);
  return ERR_OK;
}

bool cuda_device_use_any(void) {
  int device = __atomic_load_n(&in_use, __ATOMIC_RELAXED);
  struct err err = ERR_NONE;
  return has_device || (device >= 0 && !cuda_device_use(device, &err));
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
