/* Reading safetensors files, which anybody may have made. */
#ifndef WEIR_CLIENT_FILES_SAFETENSORS_H
#define WEIR_CLIENT_FILES_SAFETENSORS_H

#include "common/base/memory.h"
#include "model/export_tensors.h"

struct safetensors {
  struct arena arena; /* names and shapes */
  struct trained_tensor *tensors;
  const char **dtypes; /* of each, as the file calls it */
  int n;
  float *floats; /* of all tensors */
};

/* Reads the file at path: F32 as it is, F16 and BF16 exactly as f32; data of a tensor of another type is
   NULL. The header is checked in full: its length, no name twice, known fields, shapes of at most RANK_MAX
   dimensions that fit their bytes, tensors side by side without a gap to the file's end. Errors: INVALID
   naming file and tensor; NOT_FOUND, IO, NO_MEMORY. Released with safetensors_fini, also after an error. */
int safetensors_read(const char *path, struct safetensors *out, struct err *err);
/* The same of bytes in memory; name: for messages. */
int safetensors_parse(const char *name, const void *bytes, size_t size, struct safetensors *out,
                      struct err *err);
void safetensors_fini(struct safetensors *file); /* safe on a zeroed one */

#endif
