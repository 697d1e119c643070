/* ONNX files as one piece of bytes. */
#include "model/onnx/model_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/memory.h"
#include "common/base/unpack.h"
#include "model/onnx/model_tie.h"
#include "onnx.pb-c.h"

/* What protobuf can hold in one message. */
static const size_t model_bytes_max = (size_t)INT_MAX;

static int fail_errno(const char *path, int error, struct err *err) {
  err_errno(err, error, "%s", path);
  return err->code = error == ENOENT ? ERR_NOT_FOUND : ERR_IO;
}

/* Bytes of a file from offset; length < 0: to its end. */
struct range {
  int64_t offset, length;
};

static int read_range(const char *path, struct range range, void **bytes, size_t *size, struct err *err) {
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe is not waited for */
  FILE *file = fd < 0 ? NULL : fdopen(fd, "rb");
  struct stat info = {0};
  int64_t offset = range.offset, length = range.length, file_size;
  *bytes = NULL;
  if (!file)
    return fail_errno(path, errno, err);
  if (fstat(fd, &info) || S_ISDIR(info.st_mode)) {
    fail_errno(path, S_ISDIR(info.st_mode) ? EISDIR : errno, err);
    goto out;
  }
  if (!S_ISREG(info.st_mode)) {
    err_set(err, ERR_INVALID, "%s: is not a file but a pipe or a device", path);
    goto out;
  }
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

/* Where a tensor's data lies. length < 0: to the file's end. */
struct external {
  const char *location;
  int64_t offset, length;
};

static bool read_count(const char *text, int64_t *out) {
  char *end;
  errno = 0;
  *out = strtoll(text, &end, 10);
  return *text >= '0' && *text <= '9' && !*end && !errno;
}

static int read_entries(const char *model_path, const Onnx__TensorProto *tensor, struct external *out,
                        struct err *err) {
  const char *name = tensor->name ? tensor->name : "";
  *out = (struct external){.length = -1};
  for (size_t i = 0; i < tensor->n_external_data; i++) {
    const char *key = tensor->external_data[i]->key, *value = tensor->external_data[i]->value;
    bool is_right = true;
    if (!key || !value)
      continue;
    if (strcmp(key, "location") == 0)
      out->location = value;
    else if (strcmp(key, "offset") == 0)
      is_right = read_count(value, &out->offset);
    else if (strcmp(key, "length") == 0)
      is_right = read_count(value, &out->length);
    if (!is_right)
      return err_set(err, ERR_INVALID,
                     "%s: tensor '%.100s': the %s of its external data is '%.40s', not a number", model_path,
                     name, key, value);
  }
  if (!out->location || !*out->location || leaves_folder(out->location))
    return err_set(err, ERR_INVALID, "%s: tensor '%.100s' has its data outside the model's folder: '%.200s'",
                   model_path, name, out->location ? out->location : "");
  return 0;
}

/* Reads one tensor's external data into its raw_data. */
static int inline_tensor(const char *model_path, Onnx__TensorProto *tensor, struct err *err) {
  const char *slash = strrchr(model_path, '/');
  struct external external;
  char path[PATH_MAX];
  void *bytes;
  size_t size;
  if (read_entries(model_path, tensor, &external, err))
    return err->code;
  if ((size_t)snprintf(path, sizeof path, "%.*s%s", slash ? (int)(slash - model_path + 1) : 0, model_path,
                       external.location) >= sizeof path)
    return err_set(err, ERR_INVALID, "%s: the path of its external data is too long", model_path);
  if (read_range(path, (struct range){external.offset, external.length}, &bytes, &size, err))
    return err_prefix(err, "%s: tensor '%.100s'", model_path, tensor->name ? tensor->name : "");
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

/* A model that is made complete. */
struct completion {
  const char *path;
  bool is_changed;
  struct err *err;
};

static void complete_tensor(struct completion *completion, Onnx__TensorProto *tensor) {
  if (completion->err->code || !tensor->has_data_location ||
      tensor->data_location != ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL)
    return;
  completion->is_changed = true;
  inline_tensor(completion->path, tensor, completion->err);
}

static void complete_graph(struct completion *completion, Onnx__GraphProto *graph);

static void complete_nodes(struct completion *completion, Onnx__NodeProto **nodes, size_t n) {
  for (size_t i = 0; i < n; i++)
    for (size_t a = 0; a < nodes[i]->n_attribute; a++) {
      Onnx__AttributeProto *attribute = nodes[i]->attribute[a];
      if (attribute->t)
        complete_tensor(completion, attribute->t);
      if (attribute->g)
        complete_graph(completion, attribute->g);
    }
}

/* Branches are graphs in a graph; unpacking has bounded how deep they lie. */
static void complete_graph(struct completion *completion, Onnx__GraphProto *graph) {
  for (size_t i = 0; i < graph->n_initializer; i++)
    complete_tensor(completion, graph->initializer[i]);
  complete_nodes(completion, graph->node, graph->n_node);
}

/* Replaces *bytes by a model without external data and with tied weights; leaves them alone where nothing
   changes. */
static int complete_model(const char *path, void **bytes, size_t *size, struct err *err) {
  Onnx__ModelProto *model = message_unpack(&onnx__model_proto__descriptor, *bytes, *size, err);
  struct completion completion = {.path = path, .err = err};
  if (!model)
    return err_prefix(err, "%s", path);
  if (model->graph)
    complete_graph(&completion, model->graph);
  for (size_t f = 0; f < model->n_functions; f++)
    complete_nodes(&completion, model->functions[f]->node, model->functions[f]->n_node);
  if (model->graph && !err->code)
    completion.is_changed |= model_tie(model->graph);
  if (completion.is_changed && !err->code) {
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
  if (read_range(path, (struct range){0, -1}, bytes, size, err))
    return err->code;
  if (complete_model(path, bytes, size, err)) {
    free(*bytes);
    *bytes = NULL;
  }
  return err->code;
}

int model_file_read_bytes(const char *path, void **bytes, size_t *size, struct err *err) {
  return read_range(path, (struct range){0, -1}, bytes, size, err);
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
