/* A list for a message that names everything at once: "'a' (If), 'b' (Loop) and 12 more". */
#ifndef WEIR_MODEL_GRAPH_LISTING_H
#define WEIR_MODEL_GRAPH_LISTING_H

#include <stddef.h>

/* Begins zeroed. */
struct listing {
  int count; /* of all that were added */
  int shown;
  size_t length;
  char text[1024];
};

void listing_add(struct listing *listing, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Good until the next listing_add, which must not follow. */
const char *listing_text(struct listing *listing);

#endif
