/* The simulated device of the build that a test belongs to (tests/simulation/cuda). */
#ifndef WEIR_TESTS_SUPPORT_FIND_SIMULATION_H
#define WEIR_TESTS_SUPPORT_FIND_SIMULATION_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Sets WEIR_CUDA. False, with the line of a skip: simulated devices were not built. */
bool find_simulation(const char *devices);

#endif
