/* A file of TFRecords. */
#include "client/files/tfrecord.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "common/base/memory.h"

enum { HEAD_BYTES = 12, TAIL_BYTES = 4 };

static int read_records(struct tfrecord_file *file, const struct tfrecord_reader *reader, struct err *err);
static ssize_t record_read(const struct tfrecord_file *file, off_t at, unsigned char *record);
static uint32_t masked(const void *data, size_t size);

int tfrecord_open(struct tfrecord_file *file, const char *path, const struct tfrecord_reader *reader,
                  struct err *err) {
  *file = (struct tfrecord_file){.path = mem_strdup(path)};
  file->fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file->fd < 0)
    return err_errno(err, errno, "cannot write '%s'", path);
  if (flock(file->fd, LOCK_EX | LOCK_NB))
    return errno == EWOULDBLOCK ? err_set(err, ERR_EXISTS, "'%s' is being written by another process", path)
                                : err_errno(err, errno, "cannot lock '%s'", path);
  return read_records(file, reader, err);
}

static int read_records(struct tfrecord_file *file, const struct tfrecord_reader *reader, struct err *err) {
  unsigned char *record = mem_new(HEAD_BYTES + TFRECORD_MAX + TAIL_BYTES);
  off_t at = 0, end = lseek(file->fd, 0, SEEK_END);
  ssize_t size;
  while (!err->code && (size = record_read(file, at, record)) >= 0) {
    at += HEAD_BYTES + size + TAIL_BYTES;
    reader->take(reader->user, record + HEAD_BYTES, (size_t)size, err);
  }
  free(record);
  if (err->code)
    return err_prefix(err, "'%s'", file->path);
  if (at == 0 && end > 0)
    return err_set(
        err, ERR_INVALID,
        "'%s' is no event file, or damaged from its start: remove it, and all of it is written again",
        file->path);
  if (at < end && ftruncate(file->fd, at))
    return err_errno(err, errno, "cannot cut '%s' to its whole records", file->path);
  return 0;
}

/* The size of the record's data, which is behind its head; -1: there is no whole record. */
static ssize_t record_read(const struct tfrecord_file *file, off_t at, unsigned char *record) {
  uint64_t size;
  uint32_t sum;
  if (pread(file->fd, record, HEAD_BYTES, at) != HEAD_BYTES)
    return -1;
  memcpy(&size, record, sizeof size);
  memcpy(&sum, record + sizeof size, sizeof sum);
  if (sum != masked(record, sizeof size) || size > TFRECORD_MAX ||
      pread(file->fd, record + HEAD_BYTES, size + TAIL_BYTES, at + HEAD_BYTES) != (ssize_t)size + TAIL_BYTES)
    return -1;
  memcpy(&sum, record + HEAD_BYTES + size, sizeof sum);
  return sum == masked(record + HEAD_BYTES, size) ? (ssize_t)size : -1;
}

int tfrecord_append(struct tfrecord_file *file, const void *data, size_t size, struct err *err) {
  size_t whole = HEAD_BYTES + size + TAIL_BYTES;
  unsigned char *record = mem_new(whole);
  uint64_t length = size;
  uint32_t head_sum, sum = masked(data, size);
  ssize_t written;
  CHECK(size <= TFRECORD_MAX);
  memcpy(record, &length, sizeof length);
  head_sum = masked(record, sizeof length);
  memcpy(record + sizeof length, &head_sum, sizeof head_sum);
  memcpy(record + HEAD_BYTES, data, size);
  memcpy(record + HEAD_BYTES + size, &sum, sizeof sum);
  do
    written = write(file->fd, record, whole);
  while (written < 0 && errno == EINTR);
  if (written != (ssize_t)whole)
    err_errno(err, written < 0 ? errno : ENOSPC, "cannot write '%s'", file->path);
  free(record);
  return err->code;
}

void tfrecord_close(struct tfrecord_file *file) {
  if (file->path && file->fd >= 0)
    close(file->fd);
  free(file->path);
  *file = (struct tfrecord_file){0};
}

uint32_t tfrecord_crc32c(const void *data, size_t size) {
  const unsigned char *bytes = data;
  uint32_t crc = ~UINT32_C(0);
  for (size_t i = 0; i < size; i++) {
    crc ^= bytes[i];
    for (int bit = 0; bit < 8; bit++)
      crc = crc >> 1 ^ (crc & 1 ? UINT32_C(0x82f63b78) : 0);
  }
  return ~crc;
}

static uint32_t masked(const void *data, size_t size) {
  uint32_t crc = tfrecord_crc32c(data, size);
  return (crc >> 15 | crc << 17) + UINT32_C(0xa282ead8);
}
