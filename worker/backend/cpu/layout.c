/* Layouts: comparing and making oneDNN memory descriptors. */
#include <string.h>

#include "worker/backend/cpu/cpu.h"

/* A loop of a walk over a tensor in row-major order: `count` elements, `logical` apart in row-major order and
   `physical` apart in memory. */
struct loop {
  int64_t count, logical, physical;
};

struct loops {
  int n;
  struct loop loop[3 * DNNL_MAX_NDIMS];
};

static void loops_add(struct loops *loops, struct loop loop) {
  if (loop.count == 1)
    return;
  int at = loops->n++;
  for (; at > 0 && loops->loop[at - 1].logical < loop.logical; at--)
    loops->loop[at] = loops->loop[at - 1];
  loops->loop[at] = loop;
}

/* Joins neighbours that step evenly through each other, so that equal walks look equal. */
static void loops_merge(struct loops *loops) {
  int n = 0;
  for (int i = 0; i < loops->n; i++) {
    struct loop *outer = n > 0 ? &loops->loop[n - 1] : NULL;
    struct loop inner = loops->loop[i];
    if (outer && outer->logical == inner.logical * inner.count &&
        outer->physical == inner.physical * inner.count) {
      inner.count *= outer->count;
      *outer = inner;
    } else {
      loops->loop[n++] = inner;
    }
  }
  loops->n = n;
}

/* False for layouts with padding, and for those that are not blocked. */
static bool loops_of(const dnnl_memory_desc_t *layout, struct loops *loops) {
  const dnnl_blocking_desc_t *blocking = &layout->format_desc.blocking;
  int64_t logical[DNNL_MAX_NDIMS], blocked[DNNL_MAX_NDIMS];
  int64_t elems = 1;
  loops->n = 0;
  if (layout->format_kind != dnnl_blocked || layout->offset0 != 0 || layout->extra.flags != 0)
    return false;
  for (int d = layout->ndims - 1; d >= 0; d--) {
    if (layout->dims[d] != layout->padded_dims[d])
      return false;
    logical[d] = elems;
    blocked[d] = 1;
    elems *= layout->dims[d];
  }
  int64_t physical = 1;
  for (int b = blocking->inner_nblks - 1; b >= 0; b--) {
    int d = (int)blocking->inner_idxs[b];
    loops_add(loops, (struct loop){blocking->inner_blks[b], logical[d] * blocked[d], physical});
    blocked[d] *= blocking->inner_blks[b];
    physical *= blocking->inner_blks[b];
  }
  for (int d = 0; d < layout->ndims; d++)
    loops_add(loops,
              (struct loop){layout->dims[d] / blocked[d], logical[d] * blocked[d], blocking->strides[d]});
  loops_merge(loops);
  return true;
}

bool layout_is_same(const dnnl_memory_desc_t *a, const dnnl_memory_desc_t *b) {
  struct loops of_a, of_b;
  if (dnnl_memory_desc_equal(a, b))
    return true;
  if (a->data_type != b->data_type || !loops_of(a, &of_a) || !loops_of(b, &of_b) || of_a.n != of_b.n)
    return false;
  return memcmp(of_a.loop, of_b.loop, (size_t)of_a.n * sizeof of_a.loop[0]) == 0;
}

bool layout_is_dense(const dnnl_memory_desc_t *layout) {
  struct loops loops;
  return loops_of(layout, &loops) &&
         (loops.n == 0 || (loops.n == 1 && loops.loop[0].logical == 1 && loops.loop[0].physical == 1));
}

dnnl_memory_desc_t layout_typed(dnnl_memory_desc_t layout, dnnl_data_type_t type) {
  if (layout.ndims > 0)
    layout.data_type = type;
  return layout;
}

dnnl_memory_desc_t layout_dense(int ndims, const int64_t *dims) {
  dnnl_memory_desc_t layout;
  dnnl_dims_t strides;
  int64_t stride = 1;
  for (int d = ndims - 1; d >= 0; d--) {
    strides[d] = stride;
    stride *= dims[d];
  }
  CHECK(dnnl_memory_desc_init_by_strides(&layout, ndims, dims, dnnl_f32, strides) == dnnl_success);
  return layout;
}

dnnl_memory_desc_t layout_any(int ndims, const int64_t *dims) {
  dnnl_memory_desc_t layout;
  CHECK(dnnl_memory_desc_init_by_tag(&layout, ndims, dims, dnnl_f32, dnnl_format_tag_any) == dnnl_success);
  return layout;
}

dnnl_memory_desc_t layout_blocked(const dnnl_dims_t dims, dnnl_data_type_t type) {
  dnnl_memory_desc_t layout;
  CHECK(dnnl_memory_desc_init_by_tag(&layout, 4, dims, type, dnnl_aBcd16b) == dnnl_success);
  return layout;
}

dnnl_memory_desc_t layout_of_shape(const struct shape *shape) {
  const int64_t one = 1;
  return shape->rank > 0 ? layout_dense(shape->rank, shape->dim) : layout_dense(1, &one);
}

bool layout_blocked_like(const dnnl_memory_desc_t *like, int ndims, const int64_t *dims,
                         dnnl_memory_desc_t *layout) {
  static const dnnl_format_tag_t tags[] = {
      dnnl_aBc16b,  dnnl_aBcd16b, dnnl_aBcde16b, dnnl_aBc8b,   dnnl_aBcd8b,
      dnnl_aBcde8b, dnnl_aBc4b,   dnnl_aBcd4b,   dnnl_aBcde4b,
  };
  dnnl_memory_desc_t known;
  if (like->ndims != ndims || like->ndims < 3)
    return false;
  for (size_t i = 0; i < sizeof tags / sizeof *tags; i++)
    if (dnnl_memory_desc_init_by_tag(&known, ndims, like->dims, like->data_type, tags[i]) == dnnl_success &&
        dnnl_memory_desc_equal(&known, like))
      return dnnl_memory_desc_init_by_tag(layout, ndims, dims, like->data_type, tags[i]) == dnnl_success &&
             layout->padded_dims[1] == dims[1];
  return false;
}
