/* Memory that processes share: segments, turns, buffers in them, and what two ends know of each other's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <fcntl.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/share/share.h"
#include "common/share/shared_pool.h"

enum { SIZE = 1 << 20, ELEMS = 1000 };

static struct segment *make(size_t size_bytes) {
  struct segment *segment;
  struct err err;
  if (segment_new(size_bytes, &segment, &err))
    fail_msg("%s", err.text);
  return segment;
}

static void another_process_reads_what_its_maker_writes(void **state) {
  struct segment *segment = make(SIZE);
  struct segment_place place = segment_place(segment);
  int status;
  pid_t child;
  (void)state;
  segment->data[SIZE - 1] = 7;
  child = fork();
  if (child == 0) {
    struct segment *opened;
    struct err err;
    _exit(segment_open(&place, &opened, &err) ? 100 : opened->data[SIZE - 1]);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(WEXITSTATUS(status), 7);
  segment_put(segment);
}

static void a_reader_cannot_write_shrink_or_map_it_for_writing(void **state) {
  struct segment *segment = make(SIZE);
  char path[64];
  int fd;
  (void)state;
  snprintf(path, sizeof path, "/proc/self/fd/%d", segment->fd);
  fd = open(path, O_RDWR);
  if (fd >= 0) {
    assert_int_equal(write(fd, "x", 1), -1);
    assert_int_equal(ftruncate(fd, 4096), -1);
    assert_ptr_equal(mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
    close(fd);
  }
  segment_put(segment);
}

static void assert_refused(struct segment_place place, enum err_code code, const char *text) {
  struct segment *opened = NULL;
  struct err err = ERR_NONE;
  assert_int_equal(segment_open(&place, &opened, &err), code);
  assert_non_null(strstr(err.text, text));
  assert_null(opened);
}

static struct segment_place place_of(int fd, size_t size_bytes) {
  return (struct segment_place){.pid = (uint32_t)getpid(), .fd = (uint32_t)fd, .size_bytes = size_bytes};
}

/* A file that could be cut while it is read, a pipe, a device, a file on a disk, a folder, and nothing. */
static void what_is_no_segment_is_refused(void **state) {
  struct segment *segment = make(SIZE);
  struct segment_place other = segment_place(segment);
  int loose = memfd_create("loose", MFD_ALLOW_SEALING), half = memfd_create("half", MFD_ALLOW_SEALING);
  int pipes[2], null = open("/dev/null", O_RDWR), folder = open("/", O_RDONLY);
  FILE *disk = tmpfile();
  (void)state;
  assert_int_equal(ftruncate(loose, SIZE) + ftruncate(half, SIZE) + ftruncate(fileno(disk), SIZE), 0);
  assert_int_equal(fcntl(half, F_ADD_SEALS, F_SEAL_GROW), 0);
  assert_int_equal(pipe(pipes), 0);
  assert_refused(place_of(loose, SIZE), ERR_INVALID, "not sealed");
  assert_refused(place_of(half, SIZE), ERR_INVALID, "not sealed");
  assert_refused(place_of(pipes[0], SIZE), ERR_INVALID, "no segment");
  assert_refused(place_of(null, SIZE), ERR_INVALID, "no segment");
  assert_refused(place_of(folder, SIZE), ERR_INVALID, "no segment");
  assert_refused(place_of(fileno(disk), SIZE), ERR_INVALID, "no segment");
  assert_refused(place_of(segment->fd, SIZE), ERR_INVALID, "another segment"); /* a token of zeros */
  other.token[15] ^= 1;
  assert_refused(other, ERR_INVALID, "another segment");
  assert_refused(place_of(segment->fd, SIZE + 1), ERR_INVALID, "no segment of");
  assert_refused(place_of(segment->fd, 0), ERR_INVALID, "no segment has");
  assert_refused(place_of(segment->fd, UINT64_MAX), ERR_INVALID, "no segment has");
  assert_refused(place_of(100000, SIZE), ERR_UNAVAILABLE, "/proc/");
  assert_refused((struct segment_place){.pid = 4194305, .fd = 3, .size_bytes = SIZE}, ERR_UNAVAILABLE,
                 "/proc/");
  close(loose), close(half), close(null), close(folder), close(pipes[0]), close(pipes[1]);
  fclose(disk);
  segment_put(segment);
}

