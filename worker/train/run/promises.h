/* What the runs that a worker has loaded will take of this machine's memory. A program touches most of its
   memory only when it computes, so what is free now may have been promised to another run already. */
#ifndef WEIR_WORKER_TRAIN_RUN_PROMISES_H
#define WEIR_WORKER_TRAIN_RUN_PROMISES_H

#include <pthread.h>
#include <stdint.h>

struct promise {
  uint64_t bytes;    /* all that the run takes */
  uint64_t programs; /* of these, by what their backend says, its programs; on devices none */
};

struct promises {
  pthread_mutex_t lock;
  struct promise sum;
};

void promises_init(struct promises *promises);
void promises_fini(struct promises *promises);

/* Returns what may still be promised: `bytes`, of what is free (UINT64_MAX where nothing says), and
   `programs`, of most_bytes, which all programs may take together (0: no bound). Nothing else is promised
   until the thread calls promises_close, which makes the promise. promises NULL, in these and the following:
   no other run is there. */
struct promise promises_open(struct promises *promises, uint64_t most_bytes);
void promises_close(struct promises *promises, const struct promise *promise);

/* The run has let go of it. */
void promises_give_back(struct promises *promises, const struct promise *promise);

/* What is free beyond what was promised and not touched. own_bytes, available_bytes: as of
   common/machine/memory_available.h. */
uint64_t promises_left(uint64_t promised_bytes, uint64_t own_bytes, uint64_t available_bytes);

#endif
