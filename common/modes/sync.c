/* Synchronous steps: version s + 1 is made once, from version s and the parts of all microbatches. */
#include "common/modes/mode.h"

const struct mode_def mode_sync = {.name = "sync"};
