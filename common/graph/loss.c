/* The table of losses. */
#include "common/graph/loss.h"

#include <string.h>

#define LOSS(name) extern const struct loss_def loss_##name;
#include "common/graph/loss.def"
#undef LOSS

static const struct loss_def *const loss_table[] = {
#define LOSS(name) &loss_##name,
#include "common/graph/loss.def"
#undef LOSS
    NULL};

const struct loss_def *loss_find(const char *name) {
  for (int i = 0; loss_table[i]; i++)
    if (strcmp(loss_table[i]->name, name) == 0)
      return loss_table[i];
  return NULL;
}

const char *loss_names(void) {
#define LOSS(name) ", " #name
  static const char names[] =
#include "common/graph/loss.def"
      ;
#undef LOSS
  return names + 2;
}
