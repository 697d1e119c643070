/* Random numbers of a beta distribution, from counters. */
#ifndef WEIR_WORKER_DATA_RANDOM_BETA_H
#define WEIR_WORKER_DATA_RANDOM_BETA_H

#include <stdint.h>

/* In [0, 1], of Beta(a, b): x / (x + y) of x from Gamma(a) and y from Gamma(b), which stay logarithms, so
   that shapes near 0 do not give 0 / 0 (Marsaglia and Tsang, "A simple method for generating gamma
   variables", 2000). a, b: above 0, below 1e38. key: a stream of its own. */
double random_beta(uint64_t key, double a, double b);

#endif
