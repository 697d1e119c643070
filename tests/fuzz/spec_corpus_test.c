/* The corpus of the fuzzer of specs. */
#include "tests/fuzz/replay.h"
#include "tests/fuzz/spec_target.h"

int main(void) {
  return replay_folder("tests/fuzz/corpus/spec", spec_target);
}
