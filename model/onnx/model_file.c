/* ONNX files as they are submitted, and as one piece of bytes. */
#include "model/onnx/model_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/memory.h"
#include "common/base/unpack.h"
#include "model/onnx/external_data.h"
#include "model/onnx/model_tie.h"
#include "model/onnx/onnx_pieces.h"

/* What protobuf can hold in one message. */
static const size_t model_bytes_max = (size_t)INT_MAX;

static int fail_errno(const char *path, int error, struct err *err) {
  err_errno(err, error, "%s", path);
  return err->code = error == ENOENT ? ERR_NOT_FOUND : ERR_IO;
}

int model_file_read_bytes(const char *path, void **bytes, size_t *size, struct err *err) {
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe is not waited for */
  FILE *file = fd < 0 ? NULL : fdopen(fd, "rb");
  struct stat info = {0};
  off_t end;
  *bytes = NULL;
  err->code = ERR_OK;
  if (!file)
    return fail_errno(path, errno, err);
  if (fstat(fd, &info) || S_ISDIR(info.st_mode))
    fail_errno(path, S_ISDIR(info.st_mode) ? EISDIR : errno, err);
  else if (!S_ISREG(info.st_mode))
    err_set(err, ERR_INVALID, "%s: is not a file but a pipe or a device", path);
  else if (fseeko(file, 0, SEEK_END) || (end = ftello(file)) < 0)
    fail_errno(path, errno, err);
  else if ((*size = (size_t)end) > model_bytes_max)
    err_set(err, ERR_UNSUPPORTED,
            "%s: %zu bytes; an ONNX file has at most 2 GiB: its tensors can be in files beside it", path,
            *size);
  else if (!(*bytes = malloc(*size ? *size : 1)))
    err_set(err, ERR_NO_MEMORY, "%s: no memory for %zu bytes", path, *size);
  else if (fseeko(file, 0, SEEK_SET) || fread(*bytes, 1, *size, file) != *size)
    err_errno(err, errno ? errno : EIO, "%s", path);
  fclose(file);
  if (err->code) {
    free(*bytes);
    *bytes = NULL;
  }
  return err->code;
}

/* A model that is being opened. */
struct opening {
  const char *path;
  struct external_data *external;
  bool is_changed;
  struct err *err;
};

/* Reads one tensor's external data into its raw_data. */
static void inline_tensor(struct opening *opening, Onnx__TensorProto *tensor) {
  struct external_range range;
  void *bytes;
  if (opening->err->code || !tensor_is_external(tensor))
    return;
  opening->is_changed = true;
  if (external_data_find(opening->external, tensor, &range, opening->err))
    return;
  if (range.size_bytes > model_bytes_max)
    err_set(opening->err, ERR_UNSUPPORTED, "%s: tensor '%.100s': %llu bytes; at most 2 GiB are read",
            opening->path, tensor->name ? tensor->name : "", (unsigned long long)range.size_bytes);
  else if (!(bytes = malloc(range.size_bytes ? range.size_bytes : 1)))
    err_set(opening->err, ERR_NO_MEMORY, "%s: no memory for %llu bytes", opening->path,
            (unsigned long long)range.size_bytes);
  else if (external_data_read(opening->external, range, bytes, opening->err))
    free(bytes);
  else
    onnx_tensor_put(tensor, bytes, range.size_bytes);
}

static void inline_graph(struct opening *opening, Onnx__GraphProto *graph);

static void inline_nodes(struct opening *opening, Onnx__NodeProto **nodes, size_t n) {
  for (size_t i = 0; i < n; i++)
    for (size_t a = 0; a < nodes[i]->n_attribute; a++) {
      Onnx__AttributeProto *attribute = nodes[i]->attribute[a];
      if (attribute->t)
        inline_tensor(opening, attribute->t);
      if (attribute->g)
        inline_graph(opening, attribute->g);
    }
}

/* Branches are graphs in a graph; unpacking has bounded how deep they lie. */
static void inline_graph(struct opening *opening, Onnx__GraphProto *graph) {
  for (size_t i = 0; i < graph->n_initializer; i++)
    inline_tensor(opening, graph->initializer[i]);
  inline_nodes(opening, graph->node, graph->n_node);
}

/* Names the pieces of one external initializer, where it is large. */
static void name_pieces(struct opening *opening, Onnx__TensorProto *tensor) {
  struct external_range range;
  struct pieces pieces;
  char *keys;
  if (opening->err->code || !tensor_is_external(tensor) ||
      external_data_find(opening->external, tensor, &range, opening->err) ||
      !onnx_pieces_fit(tensor, range.size_bytes, &pieces))
    return;
  opening->is_changed = true;
  if (external_data_add_pieces(opening->external, range, &pieces, &keys, opening->err) == 0)
    onnx_pieces_set(tensor, keys);
}