static void at_most_so_many_segments_of_others_are_mapped(void **state) {
  struct segment *segment = make(4096), **opened = mem_new(SEGMENT_OPENED_MAX * sizeof(struct segment *));
  struct segment_place place = segment_place(segment);
  struct err err;
  (void)state;
  for (int i = 0; i < SEGMENT_OPENED_MAX; i++)
    if (segment_open(&place, &opened[i], &err))
      fail_msg("%d: %s", i, err.text);
  assert_refused(place, ERR_NO_MEMORY, "4096");
  for (int i = 0; i < SEGMENT_OPENED_MAX; i++)
    segment_put(opened[i]);
  assert_int_equal(segment_open(&place, &opened[0], &err), 0);
  segment_put(opened[0]);
  segment_put(segment);
  free(opened);
}

static void a_buffer_that_is_given_back_is_another_turn(void **state) {
  struct shared_pool *pool = shared_pool_new(SIZE);
  struct buffer *buffer = shared_pool_take(pool, ELEMS * sizeof(float)), *again;
  uint32_t turn;
  (void)state;
  assert_non_null(buffer);
  turn = shared_turn(buffer->place);
  buffer_put(buffer);
  again = shared_pool_take(pool, ELEMS * sizeof(float));
  assert_ptr_equal(again->data, buffer->data);
  assert_int_not_equal(shared_turn(again->place), turn);
  assert_true(shared_pool_has(pool, again));
  assert_false(shared_pool_has(NULL, again));
  shared_pool_free(pool);
  memset(again->data, 1, again->size_bytes); /* it outlives the pool */
  buffer_put(again);
}

static void segments_of_which_nothing_is_taken_are_let_go(void **state) {
  struct shared_pool *pool = shared_pool_new(SIZE);
  struct buffer *kept = shared_pool_take(pool, SIZE), *dropped = shared_pool_take(pool, SIZE);
  struct stat status;
  int fds[2] = {kept->place->segment->fd, dropped->place->segment->fd};
  (void)state;
  assert_int_not_equal(fds[0], fds[1]);
  buffer_put(dropped);
  assert_int_equal(fstat(fds[1], &status), 0);
  shared_pool_trim(pool);
  assert_int_equal(fstat(fds[1], &status), -1);
  assert_int_equal(fstat(fds[0], &status), 0);
  buffer_put(kept);
  shared_pool_free(pool);
  assert_int_equal(fstat(fds[0], &status), -1);
}

/* Two ends in one process, whose messages are kept until they are passed on. */
struct end {
  struct share *share;
  Weir__ShareMessage *kept[8];
  int n_kept;
};

static void keep(void *user, const Weir__ShareMessage *message) {
  struct end *end = user;
  uint8_t bytes[1024];
  size_t size = weir__share_message__pack(message, bytes);
  assert_in_range(end->n_kept, 0, 7);
  end->kept[end->n_kept++] = weir__share_message__unpack(NULL, size, bytes);
}

static void pass(struct end *from, struct end *to) {
  struct err err;
  for (int i = 0; i < from->n_kept; i++) {
    assert_int_equal(share_take(to->share, from->kept[i], &err), 0);
    weir__share_message__free_unpacked(from->kept[i], NULL);
  }
  from->n_kept = 0;
}

struct pair {
  struct end ends[2];
  struct shared_pool *pool;
  struct buffer *buffer;
};

