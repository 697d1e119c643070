/* Tickets: what makes them genuine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/certs/ticket.h"

#define ANN "spiffe://weir/worker/ann"

static const unsigned char key[TICKET_KEY_BYTES] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10,
                                                    11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
                                                    22, 23, 24, 25, 26, 27, 28, 29, 30, 31};

static struct ticket read_back(const struct ticket_owner *owner) {
  char text[TICKET_TEXT_SIZE];
  struct ticket ticket;
  struct err err;
  ticket_make(key, owner, text);
  assert_int_equal(ticket_read(text, &ticket, &err), 0);
  return ticket;
}

/* By Python's hmac: hmac.new(bytes(range(32)), b"weir ticket 2\0mlp-aaaaaa\0" b"7\0" b"3\0" + ANN, "sha256")
 */
static void a_ticket_is_the_hmac_that_others_compute(void **state) {
  char text[TICKET_TEXT_SIZE];
  (void)state;
  ticket_make(key, &(struct ticket_owner){"mlp-aaaaaa", 7, ANN, 3}, text);
  assert_string_equal(text, "mlp-aaaaaa/7/3/"
                            "61d7070bfe8cae304fb8c8b3dd74e5234d0dd5a1ea3ad8c84f132b13f66ebc3c");
}

static void a_ticket_is_genuine_for_all_that_it_says_alone(void **state) {
  struct ticket ticket = read_back(&(struct ticket_owner){"mlp-aaaaaa", 7, ANN, 3}), changed;
  unsigned char other[TICKET_KEY_BYTES] = {0};
  (void)state;
  assert_string_equal(ticket.run, "mlp-aaaaaa");
  assert_int_equal(ticket.incarnation, 7);
  assert_int_equal(ticket.worker, 3);
  assert_true(ticket_is_genuine(&ticket, key, ANN));
  assert_false(ticket_is_genuine(&ticket, other, ANN));
  assert_false(ticket_is_genuine(&ticket, key, "spiffe://weir/worker/eve"));
  assert_false(ticket_is_genuine(&ticket, key, ""));
  changed = ticket;
  changed.incarnation = 8;
  assert_false(ticket_is_genuine(&changed, key, ANN));
  changed = ticket;
  changed.worker = 4;
  assert_false(ticket_is_genuine(&changed, key, ANN));
  changed = ticket;
  changed.run[0] = 'M';
  assert_false(ticket_is_genuine(&changed, key, ANN));
  for (int bit = 0; bit < 8 * TICKET_MAC_BYTES; bit++) {
    changed = ticket;
    changed.mac[bit / 8] ^= (unsigned char)(1 << bit % 8);
    assert_false(ticket_is_genuine(&changed, key, ANN));
  }
}

/* What moves from one field to the next is signed otherwise. */
static void the_fields_of_a_ticket_do_not_run_together(void **state) {
  struct ticket one = read_back(&(struct ticket_owner){"run", 11, "a", 1}),
                two = read_back(&(struct ticket_owner){"run1", 1, "a", 1}),
                three = read_back(&(struct ticket_owner){"run", 1, "a", 11}),
                four = read_back(&(struct ticket_owner){"run", 1, "1a", 1});
  (void)state;
  assert_false(ticket_has_mac(&one, two.mac));
  assert_false(ticket_has_mac(&one, three.mac));
  assert_false(ticket_has_mac(&three, four.mac));
}

static void a_run_may_have_any_name(void **state) {
  struct ticket ticket = read_back(&(struct ticket_owner){"a/b/7/c-123456", UINT64_MAX, "", UINT32_MAX});
  (void)state;
  assert_string_equal(ticket.run, "a/b/7/c-123456");
  assert_true(ticket.incarnation == UINT64_MAX && ticket.worker == UINT32_MAX);
  assert_true(ticket_is_genuine(&ticket, key, ""));
}

