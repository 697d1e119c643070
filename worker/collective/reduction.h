/* The reduction of several arrays into one, in the order of the reduction tree over them. */
#ifndef WEIR_WORKER_COLLECTIVE_REDUCTION_H
#define WEIR_WORKER_COLLECTIVE_REDUCTION_H

#include <stddef.h>

#include "worker/collective/collective.h"

/* sources f32[elems] each, 1 to COLLECTIVE_SIZE_MAX of them -> out f32[elems], which may be one of them. */
void reduction_of(enum collective_reduction reduction, const float *const *sources, int n_sources,
                  size_t elems, float *out);

#endif
