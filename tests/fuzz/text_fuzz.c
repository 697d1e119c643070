/* libFuzzer's entry: `make fuzz`. */
#include "tests/fuzz/data_target.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  data_target("text", bytes, size);
  return 0;
}
