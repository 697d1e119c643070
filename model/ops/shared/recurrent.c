/* Shapes, attributes and gradient nodes of LSTM, GRU and RNN, and their reference kernels. */
#include "model/ops/shared/recurrent.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/ops/shared/backward.h"
#include "model/ops/shared/infer.h"

extern const struct recurrent_cell recurrent_lstm, recurrent_gru, recurrent_rnn;

static const struct recurrent_cell *cell_of(const struct node *node) {
  static const struct recurrent_cell *const cells[] = {&recurrent_lstm, &recurrent_gru, &recurrent_rnn};
  for (size_t i = 0; i < sizeof cells / sizeof *cells; i++)
    if (strcmp(node->op->name, cells[i]->name) == 0 || strcmp(node->op->name, cells[i]->grad) == 0)
      return cells[i];
  CHECK(!"a recurrent op without a cell");
}

/* The next value of a list of floats, as long as there is one. */
static float next_float(const struct attr *list, int *at, float otherwise) {
  return list && list->type == ATTR_FLOATS && *at < list->n ? list->floats[(*at)++] : otherwise;
}

static int read_functions(struct recurrent *shape, const struct node *node, struct err *err) {
  const struct attr *names = node_attr(node, "activations");
  const struct attr *alphas = node_attr(node, "activation_alpha"),
                    *betas = node_attr(node, "activation_beta");
  int per_direction = shape->cell->n_functions, n = per_direction * (int)shape->directions;
  int alpha_at = 0, beta_at = 0;
  if (names && (names->type != ATTR_STRINGS || names->n != n))
    return node_error(node, err, ERR_INVALID, "attribute 'activations' must name %d functions", n);
  for (int i = 0; i < n; i++) {
    const char *name = names ? names->strings[i] : shape->cell->defaults[i % per_direction];
    struct activation *function = &shape->functions[i / per_direction][i % per_direction];
    bool uses_alpha, uses_beta;
    if (!activation_find(name, function, &uses_alpha, &uses_beta))
      return node_error(node, err, ERR_UNSUPPORTED, "there is no activation function '%.40s'", name);
    if (uses_alpha)
      function->alpha = next_float(alphas, &alpha_at, function->alpha);
    if (uses_beta)
      function->beta = next_float(betas, &beta_at, function->beta);
  }
  return ERR_OK;
}

static int read_attributes(struct recurrent *shape, const struct node *node, struct err *err) {
  const char *direction = node_attr_string(node, "direction", "forward");
  int64_t layout = node_attr_int(node, "layout", 0);
  bool is_both = strcmp(direction, "bidirectional") == 0;
  shape->is_reverse = strcmp(direction, "reverse") == 0;
  shape->directions = is_both ? 2 : 1;
  shape->is_batch_first = layout == 1;
  shape->is_coupled = node_attr_int(node, "input_forget", 0) != 0;
  shape->is_linear_first = node_attr_int(node, "linear_before_reset", 0) != 0;
  shape->clip = node_attr_float(node, "clip", INFINITY);
  if (!is_both && !shape->is_reverse && strcmp(direction, "forward") != 0)
    return node_error(node, err, ERR_INVALID, "direction '%.40s' is unknown", direction);
  if (layout != 0 && layout != 1)
    return node_error(node, err, ERR_INVALID, "layout is %lld; it must be 0 or 1", (long long)layout);
  if (!(shape->clip > 0.0f))
    return node_error(node, err, ERR_INVALID, "clip is %g; it must be above 0", (double)shape->clip);
  return read_functions(shape, node, err);
}

static struct shape state_shape(const struct recurrent *shape) {
  struct shape state = {.rank = 3, .dim = {shape->directions, shape->batch, shape->hidden}};
  if (shape->is_batch_first) {
    state.dim[0] = shape->batch;
    state.dim[1] = shape->directions;
  }
  return state;
}

static struct shape sequence_shape(const struct recurrent *shape) {
  int64_t t = shape->steps, d = shape->directions, b = shape->batch, h = shape->hidden;
  if (shape->is_batch_first)
    return (struct shape){.rank = 4, .dim = {b, t, d, h}};
  return (struct shape){.rank = 4, .dim = {t, d, b, h}};
}

