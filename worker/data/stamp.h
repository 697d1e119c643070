/* What tells, without reading them, that a source's files are as they were. */
#ifndef WEIR_WORKER_DATA_STAMP_H
#define WEIR_WORKER_DATA_STAMP_H

#include <stdbool.h>

#include "common/base/sha256.h"
#include "spec.pb-c.h"
#include "worker/data/data_root.h"

/* A hash of device, inode, size and times of every file that the source names in the folder. False: that says
   nothing, because the source is a folder of files itself. */
bool stamp_make(const struct data_folder *folder, const Weir__DataSource *source,
                char stamp[SHA256_HEX_SIZE]);

#endif
