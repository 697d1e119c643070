/* DepthToSpace: blocks of channels become blocks of the image (ONNX 1..13; mode CRD since 11), SpaceToDepth,
   its inverse (1..13), and the gradient of the first. */
#include <string.h>

#include "model/ops/shared/backward.h"
#include "model/ops/shared/infer.h"
#include "model/ops/shared/strided.h"

/* The deep tensor is [n, c * b * b, h, w], the wide one [n, c, h * b, w * b]. */
static int wide_shape(const struct graph *graph, const struct node *node, const struct shape *deep,
                      struct shape *wide, struct err *err) {
  int64_t block = node_attr_int(node, "blocksize", 0);
  char text[128];
  if (infer_check_rank(graph, node, 0, 4, err))
    return err->code;
  *wide = *deep;
  if (block < 1 || block > INT32_MAX || deep->dim[1] % (block * block) != 0 ||
      __builtin_mul_overflow(deep->dim[2], block, &wide->dim[2]) ||
      __builtin_mul_overflow(deep->dim[3], block, &wide->dim[3]))
    return node_error(node, err, ERR_INVALID, "shape %s does not divide into blocks of %lld",
                      shape_text(deep, text, sizeof text), (long long)block);
  wide->dim[1] /= block * block;
  return ERR_OK;
}

static int deep_shape(const struct graph *graph, const struct node *node, const struct shape *wide,
                      struct shape *deep, struct err *err) {
  int64_t block = node_attr_int(node, "blocksize", 0);
  char text[128];
  if (infer_check_rank(graph, node, 0, 4, err))
    return err->code;
  *deep = *wide;
  if (block < 1 || block > INT32_MAX || wide->dim[2] % block != 0 || wide->dim[3] % block != 0 ||
      __builtin_mul_overflow(wide->dim[1], block * block, &deep->dim[1]))
    return node_error(node, err, ERR_INVALID, "shape %s does not divide into blocks of %lld",
                      shape_text(wide, text, sizeof text), (long long)block);
  deep->dim[2] /= block;
  deep->dim[3] /= block;
  return ERR_OK;
}

/* Adds a dimension of the walk, in the direction asked for. */
static void add_dim(struct strided *walk, bool is_back, int64_t dim, int64_t deep, int64_t wide) {
  strided_dim(walk, dim, is_back ? wide : deep, is_back ? deep : wide);
}

/* deep -> wide, or wide -> deep with is_back */
static void blocks_rearrange(const struct node *node, const struct tensor *from, const struct tensor *to,
                             bool is_back) {
  const struct shape *deep = is_back ? &to->shape : &from->shape, *wide = is_back ? &from->shape : &to->shape;
  bool is_crd = strcmp(node_attr_string(node, "mode", "DCR"), "CRD") == 0;
  int64_t block = node_attr_int(node, "blocksize", 1), c = wide->dim[1];
  int64_t plane = deep->dim[2] * deep->dim[3], row = wide->dim[3];
  struct strided walk = {0};
  add_dim(&walk, is_back, deep->dim[0], deep->dim[1] * plane, deep->dim[1] * plane);
  add_dim(&walk, is_back, c, is_crd ? block * block * plane : plane, block * block * plane);
  add_dim(&walk, is_back, block, is_crd ? block * plane : block * c * plane, row);
  add_dim(&walk, is_back, block, is_crd ? plane : c * plane, 1);
  add_dim(&walk, is_back, deep->dim[2], deep->dim[3], block * row);
  add_dim(&walk, is_back, deep->dim[3], 1, block);
  strided_copy(&walk, dtype_size(from->dtype), from->data, to->data);
}

static int check_mode(const struct node *node, struct err *err) {
  const char *mode = node_attr_string(node, "mode", "DCR");
  if (strcmp(mode, "DCR") == 0 || strcmp(mode, "CRD") == 0)
    return ERR_OK;
  return node_error(node, err, ERR_UNSUPPORTED, "mode '%.40s' is not known", mode);
}

