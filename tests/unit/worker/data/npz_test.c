/* Archives of numpy.savez as columns: what numpy wrote, and every way in which an archive can lie. The files
   of numpy are the seeds that tests/fuzz/make_data_corpus.py made. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "common/agree/spec.h"
#include "tests/support/worker/data_fixture.h"
#include "tests/support/worker/format_fixture.h"
#include "worker/data/formats/zip.h"

#define NPY_2 "\x93NUMPY\1\0\x3b\0{'descr': '<i4', 'fortran_order': False, 'shape': (2,), } \n"
enum { ARRAY_BYTES = sizeof NPY_2 - 1 + 8 };

/* An archive of two members x.npy and y.npy: [7, -1] and [3, 4], with every field where a test can reach it.
 */
struct archive {
  unsigned char bytes[1024];
  size_t size, header[2], entry[2], end;
};

static void put(struct archive *archive, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; i++)
    archive->bytes[archive->size++] = (unsigned char)(i < 8 ? value >> 8 * i : 0);
}

static void set(struct archive *archive, size_t at, uint64_t value, int bytes) {
  size_t size = archive->size;
  archive->size = at;
  put(archive, value, bytes);
  archive->size = size;
}

static void put_bytes(struct archive *archive, const void *bytes, size_t n) {
  memcpy(archive->bytes + archive->size, bytes, n);
  archive->size += n;
}

static void put_fields(struct archive *archive, int method, const unsigned char *array, size_t packed) {
  put(archive, 20, 2);
  put(archive, 0, 2); /* flags */
  put(archive, (uint64_t)method, 2);
  put(archive, 0, 4); /* when */
  put(archive, crc32(0, array, ARRAY_BYTES), 4);
  put(archive, packed, 4);
  put(archive, ARRAY_BYTES, 4);
  put(archive, 5, 2);
  put(archive, 0, 2);
}

static size_t pack(const unsigned char *array, int method, unsigned char out[256]) {
  z_stream stream = {
      .next_in = (unsigned char *)array, .avail_in = ARRAY_BYTES, .next_out = out, .avail_out = 256};
  if (method == 0) {
    memcpy(out, array, ARRAY_BYTES);
    return ARRAY_BYTES;
  }
  assert_int_equal(deflateInit2(&stream, 9, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY), Z_OK);
  assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
  deflateEnd(&stream);
  return stream.total_out;
}

static struct archive make_archive(int method) {
  static const int32_t values[2][2] = {{7, -1}, {3, 4}};
  struct archive archive = {.size = 0};
  unsigned char arrays[2][ARRAY_BYTES], packed[2][256];
  size_t sizes[2], at;
  for (int m = 0; m < 2; m++) {
    memcpy(arrays[m], NPY_2, ARRAY_BYTES - 8);
    memcpy(arrays[m] + ARRAY_BYTES - 8, values[m], 8);
    sizes[m] = pack(arrays[m], method, packed[m]);
    archive.header[m] = archive.size;
    put(&archive, 0x04034b50, 4);
    put_fields(&archive, method, arrays[m], sizes[m]);
    put_bytes(&archive, m ? "y.npy" : "x.npy", 5);
    put_bytes(&archive, packed[m], sizes[m]);
  }
  at = archive.size;
  for (int m = 0; m < 2; m++) {
    archive.entry[m] = archive.size;
    put(&archive, 0x02014b50, 4);
    put(&archive, 20, 2);
    put_fields(&archive, method, arrays[m], sizes[m]);
    put(&archive, 0, 10); /* comment, disk, attributes */
    put(&archive, archive.header[m], 4);
    put_bytes(&archive, m ? "y.npy" : "x.npy", 5);
  }
  archive.end = archive.size;
  put(&archive, 0x06054b50, 4);
  put(&archive, 0, 4);
  put(&archive, 2, 2);
  put(&archive, 2, 2);
  put(&archive, archive.end - at, 4);
  put(&archive, at, 4);
  put(&archive, 0, 2);
  return archive;
}

#define BOTH "train: {format: npz, file: a.npz, columns: {x: x, labels: y}}"

static void refuse_archive(const struct archive *archive, enum err_code code, const char *wanted) {
  write_file("a.npz", archive->bytes, archive->size);
  refuse_data(BOTH, code, wanted);
}

/* A field of a member: where it is in the member's header, and how long it is. */
struct field {
  size_t offset;
  int bytes;
};
static const struct field field_flags = {6, 2}, field_packing = {8, 2}, field_check_sum = {14, 4},
                          field_packed_size = {18, 4}, field_size = {22, 4};

/* Sets a field of member m in both places that tell it, the header and the directory, which has 2 bytes more
   before it. */
