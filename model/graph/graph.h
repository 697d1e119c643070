/* The graph: an ONNX model as typed values and nodes in topological order. Built from an ONNX file, grown by
   loss and autodiff, then only read. Third parties' structs stay in onnx.c. */
#ifndef WEIR_MODEL_GRAPH_GRAPH_H
#define WEIR_MODEL_GRAPH_GRAPH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/memory.h"
#include "model/graph/pieces.h"

enum { RANK_MAX = 8 };

enum dtype { DTYPE_NONE, DTYPE_F32, DTYPE_F64, DTYPE_I32, DTYPE_I64, DTYPE_U8, DTYPE_BOOL };

/* dim[i] < 0: not known (a symbolic dimension, before the batch is bound). */
struct shape {
  int rank;
  int64_t dim[RANK_MAX];
};

enum value_kind {
  VALUE_INPUT,       /* fed at each execution */
  VALUE_INITIALIZER, /* from the model: a parameter, a statistic or a constant */
  VALUE_CONSTANT,    /* data known at load: Constant nodes, folded results, scalars of ours */
  VALUE_RESULT,      /* computed by a node */
};

/* Where an initializer comes from, if the file says so. */
enum value_origin {
  ORIGIN_UNKNOWN,
  ORIGIN_PARAMETER,
  ORIGIN_BUFFER,
  ORIGIN_EXPORTER, /* computed by the exporter: a constant, or weights in another form */
};

/* One tensor of the graph. Values are named by index; -1 is an absent optional input or output. */
struct value {
  const char *name; /* unique; ours begin with "weir." */
  enum value_kind kind;
  enum value_origin origin;
  enum dtype dtype;
  struct shape shape;
  const void *data; /* INITIALIZER and CONSTANT: dense, little-endian, owned by the graph; else NULL */
  const struct pieces *pieces; /* of an INITIALIZER that the file has in pieces: data is NULL; else NULL */
  int producer;                /* RESULT: index of its node; else -1 */
  int param;                   /* index into model->params when trained, else -1 */
  int statistic;               /* index into model->statistics when a running statistic, else -1 */
};

enum attr_type { ATTR_INT, ATTR_FLOAT, ATTR_STRING, ATTR_INTS, ATTR_FLOATS, ATTR_STRINGS, ATTR_TENSOR };

struct attr {
  const char *name;
  enum attr_type type;
  int64_t i;
  float f;
  const char *s; /* NUL-terminated */
  int n;         /* ints, floats, strings */
  const int64_t *ints;
  const float *floats;
  const char *const *strings; /* each NUL-terminated */
  enum dtype dtype;           /* tensor */
  struct shape shape;
  const void *data;
};

struct node {
  const struct op_def *op;
  const char *name; /* the ONNX node's, or one made from its type and index */
  int index;        /* position in graph->nodes */
  int n_inputs, n_outputs, n_attrs;
  int *inputs, *outputs; /* value indices or -1 */
  const struct attr *attrs;
  int forward; /* of a backward node: index of the node that it belongs to; else -1 */
  int guard;   /* index + 1 into graph->guards: it is in a branch, until graph_infer knows which are taken */
};

/* What a node is made of: value indices (-1: absent), attributes. */
struct value_list {
  const int *at;
  int n;
};
struct attr_list {
  const struct attr *at;
  int n;
};
#define VALUES(...)                                                                                          \
  ((struct value_list){(const int[]){__VA_ARGS__}, sizeof((const int[]){__VA_ARGS__}) / sizeof(int)})
#define ATTR_LIST(...)                                                                                       \
  ((struct attr_list){(const struct attr[]){__VA_ARGS__},                                                    \
                      sizeof((const struct attr[]){__VA_ARGS__}) / sizeof(struct attr)})
#define ATTRS_NONE ((struct attr_list){NULL, 0})

/* A branch of an If node. */
struct guard {
  int condition;    /* value index */
  bool is_true;     /* taken when the condition is this */
  int outer;        /* as node.guard: the branch in which the If stands, else 0 */
  const char *node; /* the If's name */
};

struct graph {
  struct arena arena; /* owns names, shapes, data, nodes */
  struct value *values;
  int n_values, values_capacity;
  struct node **nodes; /* topological order */
  int n_nodes, nodes_capacity;
  int *inputs, n_inputs; /* fed values: the model's inputs without its initializers, then the labels */
  int *outputs, n_outputs;
  struct guard *guards;
  int n_guards;
  int next_name; /* of values without one */
  int opset;
  bool is_from_pytorch; /* the file was written by PyTorch's exporter */
  int64_t
      file_batch;   /* for which the file was exported, where its inputs' first dimension is fixed; else 0 */
  const char *lost; /* parameters of the exported module that the file does not have: a list; NULL: none */
  int n_lost;
  bool is_training; /* train graph: Dropout drops, BatchNormalization uses the batch */
};

