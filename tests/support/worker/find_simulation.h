/* The simulated device (tests/simulation/cuda) of the build that this test program belongs to. First in
   main(): if (!find_simulation("1")) return 0; */
#ifndef WEIR_TESTS_SUPPORT_WORKER_FIND_SIMULATION_H
#define WEIR_TESTS_SUPPORT_WORKER_FIND_SIMULATION_H

#include <stdbool.h>

/* Makes the program's cuda backend the simulated one, with as many devices as the text says (WEIR_CUDA and
   WEIR_SIMULATED_DEVICES). False: none was built, and a skip was printed in TAP. */
bool find_simulation(const char *devices);

#endif
