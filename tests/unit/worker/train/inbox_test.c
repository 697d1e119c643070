/* Boundary messages that come in pieces, in whatever order, again, or not as they should. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "worker/train/boundary/inbox.h"

enum { LAST_BYTES = 1000, MESSAGE_BYTES = 2 * BOUNDARY_PIECE_BYTES + LAST_BYTES, PIECES = 3, SLOTS = 2 };

static const struct boundary_key FIRST = {.step = 4, .index = 1}, SECOND = {.step = 4, .index = 2},
                                 THIRD = {.step = 5, .index = 1},
                                 CHUNK = {.is_chunk = true, .step = 4, .index = 1};

static struct boundary_range piece_at(int piece) {
  return (struct boundary_range){(size_t)piece * BOUNDARY_PIECE_BYTES,
                                 piece < PIECES - 1 ? BOUNDARY_PIECE_BYTES : LAST_BYTES};
}

/* The piece of these bytes comes. True: the message is whole. */
static bool comes(struct inbox *inbox, const struct boundary_key *key, int piece, int byte) {
  struct boundary_range range = piece_at(piece);
  void *to = NULL;
  assert_int_equal(inbox_claim(inbox, key, &range, &to), INBOX_CLAIMED);
  memset(to, byte, range.size_bytes);
  return inbox_land(inbox, key, range.begin);
}

static void all_come(struct inbox *inbox, const struct boundary_key *key, int byte) {
  for (int p = 0; p < PIECES; p++)
    assert_int_equal(comes(inbox, key, p, byte), p == PIECES - 1);
}

static const struct backend_def without_pins;

static int setup(void **state) {
  static struct inbox inbox;
  inbox_init(&inbox, MESSAGE_BYTES, SLOTS, &without_pins);
  *state = &inbox;
  return 0;
}

static int teardown(void **state) {
  inbox_fini(*state);
  return 0;
}

static void pieces_of_several_messages_come_in_any_order(void **state) {
  struct inbox *inbox = *state;
  const unsigned char *bytes;
  assert_false(comes(inbox, &FIRST, 2, 12));
  assert_false(comes(inbox, &SECOND, 0, 20));
  assert_false(comes(inbox, &FIRST, 0, 10));
  assert_null(inbox_find(inbox, &FIRST));
  assert_true(comes(inbox, &FIRST, 1, 11));
  bytes = inbox_find(inbox, &FIRST);
  for (int p = 0; p < PIECES; p++) {
    assert_int_equal(bytes[p * BOUNDARY_PIECE_BYTES], 10 + p);
    assert_int_equal(bytes[piece_at(p).begin + piece_at(p).size_bytes - 1], 10 + p);
  }
  assert_null(inbox_find(inbox, &SECOND));
  assert_null(inbox_find(inbox, &CHUNK));
}

static void a_piece_that_comes_again_changes_nothing(void **state) {
  struct inbox *inbox = *state;
  struct boundary_range range = piece_at(1);
  void *to = NULL;
  assert_int_equal(inbox_claim(inbox, &FIRST, &range, &to), INBOX_CLAIMED);
  assert_int_equal(inbox_claim(inbox, &FIRST, &range, &to), INBOX_HAS); /* while it is being written, too */
  assert_false(inbox_land(inbox, &FIRST, range.begin));
  assert_int_equal(inbox_claim(inbox, &FIRST, &range, &to), INBOX_HAS);
}

static void what_is_no_piece_of_a_message_is_invalid(void **state) {
  struct inbox *inbox = *state;
  const struct boundary_range wrong[] = {{0, 0},
                                         {0, BOUNDARY_PIECE_BYTES - 1},
                                         {1, BOUNDARY_PIECE_BYTES},
                                         {2 * BOUNDARY_PIECE_BYTES, LAST_BYTES + 1},
                                         {2 * BOUNDARY_PIECE_BYTES, BOUNDARY_PIECE_BYTES},
                                         {3 * (size_t)BOUNDARY_PIECE_BYTES, LAST_BYTES},
                                         {SIZE_MAX - BOUNDARY_PIECE_BYTES + 1, BOUNDARY_PIECE_BYTES},
                                         {0, SIZE_MAX}};
  void *to = NULL;
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
    assert_int_equal(inbox_claim(inbox, &FIRST, &wrong[i], &to), INBOX_INVALID);
  assert_null(to);
}

static void there_is_room_for_so_many_until_one_is_released(void **state) {
  struct inbox *inbox = *state;
  struct boundary_range range = piece_at(0);
  void *to = NULL;
  all_come(inbox, &FIRST, 1);
  all_come(inbox, &SECOND, 2);
  assert_int_equal(inbox_claim(inbox, &THIRD, &range, &to), INBOX_FULL);
  inbox_release(inbox, &FIRST);
  inbox_release(inbox, &FIRST); /* it is not here: ignored */
  assert_null(inbox_find(inbox, &FIRST));
  all_come(inbox, &THIRD, 3);
  assert_int_equal(inbox_find(inbox, &SECOND)[0], 2);
  assert_int_equal(inbox_find(inbox, &THIRD)[0], 3);
}

static void whole_messages_are_taken_in_the_order_in_which_they_began_to_come(void **state) {
  struct inbox *inbox = *state;
  struct boundary_key key;
  assert_false(inbox_next(inbox, &key));
  assert_false(comes(inbox, &SECOND, 0, 2));
  all_come(inbox, &FIRST, 1);
  assert_true(inbox_next(inbox, &key) && boundary_key_is_same(&key, &FIRST));
  for (int p = 1; p < PIECES; p++)
    comes(inbox, &SECOND, p, 2);
  assert_true(inbox_next(inbox, &key) && boundary_key_is_same(&key, &SECOND));
  inbox_take(inbox, &key);
  assert_true(inbox_next(inbox, &key) && boundary_key_is_same(&key, &FIRST));
  inbox_take(inbox, &key);
  assert_false(inbox_next(inbox, &key));
  assert_non_null(inbox_find(inbox, &FIRST)); /* until it is released */
}

static void a_message_without_bytes_is_one_piece(void **state) {
  struct inbox inbox;
  struct boundary_range nothing = {0, 0};
  void *to = NULL;
  (void)state;
  inbox_init(&inbox, 0, 1, &without_pins);
  assert_int_equal(inbox_claim(&inbox, &FIRST, &nothing, &to), INBOX_CLAIMED);
  assert_true(inbox_land(&inbox, &FIRST, 0));
  assert_non_null(inbox_find(&inbox, &FIRST));
  inbox_fini(&inbox);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
  const struct CMUnitTest tests[] = {
      TEST(pieces_of_several_messages_come_in_any_order),
      TEST(a_piece_that_comes_again_changes_nothing),
      TEST(what_is_no_piece_of_a_message_is_invalid),
      TEST(there_is_room_for_so_many_until_one_is_released),
      TEST(whole_messages_are_taken_in_the_order_in_which_they_began_to_come),
      cmocka_unit_test(a_message_without_bytes_is_one_piece),
  };
#undef TEST
  return cmocka_run_group_tests(tests, NULL, NULL);
}
