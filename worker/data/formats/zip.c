/* Zip archives: the directory, the headers, and what they hold. */
#include "worker/data/formats/zip.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum {
  METHOD_STORED = 0,
  METHOD_DEFLATED = 8,
  FLAG_ENCRYPTED = 1 << 0,
  FLAG_SIZES_FOLLOW = 1 << 3,                                  /* the local header does not know them */
  FLAGS_KNOWN = FLAG_SIZES_FOLLOW | 1 << 1 | 1 << 2 | 1 << 11, /* how hard it was deflated, UTF-8 names */
  END_BYTES = 22,
  END64_BYTES = 56,
  LOCATOR_BYTES = 20,
  ENTRY_BYTES = 46,
  HEADER_BYTES = 30,
  COMMENT_BYTES_MAX = UINT16_MAX,
  EXTRA_ZIP64 = 1,
  DEFLATE_RATIO_MAX = 1032, /* a match of 258 bytes takes two bits at least */
  MEMBERS_MAX = 1 << 14,    /* each takes memory, and a source has at most 16 columns */
  CHUNK_BYTES = 1 << 20,
};

/* Where the directory says that it is. */
struct directory {
  uint64_t n, size, at;
};

static uint16_t read_u16(const unsigned char *at) {
  return (uint16_t)(at[0] | at[1] << 8);
}

static uint32_t read_u32(const unsigned char *at) {
  return read_u16(at) | (uint32_t)read_u16(at + 2) << 16;
}

static uint64_t read_u64(const unsigned char *at) {
  return read_u32(at) | (uint64_t)read_u32(at + 4) << 32;
}

static bool has_signature(const unsigned char *at, const char last[2]) {
  return at[0] == 'P' && at[1] == 'K' && at[2] == last[0] && at[3] == last[1];
}

/* Whether [at, at + n) lies in [0, end). */
static bool is_within(uint64_t at, uint64_t n, uint64_t end) {
  return at <= end && n <= end - at;
}

static int fail_corrupt(const struct zip *zip, const char *what, struct err *err) {
  return err_set(err, ERR_CORRUPT, "%s: damaged zip archive: %s", zip->path, what);
}

static int fail_member(const struct zip *zip, const struct zip_member *member, const char *what,
                       struct err *err) {
  return err_set(err, ERR_CORRUPT, "%s: damaged zip archive: its member %td %s", zip->path,
                 member - zip->members + 1, what);
}

/* The record that ends the archive: a comment of exactly the bytes behind it may follow. */
static const unsigned char *find_end(const struct zip *zip) {
  for (uint64_t comment = 0; comment <= COMMENT_BYTES_MAX && comment + END_BYTES <= zip->size; comment++) {
    const unsigned char *at = zip->bytes + zip->size - END_BYTES - comment;
    if (has_signature(at, "\5\6") && read_u16(at + 20) == comment)
      return at;
  }
  return NULL;
}

/* Beyond 65535 members or 4 GB another record, before the last one, has the true numbers. */
static int read_end64(const struct zip *zip, uint64_t end, struct directory *directory, struct err *err) {
  const unsigned char *locator = zip->bytes + end - LOCATOR_BYTES, *record;
  uint64_t at = read_u64(locator + 8);
  if (!is_within(at, END64_BYTES, end - LOCATOR_BYTES) || !has_signature(zip->bytes + at, "\6\6"))
    return fail_corrupt(zip, "its zip64 record is not where it should be", err);
  record = zip->bytes + at;
  if (read_u32(record + 16) || read_u32(record + 20) || read_u64(record + 24) != read_u64(record + 32))
    return err_set(err, ERR_UNSUPPORTED, "%s: is one of several parts of an archive", zip->path);
  *directory = (struct directory){read_u64(record + 32), read_u64(record + 40), read_u64(record + 48)};
  return is_within(directory->at, directory->size, at) && directory->at + directory->size == at
             ? 0
             : fail_corrupt(zip, "its directory is not where it should be", err);
}

