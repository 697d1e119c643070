/* The parts of the ONNX reader. Private to model/onnx/onnx*.c. */
#ifndef WEIR_MODEL_ONNX_ONNX_PARTS_H
#define WEIR_MODEL_ONNX_ONNX_PARTS_H

#include "model/graph/graph.h"
#include "model/graph/listing.h"
#include "model/graph/names.h"
#include "onnx.pb-c.h"

enum { ONNX_NAME_BYTES_MAX = 512 };

/* A node in the model's own graph, whatever function or branch it stood in. */
struct onnx_node {
  const Onnx__NodeProto *proto; /* of the file, or in the graph's arena */
  int guard;                    /* index + 1 into guards: it is in a branch; else 0 */
};

/* A branch of an If. */
struct onnx_guard {
  const char *condition, *node; /* names of a value and of the If, which may be empty */
  bool is_true;                 /* the branch is taken when the condition is this */
  int outer;                    /* as onnx_node.guard: the branch in which the If stands */
};

/* One file being read. */
struct onnx_reader {
  const Onnx__ModelProto *model;
  const Onnx__GraphProto *proto;
  struct graph *graph;
  struct names names; /* of values */
  struct onnx_node *nodes;
  int n_nodes, nodes_capacity;
  struct onnx_guard *guards;
  int n_guards, guards_capacity;
  void **messages; /* of newer fields: freed with the reader */
  int n_messages, messages_capacity;
  const Onnx__NodeProto **node_protos; /* of graph->nodes, before they are sorted */
  struct listing unsupported_nodes;    /* everything unsupported is collected and told at once */
  struct listing unsupported_tensors;
  struct listing unsupported_attrs;
};

/* Errors: INVALID unless the name is short text without control characters. what: "node 7's output". */
int onnx_name_check(const char *name, const char *what, struct err *err);

bool onnx_domain_is_standard(const char *domain);

/* Makes Split and Identity nodes of SplitToSequence and SequenceAt nodes, where each element that is taken is
   known. What cannot be lowered stays, for the reader to refuse. */
void onnx_sequences_lower(Onnx__GraphProto *proto);

/* Lists reader->nodes: those of the graph, of the local functions that it calls and of the branches of Ifs.
   Errors: INVALID (recursion, too many nodes, what does not fit together; names it), UNSUPPORTED. */
int onnx_flatten(struct onnx_reader *reader, struct err *err);

/* Makes Reshape and Reduce nodes of the Loops that exporters write for nn.EmbeddingBag, in the graph's own
   nodes. Those whose bags differ in length are refused when shapes are inferred. */
void onnx_bags_lower(Onnx__GraphProto *graph);

/* Messages in fields that are newer than the onnx.proto we build with, and so unknown to it. NULL: not that
   field, or not such a message. Freed by the caller. */
void *onnx_newer_message(const ProtobufCMessageUnknownField *field, unsigned tag,
                         const ProtobufCMessageDescriptor *descriptor);

/* The default of a function's attribute; NULL if it has none. Good as long as the reader. */
const Onnx__AttributeProto *onnx_function_default(struct onnx_reader *reader,
                                                  const Onnx__FunctionProto *function, const char *name);

/* Fills the graph from reader->proto. Errors: see graph_load_onnx. */
int onnx_graph_read(struct onnx_reader *reader, struct err *err);

/* What a type of the file is computed with: f32 for the 16-bit floats. DTYPE_NONE if we do not have it; *name
 * is what messages call it. */
enum dtype onnx_dtype(int data_type, const char **name);

struct onnx_tensor {
  enum dtype dtype; /* DTYPE_NONE: unsupported, already listed */
  struct shape shape;
  void *data;                  /* in the graph's arena */
  const struct pieces *pieces; /* likewise, of a tensor without data; else NULL */
};

/* Decodes a tensor. what: "initializer 'w'". Errors: INVALID when its data does not fit its shape. */
int onnx_tensor_read(struct onnx_reader *reader, const Onnx__TensorProto *proto, const char *what,
                     struct onnx_tensor *out, struct err *err);

/* The same of an initializer that an outline has in pieces. Errors: INVALID when they are not those of its
   shape and type. */
int onnx_pieces_read(struct onnx_reader *reader, const Onnx__TensorProto *proto, const char *what,
                     struct onnx_tensor *out, struct err *err);

/* The shape. Errors: INVALID where it has too many dimensions, or too many elements for any tensor. */
int onnx_shape_read(const Onnx__TensorProto *proto, const char *what, struct shape *shape, struct err *err);

/* Decodes a node's attributes into node->attrs. */
int onnx_attrs_read(struct onnx_reader *reader, const Onnx__NodeProto *proto, struct node *node,
                    struct err *err);

/* Makes output 0 of a Constant node, whose attributes are read, a constant. */
int onnx_constant_read(struct onnx_reader *reader, const struct node *node, struct err *err);

/* Sets the origin of each initializer, and notes which parameters of the exported module the file lacks. */
void onnx_origins_read(struct onnx_reader *reader);

/* Puts the nodes in topological order: the file's order where that is one. Errors: INVALID naming a cycle. */
int onnx_nodes_sort(struct graph *graph, struct err *err);

#endif
