/* safetensors: eight bytes of header length (little-endian), a JSON header that gives each tensor's type,
   shape and place, then the bytes. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "client/files/export.h"
#include "model/export_tensors.h"
#include "model/onnx/model_file.h"

static json_t *make_header(const struct trained_tensors *trained) {
  json_t *header = json_object();
  uint64_t begin = 0;
  json_object_set_new(header, "__metadata__", json_pack("{s:s}", "format", "pt"));
  for (int i = 0; i < trained->n; i++) {
    const struct trained_tensor *tensor = &trained->tensors[i];
    uint64_t end = begin + tensor->elems * sizeof(float);
    json_t *shape = json_array();
    for (int d = 0; d < tensor->shape->rank; d++)
      json_array_append_new(shape, json_integer(tensor->shape->dim[d]));
    json_object_set_new(header, tensor->name,
                        json_pack("{s:s, s:o, s:[I, I]}", "dtype", "F32", "shape", shape, "data_offsets",
                                  (json_int_t)begin, (json_int_t)end));
    begin = end;
  }
  return header;
}

/* The header's text, padded with blanks so that the tensors lie aligned. */
static char *header_text(const struct trained_tensors *trained, size_t *size) {
  json_t *header = make_header(trained);
  char *text = json_dumps(header, JSON_COMPACT);
  size_t length, padded;
  json_decref(header);
  CHECK(text);
  length = strlen(text);
  padded = (length + 7) & ~(size_t)7;
  text = mem_resize(text, padded);
  memset(text + length, ' ', padded - length);
  *size = padded;
  return text;
}

int export_safetensors(const struct trained_model *model, const char *path, struct err *err) {
  struct trained_tensors trained;
  size_t header_size, size;
  uint64_t header_size_field;
  char *header = NULL, *bytes = NULL;
  if (trained_tensors_init(&trained, model, err))
    goto out;
  header = header_text(&trained, &header_size);
  header_size_field = header_size;
  size = sizeof header_size_field + header_size;
  for (int i = 0; i < trained.n; i++)
    size += trained.tensors[i].elems * sizeof(float);
  bytes = mem_new(size);
  memcpy(bytes, &header_size_field, sizeof header_size_field);
  memcpy(bytes + sizeof header_size_field, header, header_size);
  size = sizeof header_size_field + header_size;
  for (int i = 0; i < trained.n; i++) {
    memcpy(bytes + size, trained.tensors[i].data, trained.tensors[i].elems * sizeof(float));
    size += trained.tensors[i].elems * sizeof(float);
  }
  model_file_write(path, bytes, size, err);
out:
  trained_tensors_fini(&trained);
  free(header);
  free(bytes);
  return err->code;
}
