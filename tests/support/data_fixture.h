/* Binding and reading columns as the loader does. */
#ifndef WEIR_TESTS_DATA_FIXTURE_H
#define WEIR_TESTS_DATA_FIXTURE_H

#include "worker/data/dataset.h"

/* For training, by the spec's transforms. */
int bind_column(const struct dataset *dataset, const Weir__RunSpec *spec, const char *name,
                const struct value *input, const struct label_rule *labels, struct column_form *form,
                struct err *err);

void read_samples(struct dataset *dataset, const struct column_form *form, const uint64_t *indices,
                  uint32_t n, void *out);

#endif
