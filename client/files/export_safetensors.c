/* safetensors: eight bytes of header length (little-endian), a JSON header that gives each tensor's type,
   shape and place, then the bytes. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "client/files/export.h"
#include "client/files/output_file.h"
#include "client/files/trained_tensor.h"

static json_t *make_header(const struct model *model) {
  json_t *header = json_object();
  uint64_t begin = 0;
  json_object_set_new(header, "__metadata__", json_pack("{s:s}", "format", "pt"));
  for (int i = 0; i < model->n_initializers; i++) {
    struct tensor_of_run tensor;
    json_t *shape = json_array();
    uint64_t end;
    if (!tensor_of_run(model, i, &tensor)) {
      json_decref(shape);
      continue;
    }
    end = begin + tensor.elems * sizeof(float);
    for (int d = 0; d < tensor.shape->rank; d++)
      json_array_append_new(shape, json_integer(tensor.shape->dim[d]));
    json_object_set_new(header, model->initializers[i].name,
                        json_pack("{s:s, s:o, s:[I, I]}", "dtype", "F32", "shape", shape, "data_offsets",
                                  (json_int_t)begin, (json_int_t)end));
    begin = end;
  }
  return header;
}

/* The header's text, padded with blanks so that the tensors lie aligned. */
static char *header_text(const struct model *model, size_t *size) {
  json_t *header = make_header(model);
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

/* Where each tensor begins: [n_initializers], 0 of those that are not trained. */
static uint64_t *place_tensors(const struct model *model, uint64_t begin) {
  uint64_t *places = mem_new((size_t)model->n_initializers * sizeof *places);
  for (int i = 0; i < model->n_initializers; i++) {
    struct tensor_of_run tensor;
    if (!tensor_of_run(model, i, &tensor))
      continue;
    places[i] = begin;
    begin += tensor.elems * sizeof(float);
  }
  return places;
}

/* What comes is written where it belongs. */
struct saving {
  struct output_file file;
  const uint64_t *places;
};

static int save_part(void *user, const struct tensor_part *part, struct err *err) {
  struct saving *saving = user;
  return output_file_write(&saving->file, saving->places[part->initializer] + part->begin * sizeof(float),
                           part->data, part->elems * sizeof(float), err);
}

int export_safetensors(const struct export_source *source, const char *path, struct err *err) {
  struct saving saving = {.file = {.fd = -1}};
  struct model *model;
  uint64_t header_size_field, *places;
  size_t header_size;
  char *header;
  if (submitted_model_open(&source->model, &model, err))
    return err->code;
  header = header_text(model, &header_size);
  header_size_field = header_size;
  places = place_tensors(model, sizeof header_size_field + header_size);
  saving.places = places;
  if (output_file_open(&saving.file, path, err) == 0 &&
      output_file_write(&saving.file, 0, &header_size_field, sizeof header_size_field, err) == 0 &&
      output_file_write(&saving.file, sizeof header_size_field, header, header_size, err) == 0 &&
      weights_each_part(model, &source->weights, save_part, &saving, err) == 0)
    output_file_commit(&saving.file, err);
  output_file_close(&saving.file);
  model_close(model);
  free(places);
  free(header);
  return err->code;
}
