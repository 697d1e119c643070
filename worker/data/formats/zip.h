/* Zip archives, as far as numpy writes them: members that are stored or deflated, also beyond 4 GB. Nothing
   that a header says is believed before it is checked against the others and the file's size. Source:
   PKWARE's APPNOTE.TXT 6.3.10, 4.3 (records) and 4.5.3 (zip64). */
#ifndef WEIR_WORKER_DATA_FORMATS_ZIP_H
#define WEIR_WORKER_DATA_FORMATS_ZIP_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

struct zip_member {
  const char *name; /* name_length bytes of the archive */
  uint16_t name_length;
  uint16_t flags, method;
  uint32_t crc;                  /* of the content, CRC-32 */
  uint64_t packed_bytes, bytes;  /* in the archive, and of the content */
  uint64_t header_at, packed_at; /* offsets */
};

struct zip {
  const char *path; /* for messages */
  const unsigned char *bytes;
  uint64_t size;
  struct zip_member *members; /* in the order of the archive */
  size_t n_members;
};

/* Reads the directory of bytes[0 .. size), which outlive the zip, and every member's header. Errors: INVALID
   (no archive), CORRUPT (cut short, or records that contradict each other: members that overlap, lie outside,
   or announce what they cannot hold), UNSUPPORTED (several disks, too many members), naming the path. */
int zip_open(const char *path, const unsigned char *bytes, uint64_t size, struct zip *out, struct err *err);
void zip_close(struct zip *zip); /* safe on a zeroed zip */

/* The member of that name. Errors: INVALID naming those that there are, or when there are two; UNSUPPORTED
   when it is encrypted or neither stored nor deflated. */
int zip_find(const struct zip *zip, const char *name, const struct zip_member **out, struct err *err);

/* Unpacks the first bytes of a member to out. *size: the room that out has, then how many bytes came. The
   rest is not looked at: what the member says of itself can be checked before memory is taken for it. Errors:
   CORRUPT. */
int zip_peek(const struct zip *zip, const struct zip_member *member, void *out, size_t *size,
             struct err *err);

/* Unpacks a whole member to out [member->bytes]. Errors: CORRUPT when it is not that long, or its check sum
   differs. */
int zip_read(const struct zip *zip, const struct zip_member *member, unsigned char *out, struct err *err);

/* The content of a stored member, within the archive. Errors: CORRUPT when its check sum differs. */
int zip_view(const struct zip *zip, const struct zip_member *member, const unsigned char **out,
             struct err *err);

static inline bool zip_is_stored(const struct zip_member *member) {
  return member->method == 0;
}

#endif