static void set_field(struct archive *archive, int m, struct field field, uint64_t value) {
  set(archive, archive->header[m] + field.offset, value, field.bytes);
  set(archive, archive->entry[m] + field.offset + 2, value, field.bytes);
}

static void stored_and_deflated_arrays_are_read_alike(void **state) {
  static const int64_t x[2] = {7, -1}, y[2] = {3, 4};
  (void)state;
  for (int method = 0; method <= 8; method += 8) {
    struct archive archive = make_archive(method);
    struct dataset *dataset;
    Weir__RunSpec *spec;
    write_file("a.npz", archive.bytes, archive.size);
    dataset = open_data(BOTH, &spec);
    assert_int_equal(dataset_samples(dataset), 2);
    for (uint64_t i = 0; i < 2; i++) {
      expect_integers(dataset, "x", i, 1, &x[i]);
      expect_integers(dataset, "labels", i, 1, &y[i]);
    }
    dataset_close(dataset);
    spec_free(spec);
  }
}

/* images u8[3,1,2,2] = 0 .. 11, weights f32[3,2] = k / 4, labels i64 = 2, 0, 1 */
static void what_numpy_wrote_is_read_in_each_of_its_forms(void **state) {
  static const char *const files[] = {"savez.npz", "savez_compressed.npz", "streamed.npz", "zip64.npz"};
  static const float images[] = {4, 5, 6, 7}, weights[] = {0.5f, 0.75f};
  static const int64_t label = 2;
  char data[256];
  (void)state;
  for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
    struct dataset *dataset;
    Weir__RunSpec *spec;
    snprintf(data, sizeof data,
             "train: {format: npz, file: %s, columns: {images: images, w: weights, labels: labels}}",
             files[f]);
    dataset = open_at("tests/fuzz/corpus/npz", data, false, &spec);
    assert_int_equal(dataset_samples(dataset), 3);
    expect_floats(dataset, "images", 1, 4, images);
    expect_floats(dataset, "w", 1, 2, weights);
    expect_integers(dataset, "labels", 0, 1, &label);
    dataset_close(dataset);
    spec_free(spec);
  }
}

static void an_archive_that_contradicts_itself_is_refused(void **state) {
  struct archive archive;
  (void)state;
  archive = make_archive(0);
  set(&archive, archive.entry[0] + 24, ARRAY_BYTES - 1, 4);
  refuse_archive(&archive, ERR_CORRUPT,
                 "a.npz: damaged zip archive: its member 1 has a header that contradicts");
  archive = make_archive(0);
  set(&archive, archive.entry[1] + 42, archive.header[0], 4);
  refuse_archive(&archive, ERR_CORRUPT, "its member 2 has a header that contradicts the directory");
  archive = make_archive(0);
  set(&archive, archive.header[1] + 30, 'x', 1);
  set(&archive, archive.entry[1] + 46, 'x', 1);
  refuse_archive(&archive, ERR_INVALID, "has two members 'x.npy'");
  archive = make_archive(0);
  set(&archive, archive.header[1] + 30, 'x', 1);
  set(&archive, archive.entry[1] + 46, 'x', 1);
  set(&archive, archive.header[1] + 14, crc32(0, archive.bytes + archive.header[0] + 35, ARRAY_BYTES), 4);
  set(&archive, archive.entry[1] + 16, crc32(0, archive.bytes + archive.header[0] + 35, ARRAY_BYTES), 4);
  set(&archive, archive.entry[1] + 42, archive.header[0], 4);
  refuse_archive(&archive, ERR_CORRUPT, "its member 2 overlaps another member");
  archive = make_archive(0);
  set(&archive, archive.entry[1] + 42, archive.end, 4);
  refuse_archive(&archive, ERR_CORRUPT, "its member 2 has no header where the directory says");
  archive = make_archive(0);
  set(&archive, archive.end + 16, 1, 4);
  refuse_archive(&archive, ERR_CORRUPT, "its directory is not where it should be");
  archive = make_archive(0);
  set(&archive, archive.end + 8, 3, 2);
  set(&archive, archive.end + 10, 3, 2);
  refuse_archive(&archive, ERR_CORRUPT, "its directory is too small for its members");
  archive = make_archive(0);
  set(&archive, archive.end + 8, 1, 2);
  set(&archive, archive.end + 10, 1, 2);
  refuse_archive(&archive, ERR_CORRUPT, "its directory is larger than its members need");
  archive = make_archive(0);
  set(&archive, archive.end + 4, 1, 2);
  refuse_archive(&archive, ERR_UNSUPPORTED, "is one of several parts of an archive");
}