static int read_end(const struct zip *zip, struct directory *directory, struct err *err) {
  const unsigned char *record = find_end(zip);
  uint64_t end;
  if (!record && (zip->size < 4 || zip->bytes[0] != 'P' || zip->bytes[1] != 'K'))
    return err_set(err, ERR_INVALID, "%s: is not a zip archive, as of numpy.savez", zip->path);
  if (!record)
    return fail_corrupt(zip, "cut short: it has no directory", err);
  end = (uint64_t)(record - zip->bytes);
  if (end >= LOCATOR_BYTES && has_signature(record - LOCATOR_BYTES, "\6\7"))
    return read_end64(zip, end, directory, err);
  if (read_u16(record + 4) || read_u16(record + 6) || read_u16(record + 8) != read_u16(record + 10))
    return err_set(err, ERR_UNSUPPORTED, "%s: is one of several parts of an archive", zip->path);
  *directory = (struct directory){read_u16(record + 10), read_u32(record + 12), read_u32(record + 16)};
  return directory->at + directory->size == end
             ? 0
             : fail_corrupt(zip, "its directory is not where it should be", err);
}

/* Replaces those of n fields that say "too large for 32 bits" by their 64 bits in the extra field. */
static bool fields_widen(const unsigned char *extra, uint32_t size, uint64_t *const *fields, int n) {
  while (size >= 4) {
    uint32_t length = read_u16(extra + 2);
    if (length > size - 4)
      return false;
    if (read_u16(extra) == EXTRA_ZIP64) {
      const unsigned char *at = extra + 4;
      for (int i = 0; i < n; i++) {
        if (*fields[i] != UINT32_MAX)
          continue;
        if (length < 8)
          return false;
        *fields[i] = read_u64(at);
        at += 8;
        length -= 8;
      }
      return true;
    }
    extra += 4 + length;
    size -= 4 + length;
  }
  for (int i = 0; i < n; i++)
    if (*fields[i] == UINT32_MAX)
      return false;
  return true;
}

/* The entry at *at of the directory, which ends at end. */
static int read_entry(const struct zip *zip, uint64_t end, uint64_t *at, struct zip_member *member,
                      struct err *err) {
  const unsigned char *entry = zip->bytes + *at;
  uint64_t *const wide[] = {&member->bytes, &member->packed_bytes, &member->header_at};
  uint64_t length;
  if (!is_within(*at, ENTRY_BYTES, end) || !has_signature(entry, "\1\2"))
    return fail_corrupt(zip, "an entry of its directory is none", err);
  *member = (struct zip_member){.flags = read_u16(entry + 8),
                                .method = read_u16(entry + 10),
                                .crc = read_u32(entry + 16),
                                .packed_bytes = read_u32(entry + 20),
                                .bytes = read_u32(entry + 24),
                                .name_length = read_u16(entry + 28),
                                .header_at = read_u32(entry + 42)};
  length = (uint64_t)member->name_length + read_u16(entry + 30) + read_u16(entry + 32);
  if (!is_within(*at + ENTRY_BYTES, length, end))
    return fail_corrupt(zip, "an entry of its directory is cut short", err);
  member->name = (const char *)entry + ENTRY_BYTES;
  if (!fields_widen(entry + ENTRY_BYTES + member->name_length, read_u16(entry + 30), wide, 3))
    return fail_member(zip, member, "has a zip64 field that is cut short", err);
  *at += ENTRY_BYTES + length;
  return 0;
}

