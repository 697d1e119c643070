/* Runs that a worker has loaded and does not compute. */
#include "server/coordinator/state/loaded.h"

#include <string.h>

static int find(const struct loaded *loaded, const struct run *run) {
  int at = 0;
  while (at < loaded->n && loaded->runs[at] != run)
    at++;
  return at;
}

void loaded_add(struct loaded *loaded, const struct run *run) {
  loaded_remove(loaded, run);
  loaded->n -= loaded->n == LOADED_MAX;
  memmove(loaded->runs + 1, loaded->runs, (size_t)loaded->n * sizeof(const struct run *));
  loaded->runs[0] = run;
  loaded->n++;
}

void loaded_remove(struct loaded *loaded, const struct run *run) {
  int at = find(loaded, run);
  if (at == loaded->n)
    return;
  loaded->n--;
  memmove(loaded->runs + at, loaded->runs + at + 1, (size_t)(loaded->n - at) * sizeof(const struct run *));
}

bool loaded_has(const struct loaded *loaded, const struct run *run) {
  return find(loaded, run) < loaded->n;
}
