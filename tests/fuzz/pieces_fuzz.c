/* libFuzzer's entry: `make fuzz`. */
#include "tests/fuzz/pieces_target.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  pieces_target(bytes, size);
  return 0;
}
