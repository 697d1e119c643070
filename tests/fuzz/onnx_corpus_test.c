/* The corpus of the fuzzer of models. */
#include "tests/fuzz/onnx_target.h"
#include "tests/fuzz/replay.h"

int main(void) {
  return replay_folder("tests/fuzz/corpus/onnx", onnx_target);
}
