/* A list for a message. */
#include "model/graph/listing.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MORE_BYTES = 32 }; /* kept free for " and N more" */

void listing_add(struct listing *listing, const char *format, ...) {
  char item[sizeof listing->text];
  const char *comma = listing->count ? ", " : "";
  va_list args;
  size_t length;
  va_start(args, format);
  vsnprintf(item, sizeof item, format, args);
  va_end(args);
  length = strlen(item) + strlen(comma);
  if (listing->shown == listing->count && listing->length + length < sizeof listing->text - MORE_BYTES) {
    snprintf(listing->text + listing->length, sizeof listing->text - listing->length, "%s%s", comma, item);
    listing->length += length;
    listing->shown++;
  }
  listing->count++;
}

const char *listing_text(struct listing *listing) {
  if (listing->shown < listing->count)
    snprintf(listing->text + listing->length, sizeof listing->text - listing->length, " and %d more",
             listing->count - listing->shown);
  return listing->text;
}
