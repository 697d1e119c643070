/* A libcuda.so.1 that has no device but lets libraries load kernels that are never launched: enough for cuDNN
   to finalize plans for a device that is described to it. */
#include <stddef.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 801, VERSION = 13000 };

static int something; /* what handles point at */

#define REFUSE(name)                                                                                         \
  int name(void);                                                                                            \
  int name(void) {                                                                                           \
    return NOT_SUPPORTED;                                                                                    \
  }
#define ACCEPT(name)                                                                                         \
  int name(void);                                                                                            \
  int name(void) {                                                                                           \
    return SUCCESS;                                                                                          \
  }

int cuDriverGetVersion(int *version);
int cuDriverGetVersion(int *version) {
  *version = VERSION;
  return SUCCESS;
}

int cuGetErrorName(int error, const char **name);
int cuGetErrorName(int error, const char **name) {
  *name = error ? "no device" : "success";
  return SUCCESS;
}

int cuGetErrorString(int error, const char **text);
int cuGetErrorString(int error, const char **text) {
  return cuGetErrorName(error, text);
}

int cuLibraryLoadData(void **library);
int cuLibraryLoadData(void **library) {
  *library = &something;
  return SUCCESS;
}

int cuLibraryGetKernel(void **kernel);
int cuLibraryGetKernel(void **kernel) {
  *kernel = &something;
  return SUCCESS;
}

ACCEPT(cuLibraryUnload)
ACCEPT(cuKernelSetAttribute)
REFUSE(cuInit)
REFUSE(cuCtxGetCurrent)
REFUSE(cuCtxGetDevice)
REFUSE(cuCtxGetLimit)
REFUSE(cuCtxPopCurrent)
REFUSE(cuCtxPushCurrent)
REFUSE(cuDeviceGet)
REFUSE(cuDeviceGetAttribute)
REFUSE(cuDeviceGetCount)
REFUSE(cuDevicePrimaryCtxRelease)
REFUSE(cuDevicePrimaryCtxReset)
REFUSE(cuDevicePrimaryCtxRetain)
REFUSE(cuFuncGetAttribute)
REFUSE(cuFuncSetAttribute)
REFUSE(cuKernelGetAttribute)
REFUSE(cuLaunchCooperativeKernel)
REFUSE(cuLaunchKernel)
REFUSE(cuLaunchKernelEx)
REFUSE(cuLibraryLoadFromFile)
REFUSE(cuLinkAddData)
REFUSE(cuLinkAddData_v2)
REFUSE(cuLinkAddFile_v2)
REFUSE(cuLinkComplete)
REFUSE(cuLinkCreate)
REFUSE(cuLinkCreate_v2)
REFUSE(cuLinkDestroy)
REFUSE(cuMemcpyDtoH_v2)
REFUSE(cuModuleGetFunction)
REFUSE(cuModuleGetGlobal_v2)
REFUSE(cuModuleLoadData)
REFUSE(cuModuleLoadDataEx)
REFUSE(cuModuleLoadFatBinary)
REFUSE(cuModuleUnload)
REFUSE(cuOccupancyMaxActiveBlocksPerMultiprocessor)
REFUSE(cuOccupancyMaxPotentialClusterSize)
REFUSE(cuStreamGetCtx)
REFUSE(cuStreamSynchronize)
REFUSE(cuTensorMapEncodeTiled)
