/* What crosses between stages of a run comes from workers that have a ticket of it, and from nobody else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "common/base/log.h"
#include "common/certs/ticket.h"
#include "tests/support/worker/worker_fixture.h"
#include "worker/hosting.h"

enum { RUNS = 3 };
static char *const names[RUNS] = {"run-0", "run-1", "run-2"};
static const unsigned char keys[RUNS][TICKET_KEY_BYTES] = {"of run-0's workers, 32 bytes....",
                                                           "of run-1's workers, 32 bytes...."};
static const char ann[] = "spiffe://weir/worker/ann";

/* Each fixture is a run. */
struct runs {
  struct worker_fixture *f[RUNS];
  struct device_choice device;
  struct hosting *hosting;
};

static void on_send(void *user, const Weir__MemberMessage *message) {
  struct runs *r = user;
  const char *run = message->body_case == WEIR__MEMBER_MESSAGE__BODY_LOADED    ? message->loaded->run
                    : message->body_case == WEIR__MEMBER_MESSAGE__BODY_REFUSED ? message->refused->run
                                                                               : NULL;
  for (int i = 0; i < RUNS && run; i++)
    if (strcmp(run, names[i]) == 0)
      fixture_on_told(r->f[i], message);
}

static int start(void **state) {
  struct runs *r = mem_new(sizeof *r);
  for (int i = 0; i < RUNS; i++)
    r->f[i] = fixture_new(false);
  r->device = (struct device_choice){.backend = backend_find("ref"), .name = "cpu"};
  r->hosting = hosting_new(&(struct hosting_options){.client = r->f[0]->client,
                                                     .device = &r->device,
                                                     .data_root = {.path = "/"},
                                                     .executors = 1,
                                                     .readers = 1,
                                                     .send = on_send,
                                                     .user = r});
  *state = r;
  return 0;
}

static int stop(void **state) {
  struct runs *r = *state;
  hosting_end(r->hosting);
  hosting_free(r->hosting);
  for (int i = 0; i < RUNS; i++)
    fixture_free(r->f[i]);
  free(r);
  return 0;
}

static bool is_answered(const struct worker_fixture *f) {
  return f->n_loaded > 0 || f->is_refused;
}

/* Run i, whose workers have its key. */
static void load(struct runs *r, int i, bool has_key) {
  Weir__LoadRun order = fixture_order(r->f[i], 1);
  order.run = names[i];
  if (has_key)
    order.peer_key = (ProtobufCBinaryData){TICKET_KEY_BYTES, (uint8_t *)keys[i]};
  hosting_load(r->hosting, &order, r->f[i]->channel);
  fixture_wait(r->f[i], is_answered);
}

/* Ann's. */
static const char *ticket_of(const unsigned char key[TICKET_KEY_BYTES], const char *run,
                             uint64_t incarnation) {
  static char text[TICKET_TEXT_SIZE];
  ticket_make(key, &(struct ticket_owner){run, incarnation, ann, 2}, text);
  return text;
}

/* What a call with the ticket comes to, of a piece of the run that no team here waits for. */
static int send_piece(struct runs *r, const char *ticket, const char *holder, int run) {
  Weir__BoundaryPiece piece = WEIR__BOUNDARY_PIECE__INIT;
  struct err err = ERR_NONE;
  piece.run = names[run];
  piece.incarnation = 1;
  if (hosting_admit_peer(r->hosting, ticket, holder, &err) == 0)
    hosting_take_boundary(r->hosting, ticket, &piece, NULL, &err);
  return err.code;
}

static void pieces_come_from_workers_with_a_ticket_of_their_run_alone(void **state) {
  struct runs *r = *state;
  load(r, 0, true);
  load(r, 1, true);
  assert_int_equal(send_piece(r, ticket_of(keys[0], "run-0", 1), ann, 0), ERR_BUSY); /* it was looked at */
  assert_int_equal(send_piece(r, NULL, ann, 0), ERR_DENIED);
  assert_int_equal(send_piece(r, "nonsense", ann, 0), ERR_DENIED);
  assert_int_equal(send_piece(r, ticket_of(keys[0], "run-0", 1), "spiffe://weir/worker/eve", 0), ERR_DENIED);
  assert_int_equal(send_piece(r, ticket_of(keys[1], "run-0", 1), ann, 0), ERR_DENIED);
  assert_int_equal(send_piece(r, ticket_of(keys[1], "run-1", 1), ann, 0), ERR_DENIED);
  assert_int_equal(send_piece(r, ticket_of(keys[0], "run-0", 2), ann, 0), ERR_DENIED); /* the piece is of 1 */
  assert_int_equal(send_piece(r, ticket_of(keys[2], "run-2", 1), ann, 2), ERR_BUSY); /* it is not here yet */
}

/* Before any of its message is read. */
static void a_call_without_a_ticket_is_refused_where_all_runs_have_a_key(void **state) {
  struct runs *r = *state;
  struct err err = ERR_NONE;
  load(r, 0, true);
  assert_int_equal(hosting_admit_peer(r->hosting, NULL, ann, &err), ERR_DENIED);
  assert_int_equal(hosting_admit_peer(r->hosting, ticket_of(keys[1], "run-0", 1), ann, &err), ERR_DENIED);
  err = ERR_NONE;
  assert_int_equal(hosting_admit_peer(r->hosting, ticket_of(keys[0], "run-0", 1), ann, &err), 0);
}

static void a_run_whose_coordinator_gives_no_tickets_opens_no_other(void **state) {
  struct runs *r = *state;
  load(r, 0, true);
  load(r, 2, false);
  assert_int_equal(send_piece(r, NULL, ann, 2), ERR_BUSY);
  assert_int_equal(send_piece(r, NULL, ann, 0), ERR_DENIED);
  assert_int_equal(send_piece(r, ticket_of(keys[0], "run-2", 1), ann, 0), ERR_DENIED);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)
  const struct CMUnitTest tests[] = {
      TEST(pieces_come_from_workers_with_a_ticket_of_their_run_alone),
      TEST(a_call_without_a_ticket_is_refused_where_all_runs_have_a_key),
      TEST(a_run_whose_coordinator_gives_no_tickets_opens_no_other),
  };
#undef TEST
  float_setting_apply();
  log_set_level(LOG_ERROR + 1);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
