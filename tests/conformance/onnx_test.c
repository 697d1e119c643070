/* The ONNX project's own backend test vectors (Debian's libonnx-testdata), for every model whose ops we all
   have, on every backend. Models of an opset below 7 are read as opset 7, the least that the loader takes: in
   these vectors the ops mean the same in both.
   usage: onnx_test [BACKEND] */
#include <dirent.h>
#include <sys/stat.h>

#include "onnx.pb-c.h"
#include "tests/conformance/harness.h"

static const char vectors_root[] = "/usr/share/libonnx-testdata/data";
static const char *const vectors_folders[] = {"node", "simple", "pytorch-operator", "pytorch-converted"};

/* Tighter than ONNX's own runner, which takes 1e-3 relative. */
static const struct tolerance vector_tolerance = {.relative = 1e-5, .absolute = 1e-6};

/* Vectors of our ops that cannot be run, and why. */
static const struct {
  const char *name, *reason;
} skipped[] = {
    {"node/test_bernoulli", "expects the random numbers of numpy"},
    {"node/test_bernoulli_double", "float64"},
    {"node/test_bernoulli_expanded", "expects the random numbers of numpy"},
    {"node/test_bernoulli_double_expanded", "float64"},
    {"node/test_bernoulli_seed", "expects the random numbers of numpy"},
    {"node/test_bernoulli_seed_expanded", "expects the random numbers of numpy"},
    {"node/test_identity_opt", "an optional is not a tensor"},
    {"node/test_identity_sequence", "a sequence is not a tensor"},
    {"node/test_reshape_allowzero_reordered", "tensors without elements are refused"},
    {"node/test_slice_start_out_of_bounds", "tensors without elements are refused"},
    {"node/test_split_zero_size_splits", "tensors without elements are refused"},
    {"node/test_training_dropout", "expects the random numbers of numpy"},
    {"node/test_training_dropout_default", "expects the random numbers of numpy"},
    {"node/test_training_dropout_default_mask", "expects the random numbers of numpy"},
    {"node/test_training_dropout_mask", "expects the random numbers of numpy"},
    {"pytorch-operator/test_operator_add_broadcast", "float64"},
    {"pytorch-operator/test_operator_add_size1_broadcast", "float64"},
    {"pytorch-operator/test_operator_add_size1_right_broadcast", "float64"},
    {"pytorch-operator/test_operator_add_size1_singleton_broadcast", "float64"},
    {"pytorch-operator/test_operator_addconstant", "float64"},
};

static const char *skip_reason(const char *name) {
  for (size_t i = 0; i < sizeof skipped / sizeof *skipped; i++)
    if (strcmp(skipped[i].name, name) == 0)
      return skipped[i].reason;
  return NULL;
}

struct bytes {
  void *data;
  size_t size;
};

