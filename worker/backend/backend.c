/* The table of backends, and what every compute thread needs. */
#include "worker/backend/backend.h"

#include <omp.h>
#include <string.h>

#include "common/agree/float_setting.h"
#include "common/base/def_table.h"

#define BACKEND(name) extern const struct backend_def backend_##name;
#include "worker/backend/backend.def"
#undef BACKEND

static const struct backend_def *const defs[] = {
#define BACKEND(name) &backend_##name,
#include "worker/backend/backend.def"
#undef BACKEND
};
static const struct def_table backends = DEF_TABLE(defs);

const struct backend_def *backend_find(const char *name) {
  return def_find(&backends, name);
}

const struct backend_def *backend_at(int index) {
  return def_at(&backends, index);
}

bool precision_find(const char *name, enum precision *out) {
  static const char *const names[] = {[PRECISION_F32] = "fp32",
                                      [PRECISION_TF32] = "tf32",
                                      [PRECISION_BF16] = "bf16",
                                      [PRECISION_F32_FAST] = "fp32-fast"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strcmp(names[i], name) == 0) {
      *out = (enum precision)i;
      return true;
    }
  return false;
}

int backend_check_precision(const struct backend_def *backend, enum precision precision, struct err *err) {
  if (precision == PRECISION_F32 || precision == PRECISION_F32_FAST || !backend->check_precision)
    return ERR_OK;
  return backend->check_precision(precision, err);
}

int backend_thread_init(struct err *err) {
  omp_set_num_threads(1);
  return float_setting_check("a library that this process has loaded", err);
}
