/* The table of collectives. */
#include "worker/collective/collective.h"

#include <string.h>

#define COLLECTIVE(name) extern const struct collective_def collective_##name;
#include "worker/collective/collective.def"
#undef COLLECTIVE

static const struct collective_def *const table[] = {
#define COLLECTIVE(name) &collective_##name,
#include "worker/collective/collective.def"
#undef COLLECTIVE
};

enum { TABLE_SIZE = sizeof table / sizeof *table };

const struct collective_def *collective_at(int index) {
  return index >= 0 && index < TABLE_SIZE ? table[index] : NULL;
}

const struct collective_def *collective_find(const char *name) {
  for (int i = 0; i < TABLE_SIZE; i++)
    if (strcmp(table[i]->name, name) == 0)
      return table[i];
  return NULL;
}

int collective_run(const struct collective_def *def, struct collective *collective,
                   const struct collective_call *call, struct err *err) {
  struct collective_work *work;
  return def->start(collective, call, &work, err) ? (int)err->code : def->wait(work, err);
}
