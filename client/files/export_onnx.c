/* ONNX in inference form: the submitted model with its trained tensors replaced, batch norm on its running
   statistics, dropout gone, and draws of stochastic depth at their expectation. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "client/files/export.h"
#include "client/files/export_draws.h"
#include "client/files/output_file.h"
#include "client/files/trained_tensor.h"
#include "common/base/half.h"
#include "common/base/unpack.h"
#include "model/onnx/onnx_pieces.h"
#include "model/onnx/onnx_uses.h"

/* What protobuf can hold in one message. */
static const uint64_t file_bytes_max = INT_MAX;

static void remove_attribute(Onnx__NodeProto *node, const char *name) {
  size_t kept = 0;
  for (size_t i = 0; i < node->n_attribute; i++)
    if (strcmp(node->attribute[i]->name, name) == 0)
      onnx__attribute_proto__free_unpacked(node->attribute[i], NULL);
    else
      node->attribute[kept++] = node->attribute[i];
  node->n_attribute = kept;
}

static void keep_names(char **names, size_t *n, size_t keep) {
  for (size_t i = keep; i < *n; i++)
    free(names[i]);
  *n = *n < keep ? *n : keep;
}

/* Batch norm with one output and no training_mode normalises with its running statistics. */
static void freeze_batch_norm(Onnx__NodeProto *node) {
  remove_attribute(node, "training_mode");
  keep_names(node->output, &node->n_output, 1);
}

/* In inference dropout is the identity; ratio and training_mode go with it. */
static void freeze_dropout(Onnx__NodeProto *node) {
  for (size_t i = 0; i < node->n_attribute; i++)
    onnx__attribute_proto__free_unpacked(node->attribute[i], NULL);
  node->n_attribute = 0;
  keep_names(node->input, &node->n_input, 1);
  keep_names(node->output, &node->n_output, 1);
  free(node->op_type);
  node->op_type = mem_strdup("Identity");
}

/* Readers of a dropout read its input, so that nothing is left of it but where it makes an output of the
 * graph. */
static void bypass_dropouts(Onnx__GraphProto *graph) {
  for (size_t n = 0; n < graph->n_node; n++) {
    Onnx__NodeProto *node = graph->node[n];
    if (strcmp(node->op_type, "Dropout") != 0)
      continue;
    freeze_dropout(node);
    if (!onnx_is_output(graph, node->output[0]))
      onnx_rename_uses(graph, node->output[0], node->input[0]);
  }
}

/* Nobody reads any of its outputs. */
static bool is_left_over(const Onnx__GraphProto *graph, const Onnx__NodeProto *node) {
  for (size_t o = 0; o < node->n_output; o++)
    if (*node->output[o] && onnx_is_used(graph, node->output[o]))
      return false;
  return true;
}

/* The bypassed dropouts and draws, and what only they read. Readers come behind what they read. */
static void remove_left_overs(Onnx__GraphProto *graph) {
  size_t kept = 0;
  for (size_t n = graph->n_node; n-- > 0;) {
    if (!is_left_over(graph, graph->node[n]))
      continue;
    onnx__node_proto__free_unpacked(graph->node[n], NULL);
    memmove(&graph->node[n], &graph->node[n + 1], (graph->n_node - n - 1) * sizeof *graph->node);
    graph->n_node--;
  }
  for (size_t i = 0; i < graph->n_initializer; i++)
    if (onnx_is_used(graph, graph->initializer[i]->name))
      graph->initializer[kept++] = graph->initializer[i];
    else
      onnx__tensor_proto__free_unpacked(graph->initializer[i], NULL);
  graph->n_initializer = kept;
}

/* Intermediate results' types are optional, and some belong to values that are gone. */
static void remove_value_infos(Onnx__GraphProto *graph) {
  for (size_t i = 0; i < graph->n_value_info; i++)
    onnx__value_info_proto__free_unpacked(graph->value_info[i], NULL);
  graph->n_value_info = 0;
}

/* The nodes of functions and branches: their dropouts stay, as identities. */
static void freeze_inner(Onnx__NodeProto *const *nodes, size_t n) {
  for (size_t i = 0; i < n; i++) {
    Onnx__NodeProto *node = nodes[i];
    if (strcmp(node->op_type, "BatchNormalization") == 0)
      freeze_batch_norm(node);
    else if (strcmp(node->op_type, "Dropout") == 0)
      freeze_dropout(node);
    for (size_t a = 0; a < node->n_attribute; a++)
      if (node->attribute[a]->g)
        freeze_inner(node->attribute[a]->g->node, node->attribute[a]->g->n_node);
  }
}

static void freeze_model(Onnx__ModelProto *model) {
  Onnx__GraphProto *graph = model->graph;
  bypass_dropouts(graph);
  export_expect_draws(graph);
  freeze_inner(graph->node, graph->n_node);
  for (size_t f = 0; f < model->n_functions; f++)
    freeze_inner(model->functions[f]->node, model->functions[f]->n_node);
  remove_left_overs(graph);
  remove_value_infos(graph);
}

