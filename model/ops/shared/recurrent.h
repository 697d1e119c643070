/* What LSTM, GRU and RNN (ONNX 7..14) share: geometry, inference, the walk over time and its way back. A cell
   says what one time step does. Matrices and functions are computed by `struct recurrent_math`, so that a
   backend need only bring fast ones.

   Letters in shapes: d directions, t steps, b batch, i input, h hidden, g gates; rows: the t x b pairs in the
   order in which X has them. */
#ifndef WEIR_MODEL_OPS_SHARED_RECURRENT_H
#define WEIR_MODEL_OPS_SHARED_RECURRENT_H

#include "model/graph/op.h"
#include "model/ops/shared/activation.h"
#include "model/ops/shared/matrix.h"

/* Inputs of the forward node in order; GRU and RNN have the first six. The gradient node has the same, then
   what follows; its output i is the gradient of input i. */
enum recurrent_input {
  RECURRENT_X,       /* f32[t,b,i]; batch first: [b,t,i] */
  RECURRENT_W,       /* f32[d,gh,i] */
  RECURRENT_R,       /* f32[d,gh,h] */
  RECURRENT_B,       /* f32[d,2gh]: of W, then of R */
  RECURRENT_LENGTHS, /* i32[b] */
  RECURRENT_H,       /* f32[d,b,h]; batch first: [b,d,h] */
  RECURRENT_C,       /* the same */
  RECURRENT_P,       /* f32[d,3h] */
  RECURRENT_INPUTS,
  RECURRENT_RECORD = RECURRENT_INPUTS, /* f32[d,n]: what the forward node kept */
  RECURRENT_DY,
  RECURRENT_DY_H,
  RECURRENT_DY_C,
  RECURRENT_GRAD_INPUTS,
};

struct recurrent;
struct recurrent_pass;

/* One kind of cell. */
struct recurrent_cell {
  const char *name, *grad; /* of its op and the gradient op */
  int gates, n_kept;       /* kept: matrices f32[rows,h] in the record besides gates and states */
  int n_functions;         /* activation functions of a direction */
  const char *defaults[3]; /* their names */
  bool has_c;              /* a cell state beside the hidden one, and peepholes */

  /* Step t: from pass->h (and c), and the gates' input part, to pass->h (and c), keeping what step_back
     needs. */
  void (*step)(const struct recurrent_pass *pass, int64_t t);
  /* pass->h and c are the gradients behind step t on entry, before it on return; fills step t's rows of
     pass->d_gates (and d_kept). */
  void (*step_back)(const struct recurrent_pass *pass, int64_t t);
  /* The gradient of R, [gh,h], from all steps. */
  void (*sum_r)(const struct recurrent_pass *pass, float *d_r);
  /* With linear_before_reset, the last gate's bias of R has the gradients in d_kept, not those of W's. */
  bool has_inner_bias;
};

/* A node's shapes and attributes. */
struct recurrent {
  const struct recurrent_cell *cell;
  int64_t steps, batch, input, hidden, directions;
  bool is_reverse;      /* direction 0 walks from the last step to the first */
  bool is_batch_first;  /* layout 1 */
  bool is_coupled;      /* LSTM's input_forget */
  bool is_linear_first; /* GRU's linear_before_reset */
  float clip;           /* bound of what activation functions of gates see; infinite without */
  struct activation functions[2][3];
};

struct recurrent_math {
  /* out [a.rows, b.cols], out_stride from row to row, = a b, or += with is_added */
  void (*multiply)(struct matrix a, struct matrix b, bool is_added, float *out, int64_t out_stride);
  /* x = f(x), n elements */
  void (*activate)(const struct activation *function, float *x, int64_t n);
};

/* One execution's tensors; NULL where absent. */
struct recurrent_io {
  const void *in[RECURRENT_GRAD_INPUTS];
  float *y, *y_h, *y_c;           /* forward */
  float *record;                  /* forward: recurrent_record_elems of each direction; NULL: nobody asks */
  float *grads[RECURRENT_INPUTS]; /* backward */
  float *scratch;                 /* recurrent_scratch_elems */
};