static void what_is_no_ticket_is_refused(void **state) {
#define MAC "abababababababababababababababababababababababababababababababab"
  static const char *const bad[] = {"",
                                    "/",
                                    "//",
                                    "a/b",
                                    "run/7/3/",
                                    "7/3/" MAC,
                                    "run/7/" MAC,
                                    "run/7/3" MAC,
                                    "run//3/" MAC,
                                    "run/7//" MAC,
                                    "run/+7/3/" MAC,
                                    "run/07/3/" MAC,
                                    "run/ 7/3/" MAC,
                                    "run/7x/3/" MAC,
                                    "run/7/3x/" MAC,
                                    "run/7/03/" MAC,
                                    "run/7/3/" MAC "0",
                                    "run/-1/3/" MAC,
                                    "run/7/-1/" MAC,
                                    "run/7/4294967296/" MAC,
                                    "run/18446744073709551616/3/" MAC};
  char text[TICKET_TEXT_SIZE + TICKET_RUN_MAX], run[TICKET_RUN_MAX + 2];
  struct ticket ticket;
  struct err err;
  (void)state;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    assert_int_equal(ticket_read(bad[i], &ticket, &err), ERR_DENIED);
    assert_non_null(strstr(err.text, "RUN/INCARNATION/WORKER/MAC"));
  }
  snprintf(text, sizeof text, "run/7/3/%s", MAC);
  assert_int_equal(ticket_read(text, &ticket, &err), 0);
  text[strlen(text) - 1] = 'A'; /* digits are small */
  assert_int_equal(ticket_read(text, &ticket, &err), ERR_DENIED);
  memset(run, 'r', sizeof run);
  snprintf(text, sizeof text, "%.*s/7/3/%s", TICKET_RUN_MAX + 1, run, MAC);
  assert_int_equal(ticket_read(text, &ticket, &err), ERR_DENIED);
#undef MAC
}

static void the_key_of_workers_is_another(void **state) {
  unsigned char peers[TICKET_KEY_BYTES], others[TICKET_KEY_BYTES], other[TICKET_KEY_BYTES] = {0};
  struct ticket ticket = read_back(&(struct ticket_owner){"run", 1, ANN, 1});
  (void)state;
  ticket_derive_peer_key(key, peers);
  ticket_derive_peer_key(other, others);
  assert_memory_not_equal(peers, key, TICKET_KEY_BYTES);
  assert_memory_not_equal(peers, others, TICKET_KEY_BYTES);
  assert_false(ticket_is_genuine(&ticket, peers, ANN));
}

static void keys_of_runs_tell_nothing_of_each_other(void **state) {
  unsigned char secret[TICKET_KEY_BYTES], again[TICKET_KEY_BYTES], one[TICKET_KEY_BYTES],
      two[TICKET_KEY_BYTES];
  (void)state;
  ticket_draw_secret(secret);
  ticket_draw_secret(again);
  assert_memory_not_equal(secret, again, TICKET_KEY_BYTES);
  ticket_derive_key(secret, "mlp-aaaaaa", one);
  ticket_derive_key(secret, "mlp-bbbbbb", two);
  assert_memory_not_equal(one, two, TICKET_KEY_BYTES);
  assert_memory_not_equal(one, secret, TICKET_KEY_BYTES);
  ticket_derive_key(again, "mlp-aaaaaa", two);
  assert_memory_not_equal(one, two, TICKET_KEY_BYTES);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_ticket_is_the_hmac_that_others_compute),
      cmocka_unit_test(a_ticket_is_genuine_for_all_that_it_says_alone),
      cmocka_unit_test(the_fields_of_a_ticket_do_not_run_together),
      cmocka_unit_test(a_run_may_have_any_name),
      cmocka_unit_test(what_is_no_ticket_is_refused),
      cmocka_unit_test(the_key_of_workers_is_another),
      cmocka_unit_test(keys_of_runs_tell_nothing_of_each_other),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
