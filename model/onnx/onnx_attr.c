/* ONNX attributes and Constant nodes. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "model/graph/op.h"
#include "model/onnx/onnx_parts.h"

enum { ATTRS_MAX = 64 };

/* NUL-terminated, and safe to print. */
static const char *copy_text(struct arena *arena, const ProtobufCBinaryData *bytes) {
  char *text = arena_new(arena, bytes->len + 1);
  for (size_t i = 0; i < bytes->len; i++)
    text[i] = bytes->data[i] < ' ' || bytes->data[i] == 0x7f ? '?' : (char)bytes->data[i];
  return text;
}

static void read_strings(struct arena *arena, const Onnx__AttributeProto *proto, struct attr *attr) {
  const char **strings = arena_new(arena, proto->n_strings * sizeof *strings);
  for (size_t i = 0; i < proto->n_strings; i++)
    strings[i] = copy_text(arena, &proto->strings[i]);
  attr->type = ATTR_STRINGS;
  attr->n = (int)proto->n_strings;
  attr->strings = strings;
}

static int read_tensor(struct onnx_reader *reader, const Onnx__AttributeProto *proto, const struct node *node,
                       struct attr *attr, struct err *err) {
  struct onnx_tensor tensor;
  char what[2 * ONNX_NAME_BYTES_MAX + 64];
  if (!proto->t)
    return node_error(node, err, ERR_INVALID, "attribute '%s' has no tensor", attr->name);
  snprintf(what, sizeof what, "attribute '%s' of node '%s'", attr->name, node->name);
  if (onnx_tensor_read(reader, proto->t, what, &tensor, err))
    return err->code;
  attr->type = ATTR_TENSOR;
  attr->dtype = tensor.dtype;
  attr->shape = tensor.shape;
  attr->data = tensor.data;
  return 0;
}

/* The attributes that name a type: "to" of Cast, "dtype" of ops that make tensors. What is computed with as
   f32 becomes f32. */
static void read_dtype(struct onnx_reader *reader, const struct node *node, struct attr *attr) {
  const char *text = "an unknown type";
  enum dtype dtype = attr->i >= 0 && attr->i <= INT_MAX ? onnx_dtype((int)attr->i, &text) : DTYPE_NONE;
  if (dtype == DTYPE_NONE)
    listing_add(&reader->unsupported_attrs, "'%s' of node '%s' (%s to %s)", attr->name, node->name,
                node->op->name, text);
  else if (dtype == DTYPE_F32)
    attr->i = ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT;
}

static int read_attr(struct onnx_reader *reader, const Onnx__AttributeProto *proto, const struct node *node,
                     struct attr *attr, struct err *err) {
  struct arena *arena = &reader->graph->arena;
  *attr = (struct attr){.name = arena_strdup(arena, proto->name)};
  switch (proto->type) {
  case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT:
    attr->type = ATTR_INT;
    attr->i = proto->i;
    if (strcmp(attr->name, "to") == 0 || strcmp(attr->name, "dtype") == 0)
      read_dtype(reader, node, attr);
    return 0;
  case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT:
    attr->type = ATTR_FLOAT;
    attr->f = proto->f;
    return 0;
  case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING:
    attr->type = ATTR_STRING;
    attr->s = copy_text(arena, &proto->s);
    return 0;
  case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS:
    attr->type = ATTR_INTS;
    attr->n = (int)proto->n_ints;
    attr->ints = arena_copy(arena, proto->ints, proto->n_ints * sizeof *proto->ints);
    return 0;
  case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOATS:
    attr->type = ATTR_FLOATS;
    attr->n = (int)proto->n_floats;
    attr->floats = arena_copy(arena, proto->floats, proto->n_floats * sizeof *proto->floats);
    return 0;
  case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRINGS:
    read_strings(arena, proto, attr);
    return 0;
  case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR:
    return read_tensor(reader, proto, node, attr, err);
  default:
    attr->type = ATTR_STRING; /* without a text: listed */
    listing_add(&reader->unsupported_attrs, "'%s' of node '%s' (%s)", attr->name, node->name, node->op->name);
    return 0;
  }
}

int onnx_attrs_read(struct onnx_reader *reader, const Onnx__NodeProto *proto, struct node *node,
                    struct err *err) {
  struct attr *attrs;
  if (proto->n_attribute > ATTRS_MAX)
    return node_error(node, err, ERR_INVALID, "has %zu attributes, no operator has more than %d",
                      proto->n_attribute, ATTRS_MAX);
  attrs = arena_new(&reader->graph->arena, proto->n_attribute * sizeof *attrs);
  node->attrs = attrs;
  for (size_t i = 0; i < proto->n_attribute; i++) {
    const Onnx__AttributeProto *attr = proto->attribute[i];
    if (onnx_name_check(attr->name, "the name of an attribute", err))
      return err_prefix(err, "node '%s' (%s)", node->name, node->op->name);
    if (node_attr(node, attr->name))
      return node_error(node, err, ERR_INVALID, "attribute '%s' is given twice", attr->name);
    if (!attr->has_type)
      return node_error(node, err, ERR_INVALID, "attribute '%s' has no type", attr->name);
    if (attr->n_ints > INT_MAX || attr->n_floats > INT_MAX || attr->n_strings > INT_MAX)
      return node_error(node, err, ERR_INVALID, "attribute '%s' is too long", attr->name);
    if (read_attr(reader, attr, node, &attrs[i], err))
      return err->code;
    node->n_attrs++;
  }
  return 0;
}

int onnx_constant_read(struct onnx_reader *reader, const struct node *node, struct err *err) {
  struct value *value = &reader->graph->values[node->outputs[0]];
  const struct attr *attr = node->n_attrs == 1 ? &node->attrs[0] : NULL;
  value->kind = VALUE_CONSTANT;
  value->producer = -1;
  if (!attr)
    return node_error(node, err, ERR_INVALID, "has %d attributes, a Constant has exactly one", node->n_attrs);
  if (strcmp(attr->name, "value") == 0 && attr->type == ATTR_TENSOR) {
    value->dtype = attr->dtype;
    value->shape = attr->shape;
    value->data = attr->data;
  } else if (strcmp(attr->name, "value_float") == 0 && attr->type == ATTR_FLOAT) {
    value->dtype = DTYPE_F32;
    value->data = &attr->f;
  } else if (strcmp(attr->name, "value_int") == 0 && attr->type == ATTR_INT) {
    value->dtype = DTYPE_I64;
    value->data = &attr->i;
  } else if (strcmp(attr->name, "value_floats") == 0 && attr->type == ATTR_FLOATS) {
    value->dtype = DTYPE_F32;
    value->shape = (struct shape){.rank = 1, .dim = {attr->n}};
    value->data = attr->floats;
  } else if (strcmp(attr->name, "value_ints") == 0 && attr->type == ATTR_INTS) {
    value->dtype = DTYPE_I64;
    value->shape = (struct shape){.rank = 1, .dim = {attr->n}};
    value->data = attr->ints;
  } else if (attr->type != ATTR_STRING || attr->s) {
    listing_add(&reader->unsupported_attrs, "'%s' of node '%s' (Constant)", attr->name, node->name);
  }
  return 0;
}
