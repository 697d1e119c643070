/* The table of samplers. */
#include "worker/data/sampler.h"

#include <stdlib.h>

#include "common/base/def_table.h"
#include "common/base/memory.h"

struct sampler {
  const struct sampler_def *def;
  const struct plan *plan;
  void *state; /* the row's */
};

#define SAMPLER(name) extern const struct sampler_def sampler_##name;
#include "worker/data/sampler.def"
#undef SAMPLER

static const struct sampler_def *const defs[] = {
#define SAMPLER(name) &sampler_##name,
#include "worker/data/sampler.def"
#undef SAMPLER
};
static const struct def_table samplers = DEF_TABLE(defs);

int sampler_new(const Weir__DataSpec *data, const struct plan *plan, const struct sampler_labels *labels,
                struct sampler **out, struct err *err) {
  const char *name = data->sampler ? data->sampler : data->shuffle ? "shuffle" : "sequential";
  const struct sampler_def *def = def_find(&samplers, name);
  char known[DEF_NAMES_SIZE];
  void *state = NULL;
  *out = NULL;
  if (!def)
    return err_set(err, ERR_INVALID, "data.sampler: '%.60s' is not known (known: %s)", name,
                   def_names(&samplers, " ", known));
  if (def->prepare && def->prepare(plan, labels, &state, err))
    return err_prefix(err, "data.sampler: '%s'", name);
  *out = mem_new(sizeof **out);
  **out = (struct sampler){def, plan, state};
  return 0;
}

void sampler_free(struct sampler *sampler) {
  if (sampler && sampler->def->release)
    sampler->def->release(sampler->state);
  free(sampler);
}

uint64_t sampler_at(const struct sampler *sampler, uint64_t step, uint32_t position) {
  uint64_t epoch, index;
  plan_place(sampler->plan, step, position, &epoch, &index);
  return plan_train_index(sampler->plan, sampler->def->draw(sampler->plan, sampler->state, epoch, index));
}