static int pair_setup(void **state) {
  struct pair *pair = mem_new(sizeof *pair);
  for (int i = 0; i < 2; i++)
    pair->ends[i].share = share_new(keep, &pair->ends[i]);
  pair->pool = shared_pool_new(SIZE);
  pair->buffer = shared_pool_take(pair->pool, ELEMS * sizeof(float));
  assert_non_null(pair->buffer);
  memset(pair->buffer->data, 3, pair->buffer->size_bytes);
  *state = pair;
  return 0;
}

static int pair_teardown(void **state) {
  struct pair *pair = *state;
  for (int i = 0; i < 2; i++) {
    for (int m = 0; m < pair->ends[i].n_kept; m++)
      weir__share_message__free_unpacked(pair->ends[i].kept[m], NULL);
    share_put(pair->ends[i].share);
  }
  buffer_put(pair->buffer);
  shared_pool_free(pair->pool);
  free(pair);
  return 0;
}

static Weir__SharedBytes take_over(struct pair *pair) {
  Weir__SharedBytes name = WEIR__SHARED_BYTES__INIT;
  assert_false(share_name(pair->ends[0].share, pair->buffer, &name));
  pass(&pair->ends[0], &pair->ends[1]);
  pass(&pair->ends[1], &pair->ends[0]);
  assert_true(share_name(pair->ends[0].share, pair->buffer, &name));
  return name;
}

static void bytes_are_named_once_the_other_end_has_their_segment(void **state) {
  struct pair *pair = *state;
  Weir__SharedBytes name = WEIR__SHARED_BYTES__INIT;
  struct shared_bytes bytes;
  struct err err;
  char copy[ELEMS * sizeof(float)];
  for (int i = 0; i < 3; i++)
    assert_false(share_name(pair->ends[0].share, pair->buffer, &name));
  assert_int_equal(pair->ends[0].n_kept, 1); /* offered once */
  assert_false(share_is_up(pair->ends[1].share));
  name = take_over(pair);
  assert_true(share_is_up(pair->ends[0].share) && share_is_up(pair->ends[1].share));
  assert_int_equal(share_find(pair->ends[1].share, &name, &bytes, &err), 0);
  assert_int_equal(shared_bytes_copy(&bytes, copy, &err), 0);
  assert_memory_equal(copy, pair->buffer->data, sizeof copy);
  shared_bytes_put(&bytes);
}

static void a_copy_that_is_overtaken_counts_for_nothing(void **state) {
  struct pair *pair = *state;
  Weir__SharedBytes name = take_over(pair);
  struct shared_bytes bytes;
  struct err err;
  char copy[ELEMS * sizeof(float)];
  assert_int_equal(share_find(pair->ends[1].share, &name, &bytes, &err), 0);
  shared_renew(pair->buffer);
  assert_int_equal(shared_bytes_copy(&bytes, copy, &err), ERR_STALE);
  shared_bytes_put(&bytes);
}

static void ranges_beyond_a_segment_are_refused(void **state) {
  static const struct {
    uint64_t offset, size;
  } ranges[] = {{0, 4},
                {256, 4},
                {513, 4},
                {SIZE, 4},
                {SIZE - 256, 260},
                {512, SIZE},
                {512, UINT64_MAX},
                {UINT64_MAX - 255, 512},
                {UINT64_MAX, 1},
                {1ull << 63, 4}};
  struct pair *pair = *state;
  Weir__SharedBytes name = take_over(pair);
  struct shared_bytes bytes;
  struct err err;
  for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
    name.offset = ranges[i].offset;
    name.size = ranges[i].size;
    assert_int_equal(share_find(pair->ends[1].share, &name, &bytes, &err), ERR_INVALID);
    assert_null(bytes.segment);
  }
  name.segment += 1000;
  assert_int_equal(share_find(pair->ends[1].share, &name, &bytes, &err), ERR_INVALID);
}

