/* The corpus of the fuzzer of messages about pieces. */
#include "tests/fuzz/pieces_target.h"
#include "tests/fuzz/replay.h"

int main(void) {
  return replay_folder("tests/fuzz/corpus/pieces", pieces_target);
}
