/* libFuzzer's entry: `make fuzz`. */
#include "tests/fuzz/onnx_target.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  onnx_target(bytes, size);
  return 0;
}