/* Ties first: what is a copy is not sent. */
static void complete_graph(struct opening *opening, Onnx__GraphProto *graph) {
  for (size_t i = 0; i < graph->n_initializer; i++) {
    struct external_range range;
    if (!opening->err->code && tensor_is_external(graph->initializer[i]))
      external_data_find(opening->external, graph->initializer[i], &range, opening->err);
  }
  if (opening->err->code)
    return;
  opening->is_changed |= model_tie(graph, opening->external);
  for (size_t i = 0; i < graph->n_initializer; i++)
    name_pieces(opening, graph->initializer[i]);
  for (size_t i = 0; i < graph->n_initializer; i++)
    if (!onnx_is_in_pieces(graph->initializer[i]))
      inline_tensor(opening, graph->initializer[i]);
  inline_nodes(opening, graph->node, graph->n_node);
}

static int pack(const char *path, const Onnx__ModelProto *model, void **bytes, size_t *size,
                struct err *err) {
  size_t packed = onnx__model_proto__get_packed_size(model);
  if (packed > model_bytes_max)
    return err_set(err, ERR_UNSUPPORTED,
                   "%s: %zu bytes with the data of its tensors; at most 2 GiB are possible", path, packed);
  *bytes = malloc(packed);
  *size = packed;
  if (!*bytes)
    return err_set(err, ERR_NO_MEMORY, "%s: no memory for %zu bytes", path, packed);
  onnx__model_proto__pack(model, *bytes);
  return 0;
}

int model_file_open(const char *path, struct model_file *out, struct err *err) {
  struct opening opening = {.path = path, .err = err};
  Onnx__ModelProto *model;
  void *bytes;
  *out = (struct model_file){0};
  if (model_file_read_bytes(path, &out->bytes, &out->size_bytes, err))
    return err->code;
  model = message_unpack(&onnx__model_proto__descriptor, out->bytes, out->size_bytes, err);
  if (!model)
    return err_prefix(err, "%s", path);
  opening.external = out->external = external_data_new(path);
  if (model->graph)
    complete_graph(&opening, model->graph);
  for (size_t f = 0; f < model->n_functions; f++)
    inline_nodes(&opening, model->functions[f]->node, model->functions[f]->n_node);
  if (opening.is_changed && !err->code && pack(path, model, &bytes, &out->size_bytes, err) == 0) {
    free(out->bytes);
    out->bytes = bytes;
  }
  onnx__model_proto__free_unpacked(model, NULL);
  if (!external_data_has_pieces(out->external)) {
    external_data_free(out->external);
    out->external = NULL;
  }
  return err->code;
}

void model_file_close(struct model_file *file) {
  external_data_free(file->external);
  free(file->bytes);
  *file = (struct model_file){0};
}

struct piece_source model_file_pieces(const struct model_file *file) {
  return file->external ? (struct piece_source){external_data_read_pieces, file->external}
                        : (struct piece_source){0};
}

int model_file_complete(const struct model_file *file, const struct piece_source *source, void **out,
                        size_t *size, struct err *err) {
  Onnx__ModelProto *model =
      message_unpack(&onnx__model_proto__descriptor, file->bytes, file->size_bytes, err);
  bool is_changed = false;
  *out = NULL;
  if (!model)
    return err->code;
  for (size_t i = 0; model->graph && i < model->graph->n_initializer && !err->code; i++)
    if (onnx_is_in_pieces(model->graph->initializer[i])) {
      is_changed = true;
      onnx_pieces_fill(model->graph->initializer[i], source, err);
    }
  if (!err->code && is_changed)
    pack("the model", model, out, size, err);
  onnx__model_proto__free_unpacked(model, NULL);
  if (err->code || is_changed)
    return err->code;
  *out = malloc(file->size_bytes ? file->size_bytes : 1);
  *size = file->size_bytes;
  if (!*out)
    return err_set(err, ERR_NO_MEMORY, "no memory for a model of %zu bytes", *size);
  memcpy(*out, file->bytes, *size);
  return 0;
}

int model_file_read(const char *path, void **bytes, size_t *size, struct err *err) {
  struct model_file file;
  struct piece_source source;
  *bytes = NULL;
  err->code = ERR_OK;
  if (model_file_open(path, &file, err) == 0) {
    source = model_file_pieces(&file);
    if (model_file_complete(&file, &source, bytes, size, err))
      err_prefix(err, "%s", path);
  }
  model_file_close(&file);
  return err->code;
}
