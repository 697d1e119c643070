#include "tests/support/worker/data_fixture.h"

const struct data_root everything = {.path = "/"};

int bind_column(const struct dataset *dataset, const char *name, const struct training_input *input,
                struct column_form *form, struct err *err) {
  const Weir__DataSpec *data = input->spec->data;
  struct transforms transforms = {.list = data->transforms, .n = data->n_transforms, .is_training = true};
  struct feed_rule rule = {.input = input->value, .labels = input->labels, .transforms = &transforms};
  return dataset_bind(dataset, name, &rule, form, err);
}

void read_samples(struct dataset *dataset, const struct column_form *form, const uint64_t *indices,
                  uint32_t n, void *out) {
  struct scratch scratch = {0};
  dataset_read(dataset, form, &(struct dataset_read){indices, n, 1, 0, &scratch}, out);
  scratch_fini(&scratch);
}
