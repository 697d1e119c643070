/* One of the ONNX project's backend test vectors: a model, the inputs to feed it and the outputs to expect.
   Files are read by the loader that also reads models: its types are the vectors' types. */
#ifndef WEIR_TESTS_CONFORMANCE_ONNX_VECTOR_H
#define WEIR_TESTS_CONFORMANCE_ONNX_VECTOR_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "model/graph/op.h"
#include "onnx.pb-c.h"

enum {
  VECTOR_TENSORS_MAX = 64,
  FIXED_ELEMS_MAX = 16, /* of an f32 input that may be a setting (scales, a limit) rather than data */
};

struct vector {
  Onnx__ModelProto *model;
  Onnx__TensorProto *inputs[VECTOR_TENSORS_MAX], *outputs[VECTOR_TENSORS_MAX];
  int n_inputs, n_outputs;
  struct graph *data; /* inputs and outputs as its initializers, "input_0", "output_0", ... */
  struct graph *graph;
  bool is_fixed[VECTOR_TENSORS_MAX];     /* inputs that the graph knows at load */
  const void *feeds[VECTOR_TENSORS_MAX]; /* of graph->inputs */
};

struct bytes {
  void *data;
  size_t size;
};

/* False if there is no such file. */
static inline bool file_read(const char *path, struct bytes *bytes) {
  FILE *file = fopen(path, "rb");
  struct stat info;
  bool is_ok = file && fstat(fileno(file), &info) == 0;
  if (is_ok) {
    bytes->size = (size_t)info.st_size;
    bytes->data = mem_new(bytes->size + 1);
    is_ok = fread(bytes->data, 1, bytes->size, file) == bytes->size;
    if (!is_ok)
      free(bytes->data);
  }
  if (file)
    fclose(file);
  return is_ok;
}

/* Reads model.onnx. Models of an opset below 7 become opset 7, the least that the loader takes: in these
   vectors the ops mean the same in both. Errors: INVALID, naming the file. */
static inline int vector_read_model(struct vector *vector, const char *folder, struct err *err) {
  char *path = mem_printf("%s/model.onnx", folder);
  struct bytes bytes;
  *vector = (struct vector){NULL};
  if (file_read(path, &bytes)) {
    vector->model = onnx__model_proto__unpack(NULL, bytes.size, bytes.data);
    free(bytes.data);
  }
  if (!vector->model || !vector->model->graph)
    err_set(err, ERR_INVALID, "%s cannot be read", path);
  for (size_t i = 0; !err->code && i < vector->model->n_opset_import; i++)
    if (vector->model->opset_import[i]->version < 7)
      vector->model->opset_import[i]->version = 7;
  free(path);
  return err->code;
}

/* Reads KIND_0.pb, KIND_1.pb, ... of a data set, naming each tensor by its file. */
static inline int vector_read_tensors(const char *folder, const char *kind, Onnx__TensorProto **tensors,
                                      int *n, struct err *err) {
  for (*n = 0; *n < VECTOR_TENSORS_MAX; (*n)++) {
    char *path = mem_printf("%s/%s_%d.pb", folder, kind, *n);
    struct bytes bytes;
    bool is_there = file_read(path, &bytes);
    if (is_there) {
      tensors[*n] = onnx__tensor_proto__unpack(NULL, bytes.size, bytes.data);
      free(bytes.data);
      if (!tensors[*n])
        err_set(err, ERR_INVALID, "%s cannot be read", path);
    }
    free(path);
    if (!is_there || err->code)
      return err->code;
    free(tensors[*n]->name);
    tensors[*n]->name = mem_printf("%s_%d", kind, *n);
  }
  return err_set(err, ERR_INVALID, "%s has more than %d files of a kind", folder, VECTOR_TENSORS_MAX);
}

static inline int model_load(const Onnx__ModelProto *model, struct graph **graph, struct err *err) {
  struct bytes bytes = {.data = mem_new(onnx__model_proto__get_packed_size(model) + 1)};
  bytes.size = onnx__model_proto__pack(model, bytes.data);
  graph_load_onnx(bytes.data, bytes.size, graph, err);
  free(bytes.data);
  return err->code;
}

/* numpy has no bfloat16: the files keep its bits as u16. */
static inline void vector_retype(Onnx__TensorProto **tensors, int n, Onnx__ValueInfoProto *const *infos,
                                 size_t n_infos) {
  for (int i = 0; i < n && (size_t)i < n_infos; i++)
    if (tensors[i]->data_type == ONNX__TENSOR_PROTO__DATA_TYPE__UINT16 &&
        infos[i]->type->tensor_type->elem_type == ONNX__TENSOR_PROTO__DATA_TYPE__BFLOAT16)
      tensors[i]->data_type = ONNX__TENSOR_PROTO__DATA_TYPE__BFLOAT16;
}

