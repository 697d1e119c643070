/* ONNX files as one piece of bytes. */
#include "client/model_file.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/model_tie.h"
#include "common/memory.h"
#include "common/unpack.h"
#include "onnx.pb-c.h"

/* What protobuf can hold in one message. */
static const size_t model_bytes_max = (size_t)INT_MAX;

static int fail_errno(const char *path, int error, struct err *err) {
  err_errno(err, error, "%s", path);
  return err->code = error == ENOENT ? ERR_NOT_FOUND : ERR_IO;
}

/* size_max bytes of the file from offset; length < 0: to its end. */
static int read_range(const char *path, int64_t offset, int64_t length, void **bytes, size_t *size,
                      struct err *err) {
  FILE *file = fopen(path, "rb");
  int64_t file_size;
  *bytes = NULL;
  if (!file)
    return fail_errno(path, errno, err);
  if (fseeko(file, 0, SEEK_END) || (file_size = ftello(file)) < 0) {
    fail_errno(path, errno, err);
    goto out;
  }
  if (offset < 0 || offset > file_size || (length >= 0 && length > file_size - offset)) {
    err_set(err, ERR_INVALID, "%s: cut short: %lld bytes at %lld are wanted, it has %lld", path,
            (long long)length, (long long)offset, (long long)file_size);
    goto out;
  }
  *size = (size_t)(length >= 0 ? length : file_size - offset);
  if (*size > model_bytes_max) {
    err_set(err, ERR_UNSUPPORTED, "%s: %zu bytes; files of at most 2 GiB are read", path, *size);
    goto out;
  }
  *bytes = malloc(*size ? *size : 1);
  if (!*bytes)
    err_set(err, ERR_NO_MEMORY, "%s: no memory for %zu bytes", path, *size);
  else if (fseeko(file, offset, SEEK_SET) || fread(*bytes, 1, *size, file) != *size)
    err_errno(err, errno ? errno : EIO, "%s", path);
out:
  fclose(file);
  if (err->code) {
    free(*bytes);
    *bytes = NULL;
  }
  return err->code;
}

static bool leaves_folder(const char *location) {
  const char *at = location;
  if (*at == '/')
    return true;
  for (; at; at = strchr(at, '/') ? strchr(at, '/') + 1 : NULL)
    if (strncmp(at, "..", 2) == 0 && (at[2] == '/' || at[2] == 0))
      return true;
  return false;
}

/* Reads one tensor's external data into its raw_data. */
static int inline_tensor(const char *model_path, Onnx__TensorProto *tensor, struct err *err) {
  const char *location = NULL, *slash = strrchr(model_path, '/');
  int64_t offset = 0, length = -1;
  char path[PATH_MAX];
  void *bytes;
  size_t size;
  for (size_t i = 0; i < tensor->n_external_data; i++) {
    const char *key = tensor->external_data[i]->key, *value = tensor->external_data[i]->value;
    if (!key || !value)
      continue;
    if (strcmp(key, "location") == 0)
      location = value;
    else if (strcmp(key, "offset") == 0)
      offset = strtoll(value, NULL, 10);
    else if (strcmp(key, "length") == 0)
      length = strtoll(value, NULL, 10);
  }
  if (!location || leaves_folder(location))
    return err_set(err, ERR_INVALID, "%s: tensor '%s' has its data outside the model's folder: '%s'",
                   model_path, tensor->name, location ? location : "");
  snprintf(path, sizeof path, "%.*s%s", slash ? (int)(slash - model_path + 1) : 0, model_path, location);
  if (read_range(path, offset, length, &bytes, &size, err))
    return err_prefix(err, "%s: tensor '%s'", model_path, tensor->name);
  free(tensor->raw_data.data);
  tensor->raw_data.data = bytes;
  tensor->raw_data.len = size;
  tensor->has_raw_data = 1;
  tensor->data_location = ONNX__TENSOR_PROTO__DATA_LOCATION__DEFAULT;
  for (size_t i = 0; i < tensor->n_external_data; i++)
    onnx__string_string_entry_proto__free_unpacked(tensor->external_data[i], NULL);
  tensor->n_external_data = 0;
  return 0;
}

static bool is_external(const Onnx__TensorProto *tensor) {
  return tensor->has_data_location && tensor->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
}

/* Replaces *bytes by a model without external data and with tied weights; leaves them alone where nothing
   changes. */
static int complete_model(const char *path, void **bytes, size_t *size, struct err *err) {
  Onnx__ModelProto *model = message_unpack(&onnx__model_proto__descriptor, *bytes, *size, err);
  Onnx__GraphProto *graph = model ? model->graph : NULL;
  bool found = false;
  if (!model)
    return err_prefix(err, "%s", path);
  for (size_t i = 0; graph && i < graph->n_initializer && !err->code; i++)
    if (is_external(graph->initializer[i])) {
      found = true;
      inline_tensor(path, graph->initializer[i], err);
    }
  for (size_t n = 0; graph && n < graph->n_node && !err->code; n++)
    for (size_t a = 0; a < graph->node[n]->n_attribute && !err->code; a++) {
      Onnx__TensorProto *tensor = graph->node[n]->attribute[a]->t;
      if (tensor && is_external(tensor)) {
        found = true;
        inline_tensor(path, tensor, err);
      }
    }
  if (graph && !err->code)
    found |= model_tie(graph);
  if (found && !err->code) {
    *size = onnx__model_proto__get_packed_size(model);
    if (*size > model_bytes_max)
      err_set(err, ERR_UNSUPPORTED, "%s: %zu bytes with its external data; at most 2 GiB are read", path,
              *size);
    else
      onnx__model_proto__pack(model, *bytes = mem_resize(*bytes, *size));
  }
  onnx__model_proto__free_unpacked(model, NULL);
  return err->code;
}

int model_file_read(const char *path, void **bytes, size_t *size, struct err *err) {
  err->code = ERR_OK;
  if (read_range(path, 0, -1, bytes, size, err))
    return err->code;
  if (complete_model(path, bytes, size, err)) {
    free(*bytes);
    *bytes = NULL;
  }
  return err->code;
}

int model_file_read_bytes(const char *path, void **bytes, size_t *size, struct err *err) {
  return read_range(path, 0, -1, bytes, size, err);
}

int model_file_write(const char *path, const void *bytes, size_t size, struct err *err) {
  char *temporary = mem_printf("%s.%d.tmp", path, (int)getpid());
  FILE *file = fopen(temporary, "wb");
  int error = file ? 0 : errno;
  if (file && (fwrite(bytes, 1, size, file) != size || fflush(file) || fsync(fileno(file))))
    error = errno;
  if (file && fclose(file) && !error)
    error = errno;
  if (!error && rename(temporary, path))
    error = errno;
  if (error)
    unlink(temporary);
  free(temporary);
  return error ? err_errno(err, error, "%s", path) : 0;
}
