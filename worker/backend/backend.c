/* The table of backends, and what every compute thread needs. */
#include "worker/backend/backend.h"

#include <omp.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define BACKEND(name) extern const struct backend_def backend_##name;
#include "worker/backend/backend.def"
#undef BACKEND

static const struct backend_def *const backend_table[] = {
#define BACKEND(name) &backend_##name,
#include "worker/backend/backend.def"
#undef BACKEND
    NULL};

const struct backend_def *backend_find(const char *name) {
  for (int i = 0; backend_table[i]; i++)
    if (strcmp(backend_table[i]->name, name) == 0)
      return backend_table[i];
  return NULL;
}

const struct backend_def *backend_at(int index) {
  return index >= 0 && index < (int)(sizeof backend_table / sizeof *backend_table) ? backend_table[index]
                                                                                   : NULL;
}

bool precision_find(const char *name, enum precision *out) {
  static const char *const names[] = {
      [PRECISION_F32] = "fp32", [PRECISION_TF32] = "tf32", [PRECISION_BF16] = "bf16"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strcmp(names[i], name) == 0) {
      *out = (enum precision)i;
      return true;
    }
  return false;
}

/* Subnormals become zero: they carry no signal and cost a hundred times a normal number's cycles. */
void backend_thread_init(void) {
  omp_set_num_threads(1);
#if defined(__x86_64__)
  _MM_SET_FLUSH_ZERO_MODE(_MM_FLUSH_ZERO_ON);
  _mm_setcsr(_mm_getcsr() | 0x0040); /* denormals-are-zero, in every x86-64 that we run on */
#endif
}