size_t dtype_size(enum dtype dtype);      /* bytes of an element */
const char *dtype_name(enum dtype dtype); /* "f32" */
int64_t shape_elems(
    const struct shape *shape); /* product; 1 for a scalar; -1 if a dimension is unknown or it overflows */
bool shape_is_same(const struct shape *a, const struct shape *b);
/* "[2,3,28,28]", into text; returns text. */
char *shape_text(const struct shape *shape, char *text, size_t size);

struct graph *graph_new(void);
void graph_free(struct graph *graph); /* NULL is ignored */

/* Reads an ONNX file. Structure only: names resolve, nodes are known ops in topological order (sorted if they
   were not), attributes and initializers are decoded (f32, i64, i32, bool, u8; f16, bf16 and
   constants of f64 as f32), or have their pieces where the file is an outline (model/onnx/onnx_outline.h).
   Shapes of results are not yet known. `bytes` need not outlive the call. Errors: INVALID (not ONNX, cut
   short, cycle, name that nothing produces, data of the wrong size; names the node or tensor), UNSUPPORTED
   (every unsupported node, opset or dtype at once, in one line). No input crashes it. */
int graph_load_onnx(const void *bytes, size_t size_bytes, struct graph **out, struct err *err);

/* Sets the first dimension of every fed input to `batch`, and notes what it was. Errors: INVALID when another
 * one is unknown. */
int graph_bind_batch(struct graph *graph, int64_t batch, struct err *err);

/* Types and shapes of every result, in node order, by asking each op; nodes whose inputs are all known data
   are folded to constants through their reference kernel. Of each If, the branch that is not taken leaves the
   graph; its condition must be known by then. Errors: INVALID or UNSUPPORTED with the node's name, op and the
   shapes that do not fit. */
int graph_infer(struct graph *graph, struct err *err);

/* Growing: used by loaders, losses, autodiff and ops' backward functions. */
int graph_find(const struct graph *graph, const char *name);  /* value index or -1 */
int graph_add_value(struct graph *graph, struct value value); /* name NULL: made up */
int graph_add_input(struct graph *graph, const char *name, enum dtype dtype,
                    const struct shape *shape);                                     /* fed */
int graph_add_constant_f32(struct graph *graph, float value);                       /* a scalar */
int graph_add_constant_vector(struct graph *graph, const float *values, int64_t n); /* f32[n] */
int graph_add_constant_i64(struct graph *graph, const int64_t *values, int n);      /* i64[n] */

/* Appends a node of op `name` (ours or ONNX's), makes n_outputs result values and infers their types at once.
   attrs are copied. CHECKs that the op exists and that inference succeeds: callers pass what they inferred.
 */
struct node *graph_add_node(struct graph *graph, const char *name, struct value_list inputs, int n_outputs,
                            struct attr_list attrs);

/* A copy that can be changed by itself. Names, attributes and data stay the original's, which must outlive
 * it. */
struct graph *graph_clone(const struct graph *graph);

/* Drops every node that none of roots (value indices; -1 is ignored) depends on, and every value that is then
   unused, fed inputs included. Returns where each value went: map[old index] is the new one or -1; freed by
   the caller. */
int *graph_prune(struct graph *graph, const int *roots, int n_roots);

/* The same without inference: types and shapes of its results are the caller's to infer. */
struct node *graph_append_node(struct graph *graph, const char *name, struct value_list inputs, int n_outputs,
                               struct attr_list attrs);

/* Attributes: all of them, or one; the default where absent. */
struct attr_list node_attrs(const struct node *node);
const struct attr *node_attr(const struct node *node, const char *name);
int64_t node_attr_int(const struct node *node, const char *name, int64_t otherwise);
float node_attr_float(const struct node *node, const char *name, float otherwise);
const char *node_attr_string(const struct node *node, const char *name, const char *otherwise);

/* The value of input or output i; NULL if absent or beyond the count. The pointer is good until the graph
 * grows. */
struct value *node_input(const struct graph *graph, const struct node *node, int i);
struct value *node_output(const struct graph *graph, const struct node *node, int i);

/* err_set with "node 'NAME' (OP): " before the text. */
int node_error(const struct node *node, struct err *err, enum err_code code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
