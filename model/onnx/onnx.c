/* Reads an ONNX file into a graph. */
#include <stdlib.h>
#include <string.h>

#include "common/base/text.h"
#include "common/base/unpack.h"
#include "model/onnx/onnx_parts.h"

/* Up to here no opset changes what an operator of op.def means; 22 and 23 only add types. */
enum { OPSET_MIN = 7, OPSET_MAX = 23 };

static int read_opset(const Onnx__ModelProto *model, int *opset, struct err *err);

static void reader_fini(struct onnx_reader *reader) {
  names_fini(&reader->names);
  for (int m = 0; m < reader->n_messages; m++)
    protobuf_c_message_free_unpacked(reader->messages[m], NULL);
  free(reader->messages);
  free(reader->guards);
  free(reader->nodes);
}

int graph_load_onnx(const void *bytes, size_t size_bytes, struct graph **out, struct err *err) {
  struct onnx_reader reader = {.graph = graph_new()};
  Onnx__ModelProto *model = message_unpack(&onnx__model_proto__descriptor, bytes, size_bytes, err);
  int code;
  *out = NULL;
  names_init(&reader.names);
  if (!model) {
    code = err->code;
    goto out;
  }
  if (!model->graph) {
    code = err_set(err, ERR_INVALID, "the model holds no graph: it is not an ONNX file, or it is cut short");
    goto out;
  }
  onnx_sequences_lower(model->graph);
  onnx_bags_lower(model->graph);
  reader.model = model;
  reader.proto = model->graph;
  reader.graph->is_from_pytorch = model->producer_name && strcmp(model->producer_name, "pytorch") == 0;
  code = read_opset(model, &reader.graph->opset, err);
  if (!code)
    code = onnx_flatten(&reader, err);
  if (!code)
    code = onnx_graph_read(&reader, err);
  if (!code)
    *out = reader.graph;
out:
  if (code)
    graph_free(reader.graph);
  reader_fini(&reader);
  if (model)
    onnx__model_proto__free_unpacked(model, NULL);
  return code;
}

bool onnx_domain_is_standard(const char *domain) {
  return !domain || !*domain || strcmp(domain, "ai.onnx") == 0;
}

static int read_opset(const Onnx__ModelProto *model, int *opset, struct err *err) {
  for (size_t i = 0; i < model->n_opset_import; i++) {
    const Onnx__OperatorSetIdProto *import = model->opset_import[i];
    if (!onnx_domain_is_standard(import->domain))
      continue;
    if (import->version < OPSET_MIN || import->version > OPSET_MAX)
      return err_set(err, ERR_UNSUPPORTED, "the model uses ONNX opset %lld, supported are %d to %d",
                     (long long)import->version, OPSET_MIN, OPSET_MAX);
    *opset = (int)import->version;
    return 0;
  }
  return err_set(err, ERR_INVALID, "the model names no ONNX opset: it is cut short, or not ONNX");
}

int onnx_name_check(const char *name, const char *what, struct err *err) {
  size_t length = name ? strlen(name) : 0;
  if (length == 0)
    return err_set(err, ERR_INVALID, "%s is empty", what);
  if (length > ONNX_NAME_BYTES_MAX)
    return err_set(err, ERR_INVALID, "%s is %zu bytes long, at most %d are possible", what, length,
                   ONNX_NAME_BYTES_MAX);
  if (!text_is_clean(name))
    return err_set(err, ERR_INVALID, "%s holds a control character, or what is not UTF-8", what);
  return 0;
}