/* False if there is no such file. */
static bool file_read(const char *path, struct bytes *bytes) {
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

/* Dense data of a TensorProto of one of the types that we have. */
struct vector_tensor {
  enum dtype dtype;
  struct shape shape;
  void *data;
};

static enum dtype proto_dtype(const Onnx__TensorProto *proto) {
  switch (proto->data_type) {
  case ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT:
    return DTYPE_F32;
  case ONNX__TENSOR_PROTO__DATA_TYPE__INT32:
    return DTYPE_I32;
  case ONNX__TENSOR_PROTO__DATA_TYPE__INT64:
    return DTYPE_I64;
  case ONNX__TENSOR_PROTO__DATA_TYPE__UINT8:
    return DTYPE_U8;
  case ONNX__TENSOR_PROTO__DATA_TYPE__BOOL:
    return DTYPE_BOOL;
  default:
    return DTYPE_NONE;
  }
}

/* The vectors keep their data raw, but for those that hold floats or 64-bit integers in fields. */
static bool tensor_decode(const Onnx__TensorProto *proto, struct vector_tensor *tensor) {
  const void *from = proto->raw_data.data;
  size_t size = proto->raw_data.len, needed;
  *tensor = (struct vector_tensor){.dtype = proto_dtype(proto), .shape.rank = (int)proto->n_dims};
  for (int d = 0; d < tensor->shape.rank && d < RANK_MAX; d++)
    tensor->shape.dim[d] = proto->dims[d];
  if (proto->n_float_data) {
    from = proto->float_data;
    size = proto->n_float_data * sizeof(float);
  } else if (proto->n_int64_data) {
    from = proto->int64_data;
    size = proto->n_int64_data * sizeof(int64_t);
  }
  needed = (size_t)shape_elems(&tensor->shape) * dtype_size(tensor->dtype);
  tensor->data = mem_new(needed + 1);
  if (tensor->dtype == DTYPE_NONE || tensor->shape.rank > RANK_MAX || size != needed)
    return false;
  if (size)
    memcpy(tensor->data, from, size);
  return true;
}

enum { TENSORS_MAX = 16 };

/* One vector: a model, the inputs to feed it and the outputs to expect, of its first data set. */
struct vector {
  const char *name;
  Onnx__ModelProto *model;
  struct vector_tensor inputs[TENSORS_MAX], outputs[TENSORS_MAX];
  int n_inputs, n_outputs;
  struct graph *graph;
};

/* Reads KIND_0.pb, KIND_1.pb, ... of a data set. Errors: INVALID, naming the file. */
static int read_tensors(const char *folder, const char *kind, struct vector_tensor *tensors, int *n,
                        struct err *err) {
  char path[768];
  struct bytes bytes;
  for (;; (*n)++) {
    Onnx__TensorProto *proto;
    bool is_ok = false;
    snprintf(path, sizeof path, "%s/test_data_set_0/%s_%d.pb", folder, kind, *n);
    if (!file_read(path, &bytes))
      return ERR_OK;
    if (*n < TENSORS_MAX) {
      proto = onnx__tensor_proto__unpack(NULL, bytes.size, bytes.data);
      is_ok = proto && tensor_decode(proto, &tensors[*n]);
      if (proto)
        onnx__tensor_proto__free_unpacked(proto, NULL);
    }
    free(bytes.data);
    if (!is_ok) {
      free(*n < TENSORS_MAX ? tensors[*n].data : NULL);
      return err_set(err, ERR_INVALID, "%s cannot be read", path);
    }
  }
}

/* The shapes of the graph's inputs, and feeds[k], what graph->inputs[k] is fed. The last n_known inputs
   become constants. */
static int vector_bind(struct vector *vector, int n_known, const void **feeds, struct err *err) {
  const Onnx__GraphProto *proto = vector->model->graph;
  struct graph *graph = vector->graph;
  for (int k = 0; k < graph->n_inputs; k++) {
    struct value *value = &graph->values[graph->inputs[k]];
    feeds[k] = NULL;
    for (size_t i = 0; i < proto->n_input && (int)i < vector->n_inputs; i++)
      if (strcmp(proto->input[i]->name, value->name) == 0) {
        feeds[k] = vector->inputs[i].data;
        value->shape = vector->inputs[i].shape;
      }
    if (!feeds[k])
      return err_set(err, ERR_INVALID, "the vector has no input '%s'", value->name);
    if (k < graph->n_inputs - n_known)
      continue;
    value->kind = VALUE_CONSTANT;
    value->data = feeds[k];
  }
  graph->n_inputs -= n_known;
  return ERR_OK;
}

/* Loads and infers the model with the vector's shapes -> graph, feeds. Inputs that its nodes must know before
   execution come behind those that they need not: as few as possible, from the last on, become constants. */
static int vector_load(struct vector *vector, const void **feeds, struct err *err) {
  Onnx__ModelProto *model = vector->model;
  struct bytes bytes;
  for (size_t i = 0; i < model->n_opset_import; i++)
    if (model->opset_import[i]->version < 7)
      model->opset_import[i]->version = 7;
  bytes.data = mem_new(onnx__model_proto__get_packed_size(model) + 1);
  bytes.size = onnx__model_proto__pack(model, bytes.data);
  for (int n_known = 0;; n_known++) {
    struct err first = *err;
    graph_free(vector->graph);
    vector->graph = NULL;
    *err = (struct err)ERR_NONE;
    if (graph_load_onnx(bytes.data, bytes.size, &vector->graph, err))
      break;
    if (n_known > vector->graph->n_inputs) {
      *err = first;
      break;
    }
    if (vector_bind(vector, n_known, feeds, err) || graph_infer(vector->graph, err) != ERR_UNSUPPORTED)
      break;
  }
  free(bytes.data);
  return (int)err->code;
}

static int vector_check(const struct vector *vector, const struct outcome *outcome, struct err *err) {
  const struct graph *graph = vector->graph;
  char text[256], got[128], want[128];
  if (vector->n_outputs != graph->n_outputs)
    return err_set(err, ERR_INVALID, "%d outputs, expected %d", graph->n_outputs, vector->n_outputs);
  for (int i = 0; i < outcome->n; i++) {
    const struct value *value = &graph->values[outcome->values[i]];
    const struct vector_tensor *expected = &vector->outputs[i];
    if (value->dtype != expected->dtype || !shape_is_same(&value->shape, &expected->shape))
      return err_set(err, ERR_INVALID, "output %d is %s%s, expected %s%s", i, dtype_name(value->dtype),
                     shape_text(&value->shape, got, sizeof got), dtype_name(expected->dtype),
                     shape_text(&expected->shape, want, sizeof want));
    if (!tensors_agree(value->dtype, shape_elems(&value->shape), outcome->data[i], expected->data,
                       vector_tolerance, text, sizeof text))
      return err_set(err, ERR_INVALID, "output %d: %s", i, text);
  }
  return ERR_OK;
}

static void vector_execute(const struct vector *vector, const struct backend_def *backend,
                           const void *const *feeds) {
  struct err err = ERR_NONE;
  struct outcome outcome;
  outcome_init(&outcome, vector->graph, vector->graph->outputs, vector->graph->n_outputs);
  if (!graph_execute(backend, vector->graph, feeds, &outcome, &err))
    vector_check(vector, &outcome, &err);
  tap_result(err.code == ERR_OK, "%s on %s", vector->name, backend->name);
  if (err.code)
    printf("# %s\n", err.text);
  outcome_fini(&outcome);
}

static void vector_fini(struct vector *vector) {
  for (int i = 0; i < vector->n_inputs; i++)
    free(vector->inputs[i].data);
  for (int i = 0; i < vector->n_outputs; i++)
    free(vector->outputs[i].data);
  graph_free(vector->graph);
  if (vector->model)
    onnx__model_proto__free_unpacked(vector->model, NULL);
}

static bool has_only_our_ops(const Onnx__ModelProto *model) {
  for (size_t n = 0; n < model->graph->n_node; n++) {
    const Onnx__NodeProto *node = model->graph->node[n];
    if (!op_find(node->domain ? node->domain : "", node->op_type))
      return false;
  }
  return model->graph->n_node > 0;
}

/* Runs one vector on every backend, or on `only`. False if its model has ops that are not ours. */
static bool run_vector(const char *folder, const char *name, const struct backend_def *only) {
  struct vector vector = {.name = name};
  const void *feeds[TENSORS_MAX] = {NULL};
  struct err err = ERR_NONE;
  struct bytes bytes;
  char path[768];
  bool is_ours;
  snprintf(path, sizeof path, "%s/model.onnx", folder);
  if (!file_read(path, &bytes))
    return false;
  vector.model = onnx__model_proto__unpack(NULL, bytes.size, bytes.data);
  free(bytes.data);
  is_ours = vector.model && vector.model->graph && has_only_our_ops(vector.model);
  if (is_ours && skip_reason(name)) {
    tap_skip(name, skip_reason(name));
  } else if (is_ours) {
    if (read_tensors(folder, "input", vector.inputs, &vector.n_inputs, &err) ||
        read_tensors(folder, "output", vector.outputs, &vector.n_outputs, &err) ||
        vector_load(&vector, feeds, &err)) {
      tap_result(false, "%s", name);
      printf("# %s\n", err.text);
    }
    for (int b = 0; backend_at(b) && !err.code; b++)
      if (!only || backend_at(b) == only)
        vector_execute(&vector, backend_at(b), feeds);
  }
  vector_fini(&vector);
  return is_ours;
}

static int is_vector(const struct dirent *entry) {
  return strncmp(entry->d_name, "test_", 5) == 0;
}

int main(int argc, char **argv) {
  const struct backend_def *only = argc > 1 ? backend_find(argv[1]) : NULL;
  int others = 0;
  if (argc > 1 && !only) {
    fprintf(stderr, "onnx_test: there is no backend '%s'\n", argv[1]);
    return 2;
  }
  backend_thread_init();
  for (size_t f = 0; f < sizeof vectors_folders / sizeof *vectors_folders; f++) {
    char folder[256], path[640], name[320];
    struct dirent **entries;
    int n;
    snprintf(folder, sizeof folder, "%s/%s", vectors_root, vectors_folders[f]);
    n = scandir(folder, &entries, is_vector, alphasort);
    if (n < 0) {
      tap_result(false, "%s is there: install libonnx-testdata", folder);
      continue;
    }
    for (int i = 0; i < n; i++) {
      snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
      snprintf(name, sizeof name, "%s/%s", vectors_folders[f], entries[i]->d_name);
      others += !run_vector(path, name, only);
      free(entries[i]);
    }
    free(entries);
  }
  printf("# %d vectors are of models with operators that Weir does not have\n", others);
  return tap_finish();
}