static void an_archive_of_more_members_than_a_source_can_want_is_refused(void **state) {
  struct archive archive = make_archive(0);
  (void)state;
  set(&archive, archive.end + 8, 20000, 2);
  set(&archive, archive.end + 10, 20000, 2);
  refuse_archive(&archive, ERR_UNSUPPORTED, "has 20000 members; at most 16384 are read");
}

static void a_member_that_is_not_what_it_announces_is_refused(void **state) {
  static const struct {
    int method, member;
    const struct field *field;
    uint64_t value;
    enum err_code code;
    const char *wanted;
  } cases[] = {
      {8, 0, &field_check_sum, 0, ERR_CORRUPT, "its member 1 has another check sum than its content"},
      {8, 0, &field_size, ARRAY_BYTES + 8, ERR_INVALID, "x.npy: goes on after the 8 bytes that its header"},
      {8, 0, &field_size, 0xfffffffe, ERR_CORRUPT, "its member 1 announces more than it can hold"},
      {8, 0, &field_size, 1 << 16, ERR_INVALID, "x.npy: goes on after the 8 bytes that its header"},
      {0, 0, &field_size, 1 << 16, ERR_CORRUPT, "its member 1 announces more than it can hold"},
      {0, 1, &field_packed_size, 1 << 16, ERR_CORRUPT, "its member 2 goes on beyond the archive"},
      {0, 0, &field_packed_size, 0xffffffff, ERR_CORRUPT, "its member 1 has a zip64 field that is cut short"},
      {0, 0, &field_flags, 1, ERR_UNSUPPORTED, "'x.npy' is encrypted"},
      {0, 0, &field_packing, 14, ERR_UNSUPPORTED,
       "'x.npy' is packed in another way than stored and deflated"},
  };
  struct archive archive = make_archive(0);
  (void)state;
  archive.bytes[archive.header[0] + 35 + ARRAY_BYTES - 1] ^= 1;
  refuse_archive(&archive, ERR_CORRUPT, "its member 1 has another check sum than its content");
  archive = make_archive(8);
  archive.bytes[archive.header[0] + 35 + 70] ^= 1;
  refuse_archive(&archive, ERR_CORRUPT, "a.npz: damaged zip archive: its member 1 ");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    archive = make_archive(cases[i].method);
    set_field(&archive, cases[i].member, *cases[i].field, cases[i].value);
    refuse_archive(&archive, cases[i].code, cases[i].wanted);
  }
}

static void a_missing_array_is_named(void **state) {
  struct archive archive = make_archive(0);
  (void)state;
  write_file("a.npz", archive.bytes, archive.size);
  refuse_data("train: {format: npz, file: a.npz, columns: {x: z}}", ERR_INVALID,
              "a.npz: none of its 2 members is 'z.npy'");
  refuse_data("train: {format: npz, columns: {x: z}}", ERR_INVALID, "data.train.file: is missing");
  refuse_data("train: {format: npz, file: a.npz}", ERR_INVALID, "data.train.columns: is missing");
  write_text("a.npz", "hello, this is text");
  refuse_data(BOTH, ERR_INVALID, "is not a zip archive, as of numpy.savez");
  write_text("a.npz", "");
  refuse_data(BOTH, ERR_CORRUPT, "cut short: it is empty");
}

static void damaged_archives_never_crash_the_reader(void **state) {
  struct err err = ERR_NONE;
  struct dataset *dataset;
  Weir__RunSpec *spec = make_spec(NULL, BOTH);
  (void)state;
  for (int method = 0; method <= 8; method += 8) {
    struct archive archive = make_archive(method);
    for (size_t cut = 0; cut < archive.size; cut++) {
      write_file("a.npz", archive.bytes, cut);
      assert_int_not_equal(dataset_open(spec, spec->data->train, &everything, &dataset, &err), 0);
    }
    for (size_t at = 0; at < archive.size; at++)
      for (int bit = 0; bit < 8; bit += 7) {
        archive.bytes[at] ^= (unsigned char)(1 << bit);
        write_file("a.npz", archive.bytes, archive.size);
        if (dataset_open(spec, spec->data->train, &everything, &dataset, &err) == 0)
          dataset_close(dataset);
        archive.bytes[at] ^= (unsigned char)(1 << bit);
      }
  }
  spec_free(spec);
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(stored_and_deflated_arrays_are_read_alike),
      cmocka_unit_test(what_numpy_wrote_is_read_in_each_of_its_forms),
      cmocka_unit_test(an_archive_that_contradicts_itself_is_refused),
      cmocka_unit_test(an_archive_of_more_members_than_a_source_can_want_is_refused),
      cmocka_unit_test(a_member_that_is_not_what_it_announces_is_refused),
      cmocka_unit_test(a_missing_array_is_named),
      cmocka_unit_test(damaged_archives_never_crash_the_reader),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