/* Reads inputs and outputs of a data set. Errors: INVALID; UNSUPPORTED, naming types that we do not have. */
static inline int vector_read_data(struct vector *vector, const char *folder, struct err *err) {
  Onnx__ModelProto model = ONNX__MODEL_PROTO__INIT;
  Onnx__GraphProto graph = ONNX__GRAPH_PROTO__INIT;
  Onnx__TensorProto *tensors[2 * VECTOR_TENSORS_MAX];
  Onnx__ValueInfoProto output = ONNX__VALUE_INFO_PROTO__INIT, *outputs[] = {&output};
  if (vector_read_tensors(folder, "input", vector->inputs, &vector->n_inputs, err) ||
      vector_read_tensors(folder, "output", vector->outputs, &vector->n_outputs, err))
    return err->code;
  vector_retype(vector->inputs, vector->n_inputs, vector->model->graph->input, vector->model->graph->n_input);
  vector_retype(vector->outputs, vector->n_outputs, vector->model->graph->output,
                vector->model->graph->n_output);
  for (int i = 0; i < vector->n_inputs; i++)
    tensors[graph.n_initializer++] = vector->inputs[i];
  for (int i = 0; i < vector->n_outputs; i++)
    tensors[graph.n_initializer++] = vector->outputs[i];
  if (vector->n_outputs == 0)
    return err_set(err, ERR_INVALID, "%s has no output", folder);
  output.name = vector->outputs[0]->name;
  graph.initializer = tensors;
  graph.output = outputs;
  graph.n_output = 1;
  model.graph = &graph;
  model.opset_import = vector->model->opset_import;
  model.n_opset_import = vector->model->n_opset_import;
  return model_load(&model, &vector->data, err);
}

static inline const struct value *vector_tensor(const struct vector *vector, const char *kind, int index) {
  char name[32];
  snprintf(name, sizeof name, "%s_%d", kind, index);
  return &vector->data->values[graph_find(vector->data, name)];
}

/* Finds what each input of the graph is fed, and gives it its shape. */
static inline int vector_feed(struct vector *vector, struct err *err) {
  const Onnx__GraphProto *proto = vector->model->graph;
  for (int k = 0; k < vector->graph->n_inputs; k++) {
    struct value *value = &vector->graph->values[vector->graph->inputs[k]];
    int i = 0;
    while (i < (int)proto->n_input && strcmp(proto->input[i]->name, value->name) != 0)
      i++;
    if (i >= vector->n_inputs)
      return err_set(err, ERR_INVALID, "the vector has no input '%s'", value->name);
    vector->feeds[k] = vector_tensor(vector, "input", i)->data;
    value->shape = vector_tensor(vector, "input", i)->shape;
  }
  return ERR_OK;
}

/* Loads the model with its fixed inputs as initializers, and infers it with the vector's shapes. */
static inline int vector_load_once(struct vector *vector, struct err *err) {
  Onnx__GraphProto *graph = vector->model->graph, own = *graph;
  Onnx__TensorProto fixed[VECTOR_TENSORS_MAX], **all;
  int code;
  all = mem_new((graph->n_initializer + VECTOR_TENSORS_MAX) * sizeof *all);
  if (graph->n_initializer)
    memcpy(all, graph->initializer, graph->n_initializer * sizeof *all);
  graph->initializer = all;
  for (int i = 0; i < vector->n_inputs && i < (int)graph->n_input; i++)
    if (vector->is_fixed[i]) {
      fixed[i] = *vector->inputs[i];
      fixed[i].name = graph->input[i]->name;
      all[graph->n_initializer++] = &fixed[i];
    }
  graph_free(vector->graph);
  vector->graph = NULL;
  code = model_load(vector->model, &vector->graph, err);
  *graph = own;
  free(all);
  if (code || vector_feed(vector, err))
    return err->code;
  return graph_infer(vector->graph, err);
}

/* Fixes inputs that are not fixed yet: the one that the error names, else those that are not f32, else small
   ones. False if there is none. */
static inline bool vector_fix_more(struct vector *vector, const struct err *why) {
  enum { NAMED, INTEGERS, SMALL, WAYS };
  bool has_fixed = false;
  for (int way = NAMED; way < WAYS && !has_fixed; way++)
    for (int i = 0; i < vector->n_inputs && i < (int)vector->model->graph->n_input; i++) {
      const struct value *value = vector_tensor(vector, "input", i);
      char *quoted = mem_printf("('%s')", vector->model->graph->input[i]->name);
      if (!vector->is_fixed[i] &&
          ((way == NAMED && strstr(why->text, quoted)) || (way == INTEGERS && value->dtype != DTYPE_F32) ||
           (way == SMALL && shape_elems(&value->shape) <= FIXED_ELEMS_MAX)))
        has_fixed = vector->is_fixed[i] = true;
      free(quoted);
    }
  return has_fixed;
}

/* Loads the model -> graph, with all inputs fed if that is possible. Errors: those of the loader and of
   inference; UNSUPPORTED is what the graph cannot have. */
static inline int vector_load(struct vector *vector, struct err *err) {
  while (vector_load_once(vector, err) == ERR_UNSUPPORTED) {
    struct err why = *err;
    if (!vector_fix_more(vector, &why))
      break;
    *err = ERR_NONE;
  }
  return err->code;
}

/* The op that a vector is about; NULL for a model of several. */
static inline const char *vector_op(const struct vector *vector) {
  const Onnx__GraphProto *graph = vector->model->graph;
  const char *op = NULL;
  for (size_t n = 0; n < graph->n_node; n++) {
    if (strcmp(graph->node[n]->op_type, "Constant") == 0 && graph->n_node > 1)
      continue;
    if (op && strcmp(graph->node[n]->op_type, op) != 0)
      return NULL;
    op = graph->node[n]->op_type;
  }
  return op;
}

static inline void vector_fini(struct vector *vector) {
  for (int i = 0; i < VECTOR_TENSORS_MAX; i++) {
    if (vector->inputs[i])
      onnx__tensor_proto__free_unpacked(vector->inputs[i], NULL);
    if (vector->outputs[i])
      onnx__tensor_proto__free_unpacked(vector->outputs[i], NULL);
  }
  graph_free(vector->data);
  graph_free(vector->graph);
  if (vector->model)
    onnx__model_proto__free_unpacked(vector->model, NULL);
}

#endif
