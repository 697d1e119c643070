/* Where a tensor of indices points in a data tensor. */
#include "model/ops/shared/places.h"

#include <string.h>

#include "model/ops/shared/infer.h"
#include "model/ops/shared/strided.h"

int places_infer_elements(const struct graph *graph, const struct node *node, const struct shape *data,
                          struct err *err) {
  const struct shape *indices = &node_input(graph, node, 1)->shape;
  char left[128], right[128];
  bool fits = indices->rank == data->rank && data->rank > 0;
  int axis;
  if (infer_check_indices(graph, node, 1, err) ||
      infer_axis(node, node_attr_int(node, "axis", 0), data->rank, &axis, err))
    return err->code;
  for (int d = 0; d < data->rank && fits; d++)
    fits = d == axis || indices->dim[d] <= data->dim[d];
  if (fits)
    return ERR_OK;
  return node_error(node, err, ERR_INVALID, "indices of shape %s do not fit data of shape %s along axis %d",
                    shape_text(indices, left, sizeof left), shape_text(data, right, sizeof right), axis);
}

int places_infer_tuples(const struct graph *graph, const struct node *node, const struct shape *data,
                        struct shape *beside, struct err *err) {
  const struct shape *indices = &node_input(graph, node, 1)->shape;
  int64_t batch_dims = node_attr_int(node, "batch_dims", 0);
  int64_t tuple = indices->rank > 0 ? indices->dim[indices->rank - 1] : 0;
  char left[128], right[128];
  bool fits = batch_dims >= 0 && batch_dims < indices->rank && batch_dims < data->rank && tuple > 0 &&
              tuple <= data->rank - batch_dims;
  if (infer_check_indices(graph, node, 1, err))
    return err->code;
  for (int d = 0; fits && d < batch_dims; d++)
    fits = indices->dim[d] == data->dim[d];
  if (!fits)
    return node_error(
        node, err, ERR_INVALID, "indices of shape %s do not fit data of shape %s with %lld batch dimensions",
        shape_text(indices, left, sizeof left), shape_text(data, right, sizeof right), (long long)batch_dims);
  if (indices->rank - 1 + data->rank - (batch_dims + tuple) > RANK_MAX)
    return node_error(node, err, ERR_UNSUPPORTED, "a tensor of more than %d dimensions", RANK_MAX);
  *beside = *indices;
  beside->rank--;
  for (int d = (int)(batch_dims + tuple); d < data->rank; d++)
    beside->dim[beside->rank++] = data->dim[d];
  return ERR_OK;
}

int places_of_elements(struct places *places, const struct op_call *call, const struct shape *data,
                       struct err *err) {
  const struct tensor *indices = &call->in[1];
  int last = data->rank - 1, axis;
  *places = (struct places){.data = *data, .indices = indices, .row = -1};
  if (infer_axis(call->node, node_attr_int(call->node, "axis", 0), data->rank, &axis, err) ||
      indices_check(call, 1, data->dim[axis], err))
    return err->code;
  places->axis = axis;
  places->run = indices->shape.dim[last];
  places->rows = places->run > 0 ? shape_elems(&indices->shape) / places->run : 0;
  places->step = axis != last;
  places->stride = shape_stride(data, axis);
  places->size = data->dim[axis];
  return ERR_OK;
}

int places_of_tuples(struct places *places, const struct op_call *call, const struct shape *data,
                     struct err *err) {
  const struct tensor *indices = &call->in[1];
  int64_t elems = shape_elems(&indices->shape);
  *places = (struct places){.data = *data, .indices = indices, .row = -1, .axis = -1, .step = 1};
  places->batch_dims = (int)node_attr_int(call->node, "batch_dims", 0);
  places->tuple = (int)indices->shape.dim[indices->shape.rank - 1];
  places->rows = elems / places->tuple;
  places->run = shape_stride(data, places->batch_dims + places->tuple - 1);
  for (int64_t i = 0; i < elems; i++)
    if (index_check(call, 1, i, data->dim[places->batch_dims + i % places->tuple], err))
      return err->code;
  return ERR_OK;
}

static void elements_row(struct places *places, int64_t row) {
  places->base = 0;
  places->first = row * places->run;
  for (int d = places->data.rank - 2; d >= 0; d--) {
    int64_t dim = places->indices->shape.dim[d];
    if (d != places->axis)
      places->base += row % dim * shape_stride(&places->data, d);
    row /= dim;
  }
}

static void tuple_row(struct places *places, int64_t row) {
  int64_t rows_in_batch = places->rows, batch_elems = shape_elems(&places->data);
  for (int d = 0; d < places->batch_dims; d++) {
    rows_in_batch /= places->data.dim[d];
    batch_elems /= places->data.dim[d];
  }
  places->base = row / rows_in_batch * batch_elems;
  for (int i = 0; i < places->tuple; i++) {
    int d = places->batch_dims + i;
    places->base += index_at(places->indices, row * places->tuple + i, places->data.dim[d]) *
                    shape_stride(&places->data, d);
  }
}

void places_row(struct places *places, int64_t row) {
  places->row = row;
  if (places->axis < 0)
    tuple_row(places, row);
  else
    elements_row(places, row);
}

#define GATHER_ROW(type)                                                                                     \
  for (int64_t j = 0; j < places->run; j++)                                                                  \
    ((type *)out)[r * places->run + j] = ((const type *)data)[places_at(places, j)];

void places_gather(struct places *places, size_t element, const void *data, void *out) {
  size_t row_bytes = (size_t)places->run * element;
  for (int64_t r = 0; r < places->rows && row_bytes > 0; r++) {
    places_row(places, r);
    if (places->axis < 0) {
      memcpy((char *)out + (size_t)r * row_bytes, (const char *)data + (size_t)places->base * element,
             row_bytes);
    } else if (element == 1) {
      GATHER_ROW(uint8_t)
    } else if (element == 4) {
      GATHER_ROW(uint32_t)
    } else {
      GATHER_ROW(uint64_t)
    }
  }
}

void places_add_grad(struct places *places, const float *dy, float *dx) {
  memset(dx, 0, (size_t)shape_elems(&places->data) * sizeof *dx);
  for (int64_t r = 0; r < places->rows; r++, dy += places->run) {
    places_row(places, r);
    for (int64_t j = 0; j < places->run; j++)
      dx[places_at(places, j)] += dy[j];
  }
}
