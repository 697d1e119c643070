/* The corpora of the fuzzers of data formats, one for each format whose samples are in one file. */
#include "tests/fuzz/data_target.h"
#include "tests/fuzz/replay.h"

static const char *const corpora[] = {"idx", "npy", "npz", "csv", "cifar", "tokens", "text", "image"};

static const char *corpus; /* that is replayed */

static void replay_target(const uint8_t *bytes, size_t size) {
  data_target(corpus, bytes, size);
}

int main(void) {
  int run = 0;
  for (size_t c = 0; c < sizeof corpora / sizeof *corpora; c++) {
    char folder[64];
    int before = run;
    corpus = corpora[c];
    snprintf(folder, sizeof folder, "tests/fuzz/corpus/%s", corpus);
    replay_files(folder, replay_target, &run);
    if (run == before)
      printf("not ok %d - %s has no seeds\n", ++run, folder);
  }
  printf("1..%d\n", run);
  return 0;
}