/* The header before a member's content says the same as the directory. */
static int check_header(const struct zip *zip, uint64_t end, struct zip_member *member, struct err *err) {
  const unsigned char *header = zip->bytes + member->header_at;
  uint64_t packed = 0, bytes = 0, *const wide[] = {&bytes, &packed};
  uint32_t name_length, extra_length;
  if (!is_within(member->header_at, HEADER_BYTES, end) || !has_signature(header, "\3\4"))
    return fail_member(zip, member, "has no header where the directory says", err);
  name_length = read_u16(header + 26), extra_length = read_u16(header + 28);
  if (!is_within(member->header_at + HEADER_BYTES, (uint64_t)name_length + extra_length, end))
    return fail_member(zip, member, "has a header that is cut short", err);
  if (read_u16(header + 6) != member->flags || read_u16(header + 8) != member->method ||
      name_length != member->name_length || memcmp(header + HEADER_BYTES, member->name, name_length) != 0)
    return fail_member(zip, member, "has a header that contradicts the directory", err);
  member->packed_at = member->header_at + HEADER_BYTES + name_length + extra_length;
  packed = read_u32(header + 18), bytes = read_u32(header + 22);
  if (!(member->flags & FLAG_SIZES_FOLLOW) &&
      (!fields_widen(header + HEADER_BYTES + name_length, extra_length, wide, 2) ||
       packed != member->packed_bytes || bytes != member->bytes || read_u32(header + 14) != member->crc))
    return fail_member(zip, member, "has a header that contradicts the directory", err);
  if (!is_within(member->packed_at, member->packed_bytes, end))
    return fail_member(zip, member, "goes on beyond the archive", err);
  if (member->method == METHOD_STORED
          ? member->bytes != member->packed_bytes
          : member->method == METHOD_DEFLATED && member->bytes / DEFLATE_RATIO_MAX > member->packed_bytes)
    return fail_member(zip, member, "announces more than it can hold", err);
  return 0;
}

static int compare_places(const void *a, const void *b) {
  const struct zip_member *left = a, *right = b;
  return (left->header_at > right->header_at) - (left->header_at < right->header_at);
}

static int read_members(struct zip *zip, const struct directory *directory, struct err *err) {
  uint64_t end = directory->at + directory->size, at = directory->at;
  if (directory->n > MEMBERS_MAX)
    return err_set(err, ERR_UNSUPPORTED, "%s: has %llu members; at most %d are read", zip->path,
                   (unsigned long long)directory->n, MEMBERS_MAX);
  if (directory->n > directory->size / ENTRY_BYTES)
    return fail_corrupt(zip, "its directory is too small for its members", err);
  zip->members = calloc((size_t)directory->n + 1, sizeof *zip->members);
  if (!zip->members)
    return err_set(err, ERR_NO_MEMORY, "%s: no memory for its directory", zip->path);
  for (; zip->n_members < directory->n; zip->n_members++) {
    struct zip_member *member = &zip->members[zip->n_members];
    if (read_entry(zip, end, &at, member, err) || check_header(zip, directory->at, member, err))
      return err->code;
  }
  if (at != end)
    return fail_corrupt(zip, "its directory is larger than its members need", err);
  qsort(zip->members, zip->n_members, sizeof *zip->members, compare_places);
  for (size_t i = 1; i < zip->n_members; i++)
    if (zip->members[i - 1].packed_at + zip->members[i - 1].packed_bytes > zip->members[i].header_at)
      return fail_member(zip, &zip->members[i], "overlaps another member", err);
  return 0;
}

int zip_open(const char *path, const unsigned char *bytes, uint64_t size, struct zip *out, struct err *err) {
  struct directory directory = {0};
  *out = (struct zip){.path = path, .bytes = bytes, .size = size};
  if (read_end(out, &directory, err) || read_members(out, &directory, err)) {
    zip_close(out);
    return err->code;
  }
  return 0;
}

void zip_close(struct zip *zip) {
  free(zip->members);
  *zip = (struct zip){0};
}

static int fail_absent(const struct zip *zip, const char *name, struct err *err) {
  return err_set(err, ERR_INVALID, "%s: none of its %llu members is '%.200s'", zip->path,
                 (unsigned long long)zip->n_members, name);
}