/* What is made of a file: its initializers, by the model's. */
struct exporting {
  const struct export_source *source;
  const struct model *model;
  Onnx__ModelProto *file;
  Onnx__TensorProto *
      *tensors; /* [model->n_initializers]: those that training changed and that are left, else NULL */
  /* above 2 GiB */
  struct output_file data;
  uint64_t *offsets; /* [model->n_initializers] in it, of those that lie there */
  bool *is_apart;    /* [model->n_initializers] */
  uint64_t end;      /* of it */
  char *location;    /* its name in the file */
};

/* PART_BYTES_MIN: smaller tensors stay in the file, as ONNX's own tools have it. */
enum { PART_BYTES_MIN = 1024, DATA_ALIGN = 4096, TENSOR_HEAD_BYTES = 64 };

static size_t elem_size(const Onnx__TensorProto *tensor) {
  return tensor->data_type == ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT ? sizeof(float) : sizeof(uint16_t);
}

/* A 16-bit initializer keeps its type, which the file's other types agree with. to may be from. */
static void encode(const Onnx__TensorProto *tensor, const float *from, uint64_t elems, void *to) {
  bool is_f16 = tensor->data_type == ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT16;
  if (elem_size(tensor) == sizeof(float)) {
    memmove(to, from, elems * sizeof *from);
    return;
  }
  for (uint64_t i = 0; i < elems; i++) {
    uint16_t bits = is_f16 ? f16_of_f32(from[i]) : bf16_of_f32(from[i]);
    memcpy((char *)to + i * sizeof bits, &bits, sizeof bits);
  }
}

static uint64_t trained_bytes(const struct exporting *exporting, int initializer) {
  struct tensor_of_run tensor;
  CHECK(tensor_of_run(exporting->model, initializer, &tensor));
  return tensor.elems * elem_size(exporting->tensors[initializer]);
}

/* Finds the trained tensors, and lets go of the data that they had. */
static void find_tensors(struct exporting *exporting) {
  const struct model *model = exporting->model;
  Onnx__GraphProto *graph = exporting->file->graph;
  exporting->tensors = mem_new((size_t)model->n_initializers * sizeof *exporting->tensors);
  for (int i = 0; i < model->n_initializers; i++) {
    struct tensor_of_run tensor;
    for (size_t g = 0; g < graph->n_initializer && tensor_of_run(model, i, &tensor); g++)
      if (strcmp(graph->initializer[g]->name, model->initializers[i].name) == 0) {
        exporting->tensors[i] = graph->initializer[g];
        onnx_tensor_put(graph->initializer[g], NULL, 0);
        break;
      }
  }
}

/* Of one file with everything in it. */
static uint64_t whole_bytes(const struct exporting *exporting) {
  const Onnx__GraphProto *graph = exporting->file->graph;
  uint64_t size = onnx__model_proto__get_packed_size(exporting->file);
  for (int i = 0; i < exporting->model->n_initializers; i++)
    if (exporting->tensors[i])
      size += trained_bytes(exporting, i) + TENSOR_HEAD_BYTES;
  for (size_t g = 0; g < graph->n_initializer; g++) {
    struct pieces pieces;
    if (onnx_is_in_pieces(graph->initializer[g]) && onnx_pieces_find(graph->initializer[g], &pieces))
      size += pieces.elems * piece_type_size(pieces.type) + TENSOR_HEAD_BYTES;
  }
  return size;
}

static int take_part(void *user, const struct tensor_part *part, struct err *err) {
  struct exporting *exporting = user;
  Onnx__TensorProto *tensor = exporting->tensors[part->initializer];
  size_t size = tensor ? elem_size(tensor) : 0;
  if (!tensor) /* nothing reads it in inference */
    return 0;
  if (exporting->is_apart && exporting->is_apart[part->initializer]) {
    encode(tensor, part->data, part->elems, (float *)part->data);
    return output_file_write(&exporting->data, exporting->offsets[part->initializer] + part->begin * size,
                             part->data, part->elems * size, err);
  }
  encode(tensor, part->data, part->elems, tensor->raw_data.data + part->begin * size);
  return 0;
}

/* Memory for the trained tensors that are to be in the file. */
static int make_room(struct exporting *exporting, struct err *err) {
  for (int i = 0; i < exporting->model->n_initializers && !err->code; i++) {
    Onnx__TensorProto *tensor = exporting->tensors[i];
    uint64_t size = tensor ? trained_bytes(exporting, i) : 0;
    void *bytes;
    if (!tensor || (exporting->is_apart && exporting->is_apart[i]))
      continue;
    bytes = malloc(size ? size : 1);
    if (bytes)
      onnx_tensor_put(tensor, bytes, size);
    else
      err_set(err, ERR_NO_MEMORY, "no memory for initializer '%s'", tensor->name);
  }
  return err->code;
}

static int write_packed(const Onnx__ModelProto *model, const char *path, struct err *err) {
  size_t size = onnx__model_proto__get_packed_size(model);
  uint8_t *bytes = malloc(size);
  int code;
  if (!bytes)
    return err_set(err, ERR_NO_MEMORY, "%s: no memory for %zu bytes", path, size);
  onnx__model_proto__pack(model, bytes);
  code = output_file_save(path, bytes, size, err);
  free(bytes);
  return code;
}

