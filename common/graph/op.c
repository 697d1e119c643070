/* The table of operators, from common/ops/op.def: one row OP(NAME) for each const struct op_def op_NAME. */
#include "common/graph/op.h"

#include <string.h>

#define OP(name) extern const struct op_def op_##name;
#include "common/ops/op.def"
#undef OP

static const struct op_def *const op_table[] = {
#define OP(name) &op_##name,
#include "common/ops/op.def"
#undef OP
    NULL};

const struct op_def *op_find(const char *domain, const char *name) {
  for (int i = 0; op_table[i]; i++)
    if (strcmp(op_table[i]->name, name) == 0 && strcmp(op_table[i]->domain, domain) == 0)
      return op_table[i];
  return NULL;
}

const struct op_def *op_at(int index) {
  return index >= 0 && index < (int)(sizeof op_table / sizeof *op_table) ? op_table[index] : NULL;
}