int zip_find(const struct zip *zip, const char *name, const struct zip_member **out, struct err *err) {
  *out = NULL;
  for (size_t i = 0; i < zip->n_members; i++) {
    const struct zip_member *member = &zip->members[i];
    if (member->name_length != strlen(name) || memcmp(member->name, name, member->name_length) != 0)
      continue;
    if (*out)
      return err_set(err, ERR_INVALID, "%s: has two members '%.200s'", zip->path, name);
    *out = member;
  }
  if (!*out)
    return fail_absent(zip, name, err);
  if ((*out)->flags & FLAG_ENCRYPTED)
    return err_set(err, ERR_UNSUPPORTED, "%s: '%.200s' is encrypted", zip->path, name);
  if (((*out)->flags & ~FLAGS_KNOWN) ||
      ((*out)->method != METHOD_STORED && (*out)->method != METHOD_DEFLATED))
    return err_set(err, ERR_UNSUPPORTED,
                   "%s: '%.200s' is packed in another way than stored and deflated, which are read",
                   zip->path, name);
  return 0;
}

/* Where a member is inflated to. */
struct inflated {
  unsigned char *out;
  uint64_t size; /* the room there */
  uint64_t got;  /* bytes that came */
  bool is_end;   /* the deflated data ended there, and with its input */
};

static int inflate_member(const struct zip *zip, const struct zip_member *member, struct inflated *inflated,
                          struct err *err) {
  z_stream stream = {0};
  uint64_t taken = 0;
  int code = Z_OK;
  inflated->got = 0;
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK)
    return err_set(err, ERR_NO_MEMORY, "%s: no memory to inflate", zip->path);
  while (code == Z_OK) {
    uint64_t room = inflated->size - inflated->got, rest = member->packed_bytes - taken;
    stream.next_in = (unsigned char *)zip->bytes + member->packed_at + taken; /* zlib only reads it */
    stream.avail_in = rest < CHUNK_BYTES ? (unsigned)rest : CHUNK_BYTES;
    stream.next_out = inflated->out + inflated->got;
    stream.avail_out = room < CHUNK_BYTES ? (unsigned)room : CHUNK_BYTES;
    code = inflate(&stream, Z_NO_FLUSH);
    taken = (uint64_t)(stream.next_in - zip->bytes) - member->packed_at;
    inflated->got = (uint64_t)(stream.next_out - inflated->out);
  }
  inflateEnd(&stream);
  inflated->is_end = code == Z_STREAM_END && taken == member->packed_bytes;
  if (code != Z_STREAM_END && code != Z_BUF_ERROR)
    return fail_member(zip, member, "cannot be inflated", err);
  return 0;
}

int zip_peek(const struct zip *zip, const struct zip_member *member, void *out, size_t *size,
             struct err *err) {
  struct inflated inflated = {.out = out, .size = member->bytes < *size ? member->bytes : *size};
  if (!zip_is_stored(member)) {
    int code = inflate_member(zip, member, &inflated, err);
    *size = inflated.got;
    return code;
  }
  memcpy(out, zip->bytes + member->packed_at, inflated.size);
  *size = inflated.size;
  return 0;
}

static int check_sum(const struct zip *zip, const struct zip_member *member, const unsigned char *content,
                     struct err *err) {
  if (crc32_z(crc32_z(0, NULL, 0), content, member->bytes) == member->crc)
    return 0;
  return fail_member(zip, member, "has another check sum than its content", err);
}

int zip_read(const struct zip *zip, const struct zip_member *member, unsigned char *out, struct err *err) {
  struct inflated inflated = {.out = out, .size = member->bytes};
  if (zip_is_stored(member))
    memcpy(out, zip->bytes + member->packed_at, member->bytes);
  else if (inflate_member(zip, member, &inflated, err))
    return err->code;
  else if (inflated.got != member->bytes || !inflated.is_end)
    return fail_member(zip, member, "does not inflate to the size that it announces", err);
  return check_sum(zip, member, out, err);
}

int zip_view(const struct zip *zip, const struct zip_member *member, const unsigned char **out,
             struct err *err) {
  CHECK(zip_is_stored(member));
  *out = zip->bytes + member->packed_at;
  return check_sum(zip, member, *out, err);
}
