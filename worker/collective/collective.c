/* The table of collectives. */
#include "worker/collective/collective.h"

#include "common/base/def_table.h"

#define COLLECTIVE(name) extern const struct collective_def collective_##name;
#include "worker/collective/collective.def"
#undef COLLECTIVE

static const struct collective_def *const defs[] = {
#define COLLECTIVE(name) &collective_##name,
#include "worker/collective/collective.def"
#undef COLLECTIVE
};
static const struct def_table collectives = DEF_TABLE(defs);

const struct collective_def *collective_at(int index) {
  return def_at(&collectives, index);
}

const struct collective_def *collective_find(const char *name) {
  return def_find(&collectives, name);
}

int collective_run(const struct collective_def *def, struct collective *collective,
                   const struct collective_call *call, struct err *err) {
  struct collective_work *work;
  return def->start(collective, call, &work, err) ? (int)err->code : def->wait(work, err);
}