/* The shape that input i must have. */
static struct shape input_shape(const struct recurrent *shape, int i) {
  int64_t t = shape->steps, b = shape->batch, d = shape->directions, h = shape->hidden;
  int64_t gates = shape->cell->gates * h;
  switch (i) {
  case RECURRENT_X:
    return (struct shape){
        .rank = 3, .dim = {shape->is_batch_first ? b : t, shape->is_batch_first ? t : b, shape->input}};
  case RECURRENT_W:
    return (struct shape){.rank = 3, .dim = {d, gates, shape->input}};
  case RECURRENT_R:
    return (struct shape){.rank = 3, .dim = {d, gates, h}};
  case RECURRENT_B:
    return (struct shape){.rank = 2, .dim = {d, 2 * gates}};
  case RECURRENT_LENGTHS:
    return (struct shape){.rank = 1, .dim = {b}};
  case RECURRENT_P:
    return (struct shape){.rank = 2, .dim = {d, 3 * h}};
  case RECURRENT_RECORD:
    return (struct shape){.rank = 2, .dim = {d, recurrent_record_elems(shape)}};
  case RECURRENT_DY:
    return sequence_shape(shape);
  default:
    return state_shape(shape);
  }
}

static int check_input(const struct recurrent *shape, const struct graph *graph, const struct node *node,
                       int i, struct err *err) {
  const struct value *value = node_input(graph, node, i);
  struct shape expected = input_shape(shape, i);
  enum dtype dtype = i == RECURRENT_LENGTHS ? DTYPE_I32 : DTYPE_F32;
  char has[128], needs[128];
  if (!value || (value->dtype == dtype && shape_is_same(&value->shape, &expected)))
    return ERR_OK;
  return node_error(node, err, value->dtype == dtype ? ERR_INVALID : ERR_UNSUPPORTED,
                    "input %d ('%s') is %s%s where %s%s is needed", i, value->name, dtype_name(value->dtype),
                    shape_text(&value->shape, has, sizeof has), dtype_name(dtype),
                    shape_text(&expected, needs, sizeof needs));
}

int recurrent_init(struct recurrent *shape, const struct graph *graph, const struct node *node,
                   struct err *err) {
  const struct value *x = node_input(graph, node, RECURRENT_X), *r = node_input(graph, node, RECURRENT_R);
  *shape = (struct recurrent){.cell = cell_of(node)};
  if (read_attributes(shape, node, err) || infer_check_rank(graph, node, RECURRENT_X, 3, err) ||
      infer_check_rank(graph, node, RECURRENT_R, 3, err))
    return err->code;
  shape->steps = x->shape.dim[shape->is_batch_first];
  shape->batch = x->shape.dim[!shape->is_batch_first];
  shape->input = x->shape.dim[2];
  shape->hidden = r->shape.dim[2];
  if (shape->steps < 1 || shape->batch < 1 || shape->input < 1 || shape->hidden < 1)
    return node_error(
        node, err, ERR_INVALID,
        "%lld steps of %lld sequences of %lld elements, to %lld hidden ones, are nothing to compute",
        (long long)shape->steps, (long long)shape->batch, (long long)shape->input, (long long)shape->hidden);
  if (node_attr_int(node, "hidden_size", shape->hidden) != shape->hidden)
    return node_error(node, err, ERR_INVALID, "hidden_size is %lld, and %lld in its weights",
                      (long long)node_attr_int(node, "hidden_size", 0), (long long)shape->hidden);
  for (int i = 0; i < node->n_inputs; i++)
    if (check_input(shape, graph, node, i, err))
      return err->code;
  return ERR_OK;
}

/* The output that keeps the record: behind those that ONNX knows. */
static int record_output(const struct recurrent *shape) {
  return shape->cell->has_c ? 3 : 2;
}

/* Every step takes W and R for each sample. */
double recurrent_multiply_adds(const struct graph *graph, const struct node *node) {
  const struct shape *x = &node_input(graph, node, RECURRENT_X)->shape;
  return (double)x->dim[0] * (double)x->dim[1] *
         (infer_input_elems(graph, node, RECURRENT_W) + infer_input_elems(graph, node, RECURRENT_R));
}

int recurrent_infer(struct graph *graph, const struct node *node, struct err *err) {
  struct shape sequence, state, record;
  struct recurrent shape;
  if (recurrent_init(&shape, graph, node, err))
    return err->code;
  sequence = sequence_shape(&shape);
  state = state_shape(&shape);
  record = input_shape(&shape, RECURRENT_RECORD);
  if (infer_f32(graph, node, 0, &sequence, err))
    return err->code;
  for (int i = 1; i < record_output(&shape); i++)
    if (infer_f32(graph, node, i, &state, err))
      return err->code;
  return infer_f32(graph, node, record_output(&shape), &record, err);
}

int recurrent_grad_infer(struct graph *graph, const struct node *node, struct err *err) {
  struct recurrent shape;
  if (recurrent_init(&shape, graph, node, err))
    return err->code;
  for (int i = 0; i < RECURRENT_INPUTS; i++) {
    struct shape own = input_shape(&shape, i);
    if (infer_f32(graph, node, i, &own, err))
      return err->code;
  }
  return ERR_OK;
}

