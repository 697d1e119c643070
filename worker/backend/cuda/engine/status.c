/* Errors of CUDA and its libraries, as ours. */
#include "worker/backend/cuda/engine/cuda.h"
#include "worker/backend/cuda/engine/program.h"

/* After these nothing works on the device any more, for this process at least. */
static bool is_lost(cudaError_t status) {
  switch (status) {
  case cudaErrorIllegalAddress:
  case cudaErrorLaunchFailure:
  case cudaErrorLaunchTimeout:
  case cudaErrorIllegalInstruction:
  case cudaErrorMisalignedAddress:
  case cudaErrorInvalidAddressSpace:
  case cudaErrorInvalidPc:
  case cudaErrorHardwareStackError:
  case cudaErrorECCUncorrectable:
  case cudaErrorNvlinkUncorrectable:
  case cudaErrorAssert:
  case cudaErrorContained:
  case cudaErrorTensorMemoryLeak:
  case cudaErrorExternalDevice:
  case cudaErrorMpsRpcFailure:
  case cudaErrorMpsClientTerminated:
  case cudaErrorContextIsDestroyed:
  case cudaErrorDevicesUnavailable:
  case cudaErrorCudartUnloading:
  case cudaErrorUnknown: /* a device that fell off its bus */
    return true;
  default:
    return false;
  }
}

static enum err_code code_of(cudaError_t status) {
  if (status == cudaErrorMemoryAllocation)
    return ERR_NO_MEMORY;
  return is_lost(status) ? ERR_LOST_DEVICE : ERR_INTERNAL;
}

/* A library says no more than that an execution failed: the device may be gone. */
static enum err_code code_of_library(enum err_code otherwise) {
  return is_lost(cudaPeekAtLastError()) || is_lost(cudaDeviceSynchronize()) ? ERR_LOST_DEVICE : otherwise;
}

/* What a library could not do. */
struct refusal {
  enum err_code code;
  const char *library, *what, *why;
};

static int refusal_set(const struct node *node, struct refusal it, struct err *err) {
  if (node)
    return node_error(node, err, it.code, "%s cannot %s: %s", it.library, it.what, it.why);
  return err_set(err, it.code, "%s cannot %s: %s", it.library, it.what, it.why);
}

int cuda_check(const struct node *node, cudaError_t status, const char *what, struct err *err) {
  if (status == cudaSuccess)
    return ERR_OK;
  return refusal_set(node, (struct refusal){code_of(status), "CUDA", what, cudaGetErrorString(status)}, err);
}

int cuda_blas_check(const struct node *node, cublasStatus_t status, const char *what, struct err *err) {
  enum err_code code = ERR_INTERNAL;
  if (status == CUBLAS_STATUS_SUCCESS)
    return ERR_OK;
  if (status == CUBLAS_STATUS_ALLOC_FAILED)
    code = ERR_NO_MEMORY;
  else if (status == CUBLAS_STATUS_EXECUTION_FAILED || status == CUBLAS_STATUS_INTERNAL_ERROR)
    code = code_of_library(code);
  return refusal_set(node, (struct refusal){code, "cuBLASLt", what, cublasLtGetStatusString(status)}, err);
}

int cuda_dnn_check(const struct node *node, cudnnStatus_t status, const char *what, struct err *err) {
  enum err_code code = ERR_INTERNAL;
  if (status == CUDNN_STATUS_SUCCESS)
    return ERR_OK;
  if (status == CUDNN_STATUS_ALLOC_FAILED)
    code = ERR_NO_MEMORY;
  else if (status == CUDNN_STATUS_EXECUTION_FAILED || status == CUDNN_STATUS_INTERNAL_ERROR)
    code = code_of_library(code);
  return refusal_set(node, (struct refusal){code, "cuDNN", what, cudnnGetErrorString(status)}, err);
}

bool cuda_ok(struct backend_program *program, const struct node *node, cudaError_t status, const char *what) {
  struct err err = ERR_NONE;
  cuda_check(node, status, what, &err);
  if (err.code && !program->err.code)
    program->err = err;
  return err.code == ERR_OK;
}