static int export_whole(struct exporting *exporting, const char *path, struct err *err) {
  const Onnx__GraphProto *graph = exporting->file->graph;
  if (make_room(exporting, err) ||
      weights_each_part(exporting->model, &exporting->source->weights, take_part, exporting, err))
    return err->code;
  for (size_t g = 0; g < graph->n_initializer; g++)
    if (onnx_is_in_pieces(graph->initializer[g]) &&
        onnx_pieces_fill(graph->initializer[g], &exporting->source->model.pieces, err))
      return err->code;
  return write_packed(exporting->file, path, err);
}

static uint64_t place(struct exporting *exporting, uint64_t size) {
  uint64_t offset = exporting->end;
  exporting->end = (offset + size + DATA_ALIGN - 1) / DATA_ALIGN * DATA_ALIGN;
  return offset;
}

/* An initializer that training left alone goes where the others are. */
static int write_constant(struct exporting *exporting, Onnx__TensorProto *tensor, struct err *err) {
  const struct piece_source *source = &exporting->source->model.pieces;
  struct pieces pieces;
  uint64_t offset, at, size = tensor->raw_data.len;
  char *bytes;
  if (!onnx_is_in_pieces(tensor)) {
    offset = place(exporting, size);
    if (output_file_write(&exporting->data, offset, tensor->raw_data.data, size, err) == 0)
      onnx_external_set(tensor, exporting->location, offset, size);
    return err->code;
  }
  if (!onnx_pieces_find(tensor, &pieces) || !source->read)
    return err_set(err, ERR_NOT_FOUND, "initializer '%.100s' is in pieces, which are not here", tensor->name);
  size = pieces.elems * piece_type_size(pieces.type);
  offset = at = place(exporting, size);
  bytes = mem_new(PIECE_BYTES_MAX);
  for (uint32_t i = 0; i < pieces.n && !err->code; i++) {
    struct piece_read read = pieces_read(&pieces, i, bytes);
    if (source->read(source->user, &read, 1, err) == 0)
      output_file_write(&exporting->data, at, bytes, read.size_bytes, err);
    at += read.size_bytes;
  }
  free(bytes);
  if (!err->code)
    onnx_external_set(tensor, exporting->location, offset, size);
  return err->code;
}

/* Tensors in a file beside it, the way ONNX has it. */
static int export_apart(struct exporting *exporting, const char *path, struct err *err) {
  const char *slash = strrchr(path, '/');
  const struct model *model = exporting->model;
  const Onnx__GraphProto *graph = exporting->file->graph;
  char *data_path = mem_printf("%s.data", path);
  exporting->location = mem_printf("%s.data", slash ? slash + 1 : path);
  exporting->offsets = mem_new((size_t)model->n_initializers * sizeof *exporting->offsets);
  exporting->is_apart = mem_new((size_t)model->n_initializers * sizeof *exporting->is_apart);
  for (int i = 0; i < model->n_initializers; i++)
    if (exporting->tensors[i] && trained_bytes(exporting, i) >= PART_BYTES_MIN) {
      exporting->is_apart[i] = true;
      exporting->offsets[i] = place(exporting, trained_bytes(exporting, i));
      onnx_external_set(exporting->tensors[i], exporting->location, exporting->offsets[i],
                        trained_bytes(exporting, i));
    }
  if (make_room(exporting, err) == 0 && output_file_open(&exporting->data, data_path, err) == 0)
    weights_each_part(model, &exporting->source->weights, take_part, exporting, err);
  for (size_t g = 0; g < graph->n_initializer && !err->code; g++) {
    Onnx__TensorProto *tensor = graph->initializer[g];
    if (onnx_is_in_pieces(tensor) || (tensor->has_raw_data && tensor->raw_data.len >= PART_BYTES_MIN))
      write_constant(exporting, tensor, err);
  }
  if (!err->code && output_file_commit(&exporting->data, err) == 0)
    write_packed(exporting->file, path, err);
  free(data_path);
  return err->code;
}

int export_onnx(const struct export_source *source, const char *path, struct err *err) {
  struct exporting exporting = {.source = source, .data = {.fd = -1}};
  struct model *model = NULL;
  if (submitted_model_open(&source->model, &model, err))
    return err->code;
  exporting.model = model;
  exporting.file =
      message_unpack(&onnx__model_proto__descriptor, source->model.onnx, source->model.onnx_size, err);
  if (exporting.file) {
    freeze_model(exporting.file);
    find_tensors(&exporting);
    if (whole_bytes(&exporting) <= (source->bytes_max ? source->bytes_max : file_bytes_max))
      export_whole(&exporting, path, err);
    else
      export_apart(&exporting, path, err);
    onnx__model_proto__free_unpacked(exporting.file, NULL);
  }
  output_file_close(&exporting.data);
  free(exporting.tensors);
  free(exporting.offsets);
  free(exporting.is_apart);
  free(exporting.location);
  model_close(model);
  return err->code;
}