static void a_refused_segment_is_the_last_that_is_offered(void **state) {
  struct pair *pair = *state;
  Weir__SharedBytes name = WEIR__SHARED_BYTES__INIT;
  assert_false(share_name(pair->ends[0].share, pair->buffer, &name));
  pair->ends[0].kept[0]->offered->token.data[0] ^= 1;
  pass(&pair->ends[0], &pair->ends[1]);
  assert_int_equal(pair->ends[1].n_kept, 1);
  assert_non_null(strstr(pair->ends[1].kept[0]->reason, "another segment"));
  pass(&pair->ends[1], &pair->ends[0]);
  assert_true(share_is_refused(pair->ends[0].share));
  assert_false(share_is_up(pair->ends[0].share));
  assert_false(share_name(pair->ends[0].share, pair->buffer, &name));
  assert_int_equal(pair->ends[0].n_kept, 0);
}

static void what_was_not_offered_cannot_be_taken_and_nothing_is_offered_twice(void **state) {
  struct pair *pair = *state;
  Weir__SharedBytes name = WEIR__SHARED_BYTES__INIT;
  Weir__ShareMessage taken = WEIR__SHARE_MESSAGE__INIT;
  struct err err;
  taken.taken = 77;
  assert_int_equal(share_take(pair->ends[0].share, &taken, &err), ERR_INVALID);
  assert_false(share_name(pair->ends[0].share, pair->buffer, &name));
  assert_int_equal(share_take(pair->ends[1].share, pair->ends[0].kept[0], &err), 0);
  assert_int_equal(share_take(pair->ends[1].share, pair->ends[0].kept[0], &err), ERR_INVALID);
}

static void after_the_end_nothing_is_named_and_what_was_named_can_be_read(void **state) {
  struct pair *pair = *state;
  Weir__SharedBytes name = take_over(pair);
  struct shared_bytes bytes;
  struct err err;
  char copy[ELEMS * sizeof(float)];
  share_close(pair->ends[0].share);
  share_close(pair->ends[1].share);
  assert_false(share_name(pair->ends[0].share, pair->buffer, &name));
  assert_int_equal(share_find(pair->ends[1].share, &name, &bytes, &err), 0);
  assert_int_equal(shared_bytes_copy(&bytes, copy, &err), 0);
  shared_bytes_put(&bytes);
}

static void nothing_is_made_or_opened_where_it_is_turned_off(void **state) {
  struct segment *segment = make(SIZE), *other;
  struct segment_place place = segment_place(segment);
  struct err err;
  (void)state;
  setenv("WEIR_SHM", "off", 1);
  assert_false(segment_is_on());
  assert_int_equal(segment_new(SIZE, &other, &err), ERR_UNSUPPORTED);
  assert_refused(place, ERR_UNSUPPORTED, "turned off");
  unsetenv("WEIR_SHM");
  segment_put(segment);
}

#define OF_A_PAIR(test) cmocka_unit_test_setup_teardown(test, pair_setup, pair_teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(another_process_reads_what_its_maker_writes),
      cmocka_unit_test(a_reader_cannot_write_shrink_or_map_it_for_writing),
      cmocka_unit_test(what_is_no_segment_is_refused),
      cmocka_unit_test(at_most_so_many_segments_of_others_are_mapped),
      cmocka_unit_test(a_buffer_that_is_given_back_is_another_turn),
      cmocka_unit_test(segments_of_which_nothing_is_taken_are_let_go),
      OF_A_PAIR(bytes_are_named_once_the_other_end_has_their_segment),
      OF_A_PAIR(a_copy_that_is_overtaken_counts_for_nothing),
      OF_A_PAIR(ranges_beyond_a_segment_are_refused),
      OF_A_PAIR(a_refused_segment_is_the_last_that_is_offered),
      OF_A_PAIR(what_was_not_offered_cannot_be_taken_and_nothing_is_offered_twice),
      OF_A_PAIR(after_the_end_nothing_is_named_and_what_was_named_can_be_read),
      cmocka_unit_test(nothing_is_made_or_opened_where_it_is_turned_off),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
