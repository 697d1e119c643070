/* Columns of a dataset that are bound and read as a worker's loader does it, for tests of formats and
   transforms: bind_column(), then read_samples() with the form that it gave. */
#ifndef WEIR_TESTS_SUPPORT_WORKER_DATA_FIXTURE_H
#define WEIR_TESTS_SUPPORT_WORKER_DATA_FIXTURE_H

#include "worker/data/dataset.h"

extern const struct data_root everything; /* every file of this machine */

/* An input of the model that a run trains. */
struct training_input {
  const Weir__RunSpec *spec; /* its transforms are applied; it outlives the form */
  const struct value *value;
  const struct label_rule *labels; /* NULL where the input is not the labels */
};

/* dataset_bind() for training. name and errors: as there. The dataset outlives the form. */
int bind_column(const struct dataset *dataset, const char *name, const struct training_input *input,
                struct column_form *form, struct err *err);

/* Reads n samples of the bound column, one after the other: out [n, form->elems] of form->dtype. Random
   transforms draw with seed 1, the first sample at place 0. */
void read_samples(struct dataset *dataset, const struct column_form *form, const uint64_t *indices,
                  uint32_t n, void *out);

#endif
