/* A map from names to value indices, for loading: a file may hold a million names. */
#ifndef WEIR_MODEL_GRAPH_NAMES_H
#define WEIR_MODEL_GRAPH_NAMES_H

#include <stdbool.h>

struct names {
  struct names_slot *slots;
  int capacity, count;
};

void names_init(struct names *names);
void names_fini(struct names *names);

/* Remembers name (not copied: outlives the map) -> index. False if the name is there already. */
bool names_add(struct names *names, const char *name, int index);
int names_find(const struct names *names, const char *name); /* -1 if it is not there */

#endif