static int depth_to_space_infer(struct graph *graph, const struct node *node, struct err *err) {
  const struct value x = *node_input(graph, node, 0);
  struct shape y;
  if (check_mode(node, err) || wide_shape(graph, node, &x.shape, &y, err))
    return err->code;
  return infer_output(graph, node, 0, &(struct tensor){.dtype = x.dtype, .shape = y}, err);
}

static int depth_to_space_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                                   struct err *err) {
  int dy = autodiff_grad(ad, node, 0);
  struct attr attrs[] = {attr_of_int("blocksize", node_attr_int(node, "blocksize", 1)),
                         {.name = "mode", .type = ATTR_STRING, .s = node_attr_string(node, "mode", "DCR")}};
  (void)err;
  autodiff_add(ad, node, 0,
               backward_node(graph, "DepthToSpaceGrad", VALUES(dy), (struct attr_list){attrs, 2}));
  return ERR_OK;
}

static int depth_to_space_ref(const struct op_call *call, struct err *err) {
  (void)err;
  blocks_rearrange(call->node, &call->in[0], &call->out[0], false);
  return ERR_OK;
}

static const struct op_case depth_to_space_cases[] = {
    {.inputs = "f32[1,8,2,3]", .attrs = "blocksize=2"},
    {.inputs = "i64{9}[1,4,1,2]", .attrs = "blocksize=2 mode=CRD"},
    {.inputs = "f32[n,c*b*b,h,w]",
     .attrs = "blocksize=b mode=m",
     .draw = "n=1..2 c=1..3 b=1..3 h=1..2 w=1..3 m=DCR|CRD"},
    {0},
};

static const struct op_def depth_to_space_grad;
static const struct op_def *const depth_to_space_gradients[] = {&depth_to_space_grad, NULL};

const struct op_def op_DepthToSpace = {
    .name = "DepthToSpace",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 1,
    .infer = depth_to_space_infer,
    .backward = depth_to_space_backward,
    .ref = depth_to_space_ref,
    .cases = depth_to_space_cases,
    .gradients = depth_to_space_gradients,
};

static int space_to_depth_infer(struct graph *graph, const struct node *node, struct err *err) {
  const struct value x = *node_input(graph, node, 0);
  struct shape y;
  if (check_mode(node, err) || deep_shape(graph, node, &x.shape, &y, err))
    return err->code;
  return infer_output(graph, node, 0, &(struct tensor){.dtype = x.dtype, .shape = y}, err);
}

static int space_to_depth_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                                   struct err *err) {
  int dy = autodiff_grad(ad, node, 0);
  struct attr block = attr_of_int("blocksize", node_attr_int(node, "blocksize", 1));
  (void)err;
  autodiff_add(ad, node, 0, backward_node(graph, "DepthToSpace", VALUES(dy), ATTR_LIST(block)));
  return ERR_OK;
}

static int space_to_depth_ref(const struct op_call *call, struct err *err) {
  (void)err;
  blocks_rearrange(call->node, &call->in[0], &call->out[0], true);
  return ERR_OK;
}

static const struct op_case space_to_depth_cases[] = {
    {.inputs = "u8{9}[1,2,4,2]", .attrs = "blocksize=2"},
    {.inputs = "f32[n,c,h*b,w*b]", .attrs = "blocksize=b", .draw = "n=1..2 c=1..3 b=1..3 h=1..2 w=1..3"},
    {0},
};

const struct op_def op_SpaceToDepth = {
    .name = "SpaceToDepth",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 1,
    .infer = space_to_depth_infer,
    .backward = space_to_depth_backward,
    .ref = space_to_depth_ref,
    .cases = space_to_depth_cases,
};

/* dy -> dx; blocksize, mode */
static const struct op_def depth_to_space_grad = {
    .name = "DepthToSpaceGrad",
    .domain = "ai.weir",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .infer = space_to_depth_infer,
    .ref = space_to_depth_ref,
};
