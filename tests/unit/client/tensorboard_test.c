/* Event files for TensorBoard: written once, whatever cuts them short. TensorBoard's own reader reads them in
   tests/integration/test_tensorboard.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/files/result_dir.h"
#include "client/files/tensorboard.h"
#include "client/files/tfrecord.h"
#include "common/base/memory.h"

enum { STEPS = 6, FILE_MAX = 4096 };

/* A folder for event files, and the one of a run's steps there. */
struct fixture {
  char folder[64], train[192];
  Weir__RunInfo run;
};

static int setup(void **state) {
  struct fixture *fixture = mem_new(sizeof *fixture);
  snprintf(fixture->folder, sizeof fixture->folder, "/tmp/weir-tensorboard-XXXXXX");
  assert_non_null(mkdtemp(fixture->folder));
  weir__run_info__init(&fixture->run);
  fixture->run.run = (char *)"a-123456";
  fixture->run.submitted_unix_ms = 1700000000500;
  snprintf(fixture->train, sizeof fixture->train, "%s/a-123456/train/events.out.tfevents.1700000000.weir",
           fixture->folder);
  *state = fixture;
  return 0;
}

static int teardown(void **state) {
  struct fixture *fixture = *state;
  struct err err = ERR_NONE;
  result_dir_remove(fixture->folder, &err);
  free(fixture);
  return 0;
}

static struct tensorboard *reopen(const struct fixture *fixture) {
  struct tensorboard *tensorboard;
  struct err err = ERR_NONE;
  assert_int_equal(tensorboard_open(fixture->folder, &fixture->run, NULL, &tensorboard, &err), 0);
  return tensorboard;
}

static void give_step(struct tensorboard *tensorboard, uint64_t step, uint64_t incarnation) {
  Weir__RunEvent event = WEIR__RUN_EVENT__INIT;
  Weir__StepEvent of = WEIR__STEP_EVENT__INIT;
  struct err err = ERR_NONE;
  of.step = step;
  of.loss = 1.0 / (1.0 + (double)step);
  of.seconds = 0.5;
  of.samples = 8;
  of.incarnation = incarnation;
  event.event_case = WEIR__RUN_EVENT__EVENT_STEP;
  event.step = &of;
  assert_int_equal(tensorboard_sink(tensorboard)->take(tensorboard_sink(tensorboard), &event, &err), 0);
}

/* All that a run has had, as a coordinator tells it again. */
static void give_steps(const struct fixture *fixture) {
  struct tensorboard *tensorboard = reopen(fixture);
  for (uint64_t step = 0; step < STEPS; step++)
    give_step(tensorboard, step, 0);
  tensorboard_close(tensorboard);
}

static size_t file_read(const char *path, unsigned char bytes[FILE_MAX]) {
  FILE *file = fopen(path, "rb");
  size_t size;
  assert_non_null(file);
  size = fread(bytes, 1, FILE_MAX, file);
  assert_true(size < FILE_MAX);
  fclose(file);
  return size;
}

static void file_write(const char *path, const void *bytes, size_t size) {
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(bytes, 1, size, file), size);
  fclose(file);
}

static void the_checksum_is_that_of_the_rfc(void **state) {
  static const unsigned char zeros[32];
  (void)state;
  assert_int_equal(tfrecord_crc32c("123456789", 9), 0xe3069283);
  assert_int_equal(tfrecord_crc32c(zeros, sizeof zeros), 0x8a9136aa);
}

static void a_file_that_was_cut_anywhere_becomes_whole_without_a_record_twice(void **state) {
  const struct fixture *fixture = *state;
  unsigned char whole[FILE_MAX], again[FILE_MAX];
  size_t size, first;
  give_steps(fixture);
  size = file_read(fixture->train, whole);
  first = 12 + whole[0] + 4;
  for (size_t cut = first; cut <= size; cut++) {
    file_write(fixture->train, whole, cut);
    give_steps(fixture);
    assert_int_equal(file_read(fixture->train, again), size);
    assert_memory_equal(again, whole, size);
  }
}

static void a_damaged_record_and_those_behind_it_are_written_again(void **state) {
  const struct fixture *fixture = *state;
  unsigned char whole[FILE_MAX], again[FILE_MAX];
  size_t size;
  give_steps(fixture);
  size = file_read(fixture->train, whole);
  memcpy(again, whole, size);
  again[size / 2] ^= 16;
  file_write(fixture->train, again, size);
  give_steps(fixture);
  assert_int_equal(file_read(fixture->train, again), size);
  assert_memory_equal(again, whole, size);
}

static void a_file_of_another_program_is_left_alone(void **state) {
  static const char text[] = "these are somebody's notes, and no records";
  const struct fixture *fixture = *state;
  unsigned char bytes[FILE_MAX];
  struct tensorboard *tensorboard;
  struct err err = ERR_NONE;
  give_steps(fixture);
  file_write(fixture->train, text, sizeof text);
  assert_int_equal(tensorboard_open(fixture->folder, &fixture->run, NULL, &tensorboard, &err), ERR_INVALID);
  assert_non_null(strstr(err.text, fixture->train));
  assert_int_equal(file_read(fixture->train, bytes), sizeof text);
  assert_memory_equal(bytes, text, sizeof text);
}

static void only_one_at_a_time_writes_a_run(void **state) {
  const struct fixture *fixture = *state;
  struct tensorboard *first = reopen(fixture), *second;
  struct err err = ERR_NONE;
  assert_int_equal(tensorboard_open(fixture->folder, &fixture->run, NULL, &second, &err), ERR_EXISTS);
  tensorboard_close(first);
  tensorboard_close(reopen(fixture));
}

static void a_step_of_an_older_incarnation_comes_too_late(void **state) {
  const struct fixture *fixture = *state;
  unsigned char before[FILE_MAX], after[FILE_MAX];
  struct tensorboard *tensorboard;
  size_t size;
  give_steps(fixture);
  tensorboard = reopen(fixture);
  give_step(tensorboard, 2, 1);
  tensorboard_close(tensorboard);
  size = file_read(fixture->train, before);
  tensorboard = reopen(fixture);
  give_step(tensorboard, STEPS, 0);
  give_step(tensorboard, 2, 1);
  tensorboard_close(tensorboard);
  assert_int_equal(file_read(fixture->train, after), size);
  assert_memory_equal(after, before, size);
}

static void a_run_without_an_id_gets_no_folder(void **state) {
  struct fixture *fixture = *state;
  struct tensorboard *tensorboard;
  struct err err = ERR_NONE;
  fixture->run.run = (char *)"../../etc";
  assert_int_equal(tensorboard_open(fixture->folder, &fixture->run, NULL, &tensorboard, &err), ERR_INVALID);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_checksum_is_that_of_the_rfc),
      cmocka_unit_test_setup_teardown(a_file_that_was_cut_anywhere_becomes_whole_without_a_record_twice,
                                      setup, teardown),
      cmocka_unit_test_setup_teardown(a_damaged_record_and_those_behind_it_are_written_again, setup,
                                      teardown),
      cmocka_unit_test_setup_teardown(a_file_of_another_program_is_left_alone, setup, teardown),
      cmocka_unit_test_setup_teardown(only_one_at_a_time_writes_a_run, setup, teardown),
      cmocka_unit_test_setup_teardown(a_step_of_an_older_incarnation_comes_too_late, setup, teardown),
      cmocka_unit_test_setup_teardown(a_run_without_an_id_gets_no_folder, setup, teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
