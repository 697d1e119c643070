/* weighted: every class as often as every other, whatever their sizes, with replacement: the distribution of
   torch.utils.data.WeightedRandomSampler with the weights 1 / (samples of the class). A class is drawn, then
   one of its samples: two draws, where weights would need a search. */
#include <stdlib.h>

#include "common/agree/random.h"
#include "common/base/memory.h"
#include "worker/data/sampler.h"

/* The fourth counter of a draw's key: no node of a model, whose draws have keys of the same seed, too. */
static const uint64_t STREAM_WEIGHTED = UINT64_MAX - 3;

/* The train samples of each class that has any. */
struct classes {
  uint64_t *members; /* those of the first such class, then of the next */
  uint64_t *begins;  /* [n + 1] where each class begins in members */
  uint64_t n;
};

static void weighted_release(void *state) {
  struct classes *classes = state;
  if (!classes)
    return;
  free(classes->members);
  free(classes->begins);
  free(classes);
}

static int64_t label_of(const struct plan *plan, const struct sampler_labels *labels, uint64_t sample) {
  return column_integer(labels->column, plan_train_index(plan, sample), 0);
}

/* Sorts by counting. places [classes + 1], zeroed: then where each class begins. */
static void classes_gather(const struct plan *plan, const struct sampler_labels *labels, uint64_t *places,
                           struct classes *out) {
  uint64_t n_classes = (uint64_t)labels->rule->classes;
  for (uint64_t s = 0; s < plan->train_samples; s++) {
    int64_t label = label_of(plan, labels, s);
    if (label_is_class(labels->rule, label))
      places[label + 1]++;
  }
  for (uint64_t c = 0; c < n_classes; c++) {
    if (places[c + 1])
      out->begins[out->n++] = places[c];
    places[c + 1] += places[c];
  }
  out->begins[out->n] = places[n_classes];
  for (uint64_t s = 0; s < plan->train_samples; s++) {
    int64_t label = label_of(plan, labels, s);
    if (label_is_class(labels->rule, label))
      out->members[places[label]++] = s;
  }
}

static int check_labels(const struct sampler_labels *labels, struct err *err) {
  if (!labels->column || labels->rule->classes == 0)
    return err_set(err, ERR_INVALID, "balances classes; the labels of this loss are none");
  if (shape_elems(&labels->column->sample) == 1)
    return 0;
  return err_set(err, ERR_INVALID, "wants one label a sample; column '%s' has %lld", labels->column->name,
                 (long long)shape_elems(&labels->column->sample));
}

static int weighted_prepare(const struct plan *plan, const struct sampler_labels *labels, void **state,
                            struct err *err) {
  struct classes *classes;
  uint64_t *places, n_places;
  int code = 0;
  if (check_labels(labels, err))
    return err->code;
  n_places = (uint64_t)labels->rule->classes + 1;
  classes = mem_new(sizeof *classes);
  classes->members = malloc(plan->train_samples * sizeof *classes->members);
  classes->begins = calloc(n_places, sizeof *classes->begins);
  places = calloc(n_places, sizeof *places);
  if (!classes->members || !classes->begins || !places)
    code = err_set(err, ERR_NO_MEMORY, "no memory for %llu samples", (unsigned long long)plan->train_samples);
  else
    classes_gather(plan, labels, places, classes);
  if (!code && classes->n == 0)
    code =
        err_set(err, ERR_INVALID, "no sample of column '%s' has a class that counts", labels->column->name);
  free(places);
  if (code)
    weighted_release(classes);
  else
    *state = classes;
  return code;
}

/* Uniform in [0, n), but for 1 / 2^64. */
static uint64_t random_below(uint64_t bits, uint64_t n) {
  return (uint64_t)((unsigned __int128)bits * n >> 64);
}

static uint64_t weighted_draw(const struct plan *plan, const void *state, uint64_t epoch, uint64_t index) {
  const struct classes *classes = state;
  uint64_t key = random_key(plan->seed, epoch, 0, STREAM_WEIGHTED);
  const uint64_t *begin = classes->begins + random_below(random_bits(key, 2 * index), classes->n);
  return classes->members[begin[0] + random_below(random_bits(key, 2 * index + 1), begin[1] - begin[0])];
}

const struct sampler_def sampler_weighted = {
    .name = "weighted",
    .prepare = weighted_prepare,
    .draw = weighted_draw,
    .release = weighted_release,
};
