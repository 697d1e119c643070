#include "tests/support/worker/find_simulation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool find_simulation(const char *devices) {
  char self[4096];
  ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
  char *tests;
  self[length > 0 ? length : 0] = '\0';
  tests = strstr(self, "/tests/unit/");
  if (tests) {
    snprintf(tests, sizeof self - (size_t)(tests - self), "/simulation/weir-cuda.so");
    setenv("WEIR_CUDA", self, 1);
    setenv("WEIR_SIMULATED_DEVICES", devices, 1);
    if (access(self, F_OK) == 0)
      return true;
  }
  printf("1..1\nok 1 - simulated device # SKIP there is none: CUDA's headers are missing\n");
  return false;
}
