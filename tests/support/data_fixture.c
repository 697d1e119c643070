#include "tests/support/data_fixture.h"

int bind_column(const struct dataset *dataset, const Weir__RunSpec *spec, const char *name,
                const struct value *input, const struct label_rule *labels, struct column_form *form,
                struct err *err) {
  struct transforms transforms = {
      .list = spec->data->transforms, .n = spec->data->n_transforms, .is_training = true};
  struct feed_rule rule = {.input = input, .labels = labels, .transforms = &transforms};
  return dataset_bind(dataset, name, &rule, form, err);
}

void read_samples(struct dataset *dataset, const struct column_form *form, const uint64_t *indices,
                  uint32_t n, void *out) {
  struct scratch scratch = {0};
  dataset_read(dataset, form, &(struct dataset_read){indices, n, 1, 0, &scratch}, out);
  scratch_fini(&scratch);
}
