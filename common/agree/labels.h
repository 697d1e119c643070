/* Labels of workers, KEY=VALUE: what a machine has, or where it is. A run may require some. */
#ifndef WEIR_COMMON_AGREE_LABELS_H
#define WEIR_COMMON_AGREE_LABELS_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/err.h"
#include "spec.pb-c.h"

/* LABEL_BYTES_MAX: of a key, and of a value. LABELS_TEXT_MAX: what labels_write writes at most. */
enum { LABELS_MAX = 16, LABEL_BYTES_MAX = 63, LABELS_TEXT_MAX = LABELS_MAX * 2 * (LABEL_BYTES_MAX + 1) + 16 };

/* The fields of a message that has labels, or some that are pointed to alike. */
struct labels {
  Weir__Label **list;
  size_t n;
};

/* At most LABELS_MAX, keys and values of letters, digits, '.', '_', '-' and '/', each key once. Errors:
   INVALID, naming the label. */
int labels_check(struct labels labels, struct err *err);

/* Adds "KEY=VALUE", or several with commas between them, to labels that are good. Errors: INVALID, naming the
   label; then they are for labels_free alone. */
int labels_read(struct labels *labels, const char *text, struct err *err);

/* Where there are none yet: those of $WEIR_LABELS, if it is set. Errors: those of labels_read, "WEIR_LABELS:
   ...". */
int labels_read_usual(struct labels *labels, struct err *err);

/* "gpu=h200, zone=a"; empty without any. Of labels that are good. Returns out. */
char *labels_write(struct labels labels, char out[LABELS_TEXT_MAX]);

/* The value that they have for the key; NULL: none. */
const char *labels_find(struct labels labels, const char *key);

/* Whether they have all that is required, with the same values. */
bool labels_include(struct labels labels, struct labels required);

/* On the heap, as protobuf-c keeps them. */
struct labels labels_copy(struct labels labels);
void labels_free(struct labels *labels); /* leaves none */

#endif
