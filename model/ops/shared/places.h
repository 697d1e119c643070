/* Where a tensor of indices points in a data tensor: what gathering and scattering ops share. The tensor
   beside the data (what is gathered, or the updates to scatter) is seen as rows. */
#ifndef WEIR_MODEL_OPS_SHARED_PLACES_H
#define WEIR_MODEL_OPS_SHARED_PLACES_H

#include "model/ops/shared/indices.h"

struct places {
  int64_t rows, run; /* rows of `run` elements */
  struct shape data;
  const struct tensor *indices;
  int axis;              /* each element has an index along this axis of the data; -1: each row has a tuple */
  int batch_dims, tuple; /* leading dimensions in common, and how many are indexed */

  /* Of the present row. */
  int64_t row;          /* -1: none yet */
  int64_t base;         /* the place of its element 0, less what the index of that says */
  int64_t step;         /* what an element further adds */
  int64_t first;        /* its first index */
  int64_t stride, size; /* of the dimension that is indexed; stride 0: elements have no index of their own */
};

/* An index for each element, along an axis, as for GatherElements. Input 1 of the call has the indices, whose
   shape is that of the tensor beside the data. Errors: INVALID for an index that leaves the data. */
int places_of_elements(struct places *places, const struct op_call *call, const struct shape *data,
                       struct err *err);

/* A tuple of indices for each row, as for GatherND; the call's node may have batch_dims. */
int places_of_tuples(struct places *places, const struct op_call *call, const struct shape *data,
                     struct err *err);

/* The shapes that these take. `beside` is the shape of the tensor beside the data. Errors: INVALID. */
int places_infer_elements(const struct graph *graph, const struct node *node, const struct shape *data,
                          struct err *err);
int places_infer_tuples(const struct graph *graph, const struct node *node, const struct shape *data,
                        struct shape *beside, struct err *err);

/* Makes `row` the present one. */
void places_row(struct places *places, int64_t row);

/* The place in the data of element j of the present row. */
static inline int64_t places_at(const struct places *places, int64_t j) {
  int64_t place = places->base + j * places->step;
  if (places->stride)
    place += index_at(places->indices, places->first + j, places->size) * places->stride;
  return place;
}

/* The place of element i of all; its row becomes the present one. */
static inline int64_t places_find(struct places *places, int64_t i) {
  int64_t row = i / places->run;
  if (row != places->row)
    places_row(places, row);
  return places_at(places, i - row * places->run);
}

/* out = the elements of 1, 4 or 8 bytes at the places. */
void places_gather(struct places *places, size_t element, const void *data, void *out);

/* At each place, in the order of dy: dx += dy. dx is of the data's shape, and set to 0 before. */
void places_add_grad(struct places *places, const float *dy, float *dx);

#endif