static int check_slopes(const struct recurrent *shape, const struct node *node, struct err *err) {
  for (int d = 0; d < shape->directions; d++)
    for (int f = 0; f < shape->cell->n_functions; f++)
      if (!activation_is_invertible(&shape->functions[d][f]))
        return node_error(node, err, ERR_UNSUPPORTED,
                          "activation_alpha holds %g; a gradient needs one that is not negative",
                          (double)shape->functions[d][f].alpha);
  return ERR_OK;
}

int recurrent_add_grad(struct autodiff *ad, struct graph *graph, const struct node *node, struct err *err) {
  int inputs[RECURRENT_GRAD_INPUTS];
  bool is_wanted[RECURRENT_INPUTS];
  struct recurrent shape;
  struct node *grad;
  if (recurrent_init(&shape, graph, node, err) || check_slopes(&shape, node, err))
    return err->code;
  for (int i = 0; i < RECURRENT_INPUTS; i++)
    inputs[i] = i < node->n_inputs ? node->inputs[i] : -1;
  inputs[RECURRENT_RECORD] = backward_keep(graph, node, record_output(&shape));
  inputs[RECURRENT_DY] = autodiff_grad(ad, node, 0);
  inputs[RECURRENT_DY_H] = autodiff_grad(ad, node, 1);
  inputs[RECURRENT_DY_C] = shape.cell->has_c ? autodiff_grad(ad, node, 2) : -1;
  grad = graph_add_node(graph, shape.cell->grad, (struct value_list){inputs, RECURRENT_GRAD_INPUTS},
                        RECURRENT_INPUTS, node_attrs(node));
  for (int i = 0; i < RECURRENT_INPUTS; i++)
    is_wanted[i] = autodiff_wants(ad, node, i);
  backward_keep_wanted(graph, grad, is_wanted);
  for (int i = 0; i < RECURRENT_INPUTS; i++)
    if (is_wanted[i])
      autodiff_add(ad, node, i, grad->outputs[i]);
  return ERR_OK;
}

static bool is_grad(const struct recurrent *shape, const struct node *node) {
  return strcmp(node->op->name, shape->cell->grad) == 0;
}

/* Forward: h and c, and the record of a direction where nobody asks for it. Backward: h, c and d_spare,
   d_gates and d_kept. */
int64_t recurrent_scratch_elems(const struct recurrent *shape, const struct node *node) {
  int64_t state = shape->batch * shape->hidden;
  if (is_grad(shape, node))
    return 3 * state + shape->steps * state * (shape->cell->gates + 1);
  return 2 * state + (record_output(shape) < node->n_outputs ? 0 : recurrent_record_elems(shape));
}

void recurrent_io_init(struct recurrent_io *io, const struct recurrent *shape, const struct op_call *call) {
  bool is_backward = is_grad(shape, call->node);
  *io = (struct recurrent_io){0};
  for (int i = 0; i < call->node->n_inputs; i++)
    io->in[i] = call->in[i].data;
  for (int i = 0; i < RECURRENT_INPUTS && is_backward; i++)
    io->grads[i] = call->out[i].data;
  if (is_backward)
    return;
  io->y = call->out[0].data;
  io->y_h = call->out[1].data;
  io->y_c = shape->cell->has_c ? call->out[2].data : NULL;
  io->record = record_output(shape) < call->node->n_outputs ? call->out[record_output(shape)].data : NULL;
}

static const struct recurrent_math ref_math = {matrix_multiply_into, activation_apply};

/* Scratch for one execution; the caller frees it. */
static int ref_start(const struct op_call *call, struct recurrent *shape, struct recurrent_io *io,
                     struct err *err) {
  int64_t elems;
  if (recurrent_init(shape, call->graph, call->node, err))
    return err->code;
  recurrent_io_init(io, shape, call);
  elems = recurrent_scratch_elems(shape, call->node);
  io->scratch = malloc((size_t)elems * sizeof *io->scratch);
  if (!io->scratch)
    return node_error(call->node, err, ERR_NO_MEMORY, "no memory for %lld elements of scratch",
                      (long long)elems);
  return ERR_OK;
}

int recurrent_ref(const struct op_call *call, struct err *err) {
  struct recurrent shape;
  struct recurrent_io io;
  int code = ref_start(call, &shape, &io, err);
  if (code)
    return code;
  code = recurrent_forward(&shape, &ref_math, &io, call->node, err);
  free(io.scratch);
  return code;
}

int recurrent_grad_ref(const struct op_call *call, struct err *err) {
  struct recurrent shape;
  struct recurrent_io io;
  int code = ref_start(call, &shape, &io, err);
  if (code)
    return code;
  recurrent_backward(&shape, &ref_math, &io);
  free(io.scratch);
  return ERR_OK;
}
