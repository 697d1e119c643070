/* A file that is mapped, not copied. If another process shortens a mapped file, or a disk fails, the next
   read of it would end the process by SIGBUS. Here bytes that cannot be read are zeros, and the mapping says
   so. */
#ifndef WEIR_WORKER_DATA_MAPPING_H
#define WEIR_WORKER_DATA_MAPPING_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/err.h"

struct mapping;

/* Maps a file that is not empty, read-only. fd: of it, closed in any case; path: its name. Errors: IO,
   CORRUPT (empty), UNSUPPORTED (too many are mapped); each names it. */
int mapping_open(int fd, const char *path, struct mapping **out, struct err *err);
void mapping_close(struct mapping *mapping); /* nobody reads it any more; NULL is ignored */

const void *mapping_data(const struct mapping *mapping);
size_t mapping_size(const struct mapping *mapping);

/* Whether all that was read so far was in the file; else CORRUPT, naming it. Any thread. */
int mapping_check(const struct mapping *mapping, struct err *err);

#endif
