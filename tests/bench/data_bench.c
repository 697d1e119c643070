/* Reading data.train of a spec by one thread: `data_bench SPEC TYPE SHAPE SAMPLES`, as `data_bench run.yaml
   f32 3,224,224 1000`, the input that the samples are for. Prints samples per second of CPU time, the best of
   three rounds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/agree/float_setting.h"
#include "common/agree/random.h"
#include "common/agree/spec.h"
#include "worker/data/dataset.h"

enum { BATCH = 64, ROUNDS = 3 };

static double thread_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static struct value parse_input(const char *type, char *dims) {
  struct value input = {
      .name = "input", .dtype = strcmp(type, "i64") == 0 ? DTYPE_I64 : DTYPE_F32, .shape = {1, {BATCH}}};
  for (char *dim = strtok(dims, ","); dim; dim = strtok(NULL, ","))
    input.shape.dim[input.shape.rank++] = atoll(dim);
  return input;
}

/* Batches of drawn samples, as a shuffled epoch has them. */
static double measure(struct dataset *dataset, const struct column_form *form, uint64_t samples) {
  struct scratch scratch = {0};
  uint64_t indices[BATCH], n = dataset_samples(dataset);
  void *out = mem_new(BATCH * (size_t)form->elems * dtype_size(form->dtype));
  double begin = thread_seconds(), seconds;
  for (uint64_t place = 0; place < samples; place += BATCH) {
    struct dataset_read read = {indices, BATCH, 1, place, &scratch};
    for (uint64_t i = 0; i < BATCH; i++)
      indices[i] = random_permute(1, (place + i) % n, n);
    dataset_read(dataset, form, &read, out);
  }
  seconds = thread_seconds() - begin;
  free(out);
  scratch_fini(&scratch);
  return (double)((samples + BATCH - 1) / BATCH * BATCH) / seconds;
}

static int run(const char *path, const struct value *input, uint64_t samples, struct err *err) {
  Weir__RunSpec *spec = NULL;
  struct dataset *dataset = NULL;
  struct column_form form;
  double best = 0;
  if (spec_read_file(path, &spec, err) || spec_check(spec, err) ||
      dataset_open(spec, spec->data->train, &(struct data_root){.path = "/"}, &dataset, err))
    goto out;
  struct transforms transforms = {
      .list = spec->data->transforms, .n = spec->data->n_transforms, .is_training = true};
  if (dataset_bind(dataset, "", &(struct feed_rule){.input = input, .transforms = &transforms}, &form, err))
    goto out;
  for (int r = 0; r < ROUNDS; r++) {
    double rate = measure(dataset, &form, samples);
    best = rate > best ? rate : best;
  }
  if (!dataset_check(dataset, err))
    printf("%.1f\n", best);
out:
  dataset_close(dataset);
  spec_free(spec);
  return err->code;
}

int main(int argc, char **argv) {
  float_setting_apply();
  struct err err = ERR_NONE;
  struct value input;
  if (argc != 5) {
    fprintf(stderr, "usage: data_bench SPEC f32|i64 SHAPE SAMPLES\n");
    return 2;
  }
  input = parse_input(argv[2], argv[3]);
  if (run(argv[1], &input, strtoull(argv[4], NULL, 10), &err)) {
    fprintf(stderr, "data_bench: %s\n", err.text);
    return 1;
  }
  return 0;
}
