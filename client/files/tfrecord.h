/* A file of TFRecords, as TensorBoard reads them: each is its length (u64), a checksum of that, its bytes and
   a checksum of these (u32, CRC-32C, masked), little-endian. */
#ifndef WEIR_CLIENT_FILES_TFRECORD_H
#define WEIR_CLIENT_FILES_TFRECORD_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

enum { TFRECORD_MAX = 1 << 20 /* bytes of a record */ };

struct tfrecord_file {
  char *path;
  int fd;
};

/* Gets each record that a file has. Errors end the reading. */
struct tfrecord_reader {
  int (*take)(void *user, const void *data, size_t size, struct err *err);
  void *user;
};

/* Opens the file for appending, or makes it. The reader gets its whole records in order; what is behind the
   last of them, as an append leaves it that was cut short, is removed. Errors: IO; EXISTS where another
   process has it open so; INVALID for a file with no whole record, which is left alone; those of take. close
   is due after an error, too. */
int tfrecord_open(struct tfrecord_file *file, const char *path, const struct tfrecord_reader *reader,
                  struct err *err);
/* Appends one record of at most TFRECORD_MAX bytes, in one write. Errors: IO. */
int tfrecord_append(struct tfrecord_file *file, const void *data, size_t size, struct err *err);
void tfrecord_close(struct tfrecord_file *file); /* safe on a zeroed one */

/* CRC-32C (Castagnoli; RFC 3720, appendix B.4). */
uint32_t tfrecord_crc32c(const void *data, size_t size);

#endif
