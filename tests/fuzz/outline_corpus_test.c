/* The corpus of the fuzzer of outlines. */
#include "tests/fuzz/outline_target.h"
#include "tests/fuzz/replay.h"

int main(void) {
  return replay_folder("tests/fuzz/corpus/outline", outline_target);
}
