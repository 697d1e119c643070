/* Results of libm's functions, hashed. Functions whose result is exact or rounded correctly (sqrt, floor,
   rint, fmod) need no row. */
#include "common/agree/libm.h"

#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "common/agree/random.h"
#include "common/base/memory.h"
#include "common/base/sha256.h"

/* A function has one of the four forms. Numbers are drawn between low and high; a power's exponent between -8
   and 8. */
struct row {
  double low, high;
  double (*f64)(double);
  double (*power_f64)(double, double);
  float (*f32)(float);
  float (*power_f32)(float, float);
};

/* What the compiler makes of a sine and a cosine of one number. */
static double sincos_both(double x) {
  double sine, cosine;
  sincos(x, &sine, &cosine);
  return sine - cosine;
}

/* Servers: optimizers, schedules, norms, initial weights that the model computes. Workers: transforms,
   mixing, random draws, reference kernels. Constants of a model are folded by reference kernels on both.
   Searchers: exp, log, log1p, pow, erfc. */
static const struct row rows[] = {
    {-50, 50, .f64 = exp},    {-3, 3, .f64 = expm1},         {0, 1000, .f64 = log},
    {-1, 3, .f64 = log1p},    {-20, 20, .f64 = cos},         {-20, 20, .f64 = sin},
    {0, 4, .power_f64 = pow}, {-50, 50, .f32 = expf},        {-3, 3, .f32 = expm1f},
    {0, 1000, .f32 = logf},   {-1, 3, .f32 = log1pf},        {0, 4, .power_f32 = powf},
    {-20, 20, .f32 = cosf},   {-20, 20, .f32 = sinf},        {-20, 20, .f32 = tanf},
    {-1, 1, .f32 = acosf},    {-1, 1, .f32 = asinf},         {-20, 20, .f32 = atanf},
    {-20, 20, .f32 = coshf},  {-20, 20, .f32 = sinhf},       {-10, 10, .f32 = tanhf},
    {1, 1000, .f32 = acoshf}, {-1000, 1000, .f32 = asinhf},  {-1, 1, .f32 = atanhf},
    {-4, 4, .f32 = erff},     {-20, 20, .f64 = sincos_both}, {-6, 26, .f64 = erfc},
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char hash[SHA256_HEX_SIZE];

static double random_argument(uint64_t key, uint64_t index, double low, double high) {
  return low + (high - low) * ((double)(random_bits(key, index) >> 11) * 0x1p-53);
}

/* results: room for LIBM_DRAWS_F64 doubles. Returns the bytes that the function's results are. */
static size_t row_compute(const struct row *row, uint64_t key, void *results) {
  bool is_f64 = row->f64 || row->power_f64;
  uint64_t draws = is_f64 ? LIBM_DRAWS_F64 : LIBM_DRAWS_F32;
  double *f64 = results;
  float *f32 = results;
  for (uint64_t i = 0; i < draws; i++) {
    double x = random_argument(key, 2 * i, row->low, row->high);
    if (row->f64)
      f64[i] = row->f64(x);
    else if (row->f32)
      f32[i] = row->f32((float)x);
    else if (row->power_f64)
      f64[i] = row->power_f64(x, random_argument(key, 2 * i + 1, -8, 8));
    else
      f32[i] = row->power_f32((float)x, (float)random_argument(key, 2 * i + 1, -8, 8));
  }
  return draws * (is_f64 ? sizeof *f64 : sizeof *f32);
}

static void hash_make(void) {
  struct sha256 *sha = sha256_new();
  void *results = mem_new(LIBM_DRAWS_F64 * sizeof(double));
  for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
    sha256_update(sha, results, row_compute(&rows[r], random_key(0, r, 0, 0), results));
  sha256_finish(sha, hash);
  hash[LIBM_HASH_SIZE - 1] = '\0';
  free(results);
}

const char *libm_hash(void) {
  pthread_once(&once, hash_make);
  return hash;
}