/* One direction of one execution. Matrices of the record are dense: [rows, columns]. */
struct recurrent_pass {
  const struct recurrent *shape;
  const struct recurrent_math *math;
  const struct activation *functions;
  float clipped[3][2]; /* what each function makes of the clip bounds: a result there has no slope */
  bool is_reverse;
  const float *r, *bias, *p; /* [gh,h], [2gh], [3h] */
  const int32_t *lengths;
  float *gates, *h_before, *c_before, *kept; /* record: [rows,gh], then [rows,h] each */
  float *h, *c;                              /* [b,h] the states, or their gradients */
  float *d_gates, *d_kept, *d_spare, *d_p;   /* backward: [rows,gh], [rows,h], [b,h], [3h] */
};

/* From the attributes and inputs of a node, forward or gradient. Errors: INVALID, UNSUPPORTED. */
int recurrent_init(struct recurrent *shape, const struct graph *graph, const struct node *node,
                   struct err *err);

int64_t recurrent_record_elems(const struct recurrent *shape); /* of one direction */
int64_t recurrent_scratch_elems(const struct recurrent *shape, const struct node *node);

/* Errors: INVALID for a length that no sequence can have. */
int recurrent_forward(const struct recurrent *shape, const struct recurrent_math *math,
                      const struct recurrent_io *io, const struct node *node, struct err *err);
void recurrent_backward(const struct recurrent *shape, const struct recurrent_math *math,
                        const struct recurrent_io *io);

/* Puts the tensors of a node (data[i] of input i or output o) in their places. */
void recurrent_io_init(struct recurrent_io *io, const struct recurrent *shape, const struct op_call *call);

/* The callbacks of the ops' rows. */
int recurrent_infer(struct graph *graph, const struct node *node, struct err *err);
double recurrent_multiply_adds(const struct graph *graph, const struct node *node);
int recurrent_grad_infer(struct graph *graph, const struct node *node, struct err *err);
int recurrent_add_grad(struct autodiff *ad, struct graph *graph, const struct node *node, struct err *err);
int recurrent_ref(const struct op_call *call, struct err *err);
int recurrent_grad_ref(const struct op_call *call, struct err *err);

/* Defines the gradient op's row NAME_grad and the list NAME_gradients. The op's inputs, then the record, dY,
   dY_h and of LSTM dY_c -> the gradients of the op's inputs; the op's attributes. */
#define RECURRENT_GRADIENT(symbol, op_type)                                                                  \
  static const struct op_def symbol##_grad = {.name = op_type,                                               \
                                              .domain = "ai.weir",                                           \
                                              .min_inputs = RECURRENT_GRAD_INPUTS,                           \
                                              .max_inputs = RECURRENT_GRAD_INPUTS,                           \
                                              .min_outputs = 0,                                              \
                                              .max_outputs = RECURRENT_INPUTS,                               \
                                              .infer = recurrent_grad_infer,                                 \
                                              .ref = recurrent_grad_ref};                                    \
  static const struct op_def *const symbol##_gradients[] = {&symbol##_grad, NULL};

/* For cells. */

/* Row (t, b) of a matrix [rows, cols], and from there to the next of the same step. */
static inline int64_t recurrent_row(const struct recurrent *shape, int64_t t, int64_t b) {
  return shape->is_batch_first ? b * shape->steps + t : t * shape->batch + b;
}
static inline int64_t recurrent_row_step(const struct recurrent *shape) {
  return shape->is_batch_first ? shape->steps : 1;
}

/* Sequence b has a step t. */
static inline bool recurrent_is_live(const struct recurrent_pass *pass, int64_t t, int64_t b) {
  return !pass->lengths || t < pass->lengths[b];
}

/* Columns [from, from + n) of a matrix [rows, cols]: [rows, n]; and of such a matrix step t's rows: [b, n].
 */
struct matrix recurrent_columns(const struct recurrent_pass *pass, const float *data, int64_t cols,
                                int64_t from, int64_t n);
struct matrix recurrent_at_step(const struct recurrent_pass *pass, struct matrix rows, int64_t t);

/* A gate's activation: x = f(clip(x)), and its way back: grad *= slope at y = f(clip(x)). */
void recurrent_activate(const struct recurrent_pass *pass, int function, float *x, int64_t n);
void recurrent_derive(const struct recurrent_pass *pass, int function, const float *y, float *grad,
                      int64_t n);

/* For cells whose gates all take h R': adds it to step t's gates, and d_gates R of step t to h's gradient;
   the gradient of R. */
void recurrent_add_states(const struct recurrent_pass *pass, int64_t t);
void recurrent_add_state_grads(const struct recurrent_pass *pass, int64_t t);
void recurrent_sum_r(const struct recurrent_pass *pass, float *d_r);

#endif
