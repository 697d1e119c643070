/* The table of operators. An op is one file in model/ops and one row in model/graph/op.def: shape inference,
   backward, reference kernel and test cases. Backends may add faster kernels in files of their own. */
#ifndef WEIR_MODEL_GRAPH_OP_H
#define WEIR_MODEL_GRAPH_OP_H

#include "model/graph/autodiff.h"
#include "model/graph/graph.h"

/* OP_OPTIONAL_MAX: an op with more inputs or outputs needs all that its node has. */
enum { OP_INPUTS_MAX = 256, OP_OUTPUTS_MAX = 256, OP_OPTIONAL_MAX = 16 };

/* A tensor at execution: where its bytes are. Dense, row-major. */
struct tensor {
  enum dtype dtype;
  struct shape shape;
  void *data;
};

/* What a kernel may know besides its tensors. */
struct op_context {
  uint64_t seed, step;
  uint32_t microbatch;
};

/* One execution of a node. in[i].data or out[i].data is NULL when that input or output is absent, also for
   optional ones behind the node's last. out never aliases in, except as the op's flags allow. */
struct op_call {
  const struct graph *graph;
  const struct node *node;
  struct tensor *in, *out;
  struct op_context context;
};

/* Makes room in the arena for the node's tensors and sets their types and shapes; their data stays NULL. */
void op_call_init(struct op_call *call, struct arena *arena, const struct graph *graph,
                  const struct node *node);

enum op_flags {
  OP_ALIAS = 1 << 0,     /* out[0] is in[0] under another shape: a memory plan may give both the same bytes */
  OP_INPLACE = 1 << 1,   /* out[0] may be in[0]'s bytes when nothing else reads them afterwards */
  OP_RANDOM = 1 << 2,    /* draws from the context's counters: never folded */
  OP_SHAPES = 1 << 3,    /* reads the shapes of its inputs only: folded though their data is not known */
  OP_POINTWISE = 1 << 4, /* where all tensors have one shape, out[..][i] depends on in[..][i] alone: the
                            elements may lie in any order that is the same for all */
};

/* One case that the conformance suite runs on every backend, with seeded random data.
   inputs: "f32[2,3,8,8] f32[4,3,3,3] - i64{4}[2]": dtype and shape; "-" is an absent input. Reals are drawn
   from
   [-1, 1) or, with "f32{0.5..2}[3]", from that range; with "{apart}" no two values of a case's such inputs
   are nearer to each other than 0.1, nor nearer to a multiple of 0.1 than 0.05: for ops with kinks. Integers:
   {k} draws those below k, {-2..2} from that range. "=1,2,3" after the shape gives the data (begun anew where
   the input is longer), "==1,2,3" those of a constant, known before execution. attrs: "pads=1,1,1,1 axes=1,
   group=2 alpha=0.5f scales=1f,2f auto_pad=SAME_UPPER value=i64[1]=3" (a comma makes a list, 'f' behind it a
   float). draw: "n=1..4 g=1|2 m=linear|nearest" declares variables of one lower-case letter, drawn anew by
   each of several seeded trials: a whole number of a range, or one of the alternatives. inputs and attrs name
   them wherever a number or a word may stand, also in sums and products from left to right: "f32[n,c*g,h+4]",
   "group=g axis=a pads=p,p,p,p mode=m". An alternative may be a list ("s=|3|2,4" for "f32[s]", "p=0,1|1,0"
   for "perm=p"), name earlier variables ("d=1|n", "k=1..n"), or be whole inputs or attributes ("b=-|f32[n]"
   for "f32[n] b"). A draw that infer finds INVALID is drawn again. */
struct op_case {
  const char *inputs;
  const char *attrs;
  const char *draw;   /* NULL: one trial */
  int outputs;        /* 0: one */
  bool is_not_smooth; /* finite differences would step over a kink: gradient compared on cpu and ref only */
  bool is_eval;       /* the graph is not in training */
  int opset;          /* of the graph; 0: 17 */
};

struct op_def {
  const char *name;   /* ONNX's op_type, or a name of ours for what ONNX lacks (gradients, losses) */
  const char *domain; /* "" ONNX, "ai.weir" ours (never accepted from a file) */
  int min_inputs, max_inputs, min_outputs, max_outputs;
  int min_opset; /* of ONNX: older models are refused */
  unsigned flags;

  /* Sets dtype and shape of each output present (graph->values[node->outputs[i]]). May be called again after
     inputs changed. Errors: INVALID, UNSUPPORTED through node_error. */
  int (*infer)(struct graph *graph, const struct node *node, struct err *err);

  /* Adds nodes that compute the gradients of the inputs that autodiff_wants, and hands them over with
     autodiff_add. NULL: no gradient flows through. Errors: UNSUPPORTED through node_error. */
  int (*backward)(struct autodiff *ad, struct graph *graph, const struct node *node, struct err *err);

  /* The reference kernel: plain loops in f32 (f64 for accumulation is welcome), any thread. Errors: INVALID
     for data that no shape rules out (a label out of range, with its value and place). */
  int (*ref)(const struct op_call *call, struct err *err);

  /* Multiply-adds of one execution, from shapes, for whoever wants to know what a layer costs. NULL: an op
     that does none to speak of. */
  double (*multiply_adds)(const struct graph *graph, const struct node *node);

  /* Ends with {0}; NULL: none. An op with a backward has one with a draw, whose gradient can be compared. */
  const struct op_case *cases;

  /* The ops of ours that only this op's backward adds, in the same file: they have no row of their own. Ends
     with NULL; NULL: none. */
  const struct op_def *const *gradients;
};

/* The op of that name in ONNX's domain or ours; NULL if unknown. */
const struct op_def *op_find(const char *domain, const char *name);
/* Every op, gradients included, for suites that iterate the table: NULL past the last. */
const struct op_def *op_at(int index);

#endif
