/* Models with large tensors: members get an outline, and the pieces that they ask for. */
#include <stdlib.h>
#include <string.h>

#include "client/models/model_kind.h"
#include "common/agree/float_setting.h"
#include "common/base/log.h"
#include "common/base/message.h"
#include "model/graph/pieces.h"
#include "model/onnx/onnx_outline.h"
#include "storage/checkpoint/checkpoint.h"
#include "tests/support/coordinator/service_members.h"
#include "tests/support/model/model_bytes.h"
#include "tests/support/storage/flaky_store.h"

extern const struct model_kind_def model_kind_mlp;

enum { PIECES = 2, KEYS_MAX = 16, ROOM = 1 << 20, CALLS_MAX = 64, CALLS = CALLS_MAX + 16 };

/* In place of the fixture's model one whose first layer has two pieces. */
static int pieces_setup(void **state) {
  static const char *const options[] = {"--input", "784", "--classes", "3", "--hidden", "100", NULL};
  struct model_recipe recipe = {.kind = &model_kind_mlp, .options = options, .seed = 1};
  struct err err = ERR_NONE;
  struct service_fixture *f;
  void *onnx;
  service_setup(state);
  f = *state;
  free(f->onnx);
  assert_int_equal(model_bytes(&recipe, &onnx, &f->onnx_bytes, &err), 0);
  f->onnx = onnx;
  return 0;
}

static void outline_of(const struct service_fixture *f, struct onnx_outline *outline) {
  onnx_outline_make(f->onnx, f->onnx_bytes, outline);
  assert_int_equal(outline->n_places, PIECES);
}

/* Keys that are asked for. */
struct wanted {
  char **keys;
  size_t n;
};

/* As download_chunks, of these pieces. */
static long download_pieces(struct service_fixture *f, const char *run, struct wanted wanted,
                            struct iovec out, struct err *err) {
  Weir__PiecesRequest request = WEIR__PIECES_REQUEST__INIT;
  request.run = (char *)run;
  request.keys = wanted.keys;
  request.n_keys = wanted.n;
  return download_chunks(f, RPC_FETCH_PIECES, &request, out, err);
}

static void expect_model(struct service_fixture *f, const char *id, const struct onnx_outline *outline) {
  static uint8_t got[ROOM];
  struct iovec room = {got, sizeof got};
  char *keys[PIECES] = {outline->places[1].key, outline->places[0].key};
  struct err err = ERR_NONE;
  assert_int_equal(download_run(f, RPC_FETCH_MODEL, id, room, &err), outline->size_bytes);
  assert_memory_equal(got, outline->bytes, outline->size_bytes);
  AWAIT(download_pieces(f, id, (struct wanted){keys, PIECES}, room, &err) >
        0); /* once it has read the file */
  assert_memory_equal(got, outline->places[1].data, outline->places[1].size_bytes);
  assert_memory_equal(got + outline->places[1].size_bytes, outline->places[0].data,
                      outline->places[0].size_bytes);
  assert_int_equal(download_run(f, RPC_GET_MODEL, id, room, &err), f->onnx_bytes);
  assert_memory_equal(got, f->onnx, f->onnx_bytes);
}

static void members_get_an_outline_and_its_pieces_and_clients_the_file(void **state) {
  struct service_fixture *f = *state;
  struct rpc_reader *server = member_join(f, WEIR__ROLE__SERVER),
                    *worker = member_join(f, WEIR__ROLE__WORKER);
  struct onnx_outline outline;
  char *id = submit_run(f), sha256[SHA256_HEX_SIZE];
  Weir__Order *order = expect_order(worker, WEIR__ORDER__BODY_LOAD);
  outline_of(f, &outline);
  sha256_hex(outline.bytes, outline.size_bytes, sha256);
  assert_string_equal(order->load->outline_sha256, sha256);
  assert_int_equal(order->load->outline_bytes, outline.size_bytes);
  sha256_hex(f->onnx, f->onnx_bytes, sha256);
  assert_string_equal(order->load->model_sha256, sha256);
  expect_model(f, id, &outline);
  message_free(order);
  rpc_reader_close(server);
  rpc_reader_close(worker);
  seat_restart(f, true); /* now from the store */
  expect_model(f, id, &outline);
  onnx_outline_fini(&outline);
  free(id);
}

static void a_model_is_given_to_those_with_a_ticket_of_its_run_alone(void **state) {
  struct service_fixture *f = *state;
  static uint8_t got[ROOM];
  struct iovec room = {got, sizeof got};
  struct onnx_outline outline;
  char *id = submit_run(f), *keys[PIECES], genuine[TICKET_TEXT_SIZE], *other;
  struct err err;
  outline_of(f, &outline);
  for (int i = 0; i < PIECES; i++)
    keys[i] = outline.places[i].key;
  strcpy(genuine, f->ticket);
  other = submit_run(f); /* with it f->ticket is that one's */
  for (int i = 0; i < 3; i++) {
    assert_int_equal(download_run(f, RPC_FETCH_MODEL, id, room, &err), -1);
    assert_int_equal(err.code, ERR_DENIED);
    assert_int_equal(download_pieces(f, id, (struct wanted){keys, PIECES}, room, &err), -1);
    assert_int_equal(err.code, ERR_DENIED);
    if (i == 0) {
      strcpy(f->ticket, genuine);
      f->ticket[strlen(genuine) - 1] ^= 1;
    } else
      *f->ticket = 0; /* none */
  }
  assert_int_equal(download_run(f, RPC_GET_MODEL, id, room, &err), f->onnx_bytes);
  strcpy(f->ticket, genuine);
  assert_int_equal(download_run(f, RPC_FETCH_MODEL, id, room, &err), outline.size_bytes);
  onnx_outline_fini(&outline);
  free(other);
  free(id);
}

static void a_call_without_a_ticket_is_refused_before_its_message_comes(void **state) {
  static const enum rpc_method_id methods[] = {RPC_FETCH_MODEL, RPC_FETCH_PIECES, RPC_FETCH_LAYOUT,
                                               RPC_FETCH_BATCH};
  static const char *const tickets[] = {NULL, "nonsense"};
  struct service_fixture *f = *state;
  for (int m = 0; m < 4; m++)
    for (int i = 0; i < 2; i++) {
      struct rpc_reader *reader = rpc_reader_open_with(f->channel, methods[m], patience_ms(), tickets[i]);
      struct err err = ERR_NONE;
      void *reply;
      assert_int_equal(rpc_reader_next(reader, &reply, &err), ERR_DENIED);
      assert_non_null(strstr(err.text, "ticket"));
      rpc_reader_close(reader);
    }
}

static void pieces_that_nobody_may_have_are_refused(void **state) {
  struct service_fixture *f = *state;
  static uint8_t got[ROOM];
  struct iovec room = {got, sizeof got};
  struct onnx_outline outline;
  struct err err;
  char *id = submit_run(f), *many[KEYS_MAX + 1], other[SHA256_HEX_SIZE];
  char *bad[] = {"", "..", "zz", other};
  Weir__RunInfo *info;
  outline_of(f, &outline);
  for (int i = 0; i <= KEYS_MAX; i++)
    many[i] = outline.places[0].key;
  sha256_hex(f->onnx, f->onnx_bytes, other); /* a block of the store, and no piece */
  for (int i = 0; i < 4; i++) {
    assert_int_equal(download_pieces(f, id, (struct wanted){&bad[i], 1}, room, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_non_null(strstr(err.text, "has no piece"));
  }
  assert_int_equal(download_pieces(f, id, (struct wanted){many, KEYS_MAX + 1}, room, &err), -1);
  assert_int_equal(err.code, ERR_INVALID);
  assert_int_equal(download_pieces(f, "nobody", (struct wanted){many, 1}, room, &err), -1);
  assert_int_equal(err.code, ERR_NOT_FOUND);
  assert_int_equal(download_pieces(f, id, (struct wanted){many, 0}, room, &err), 0);
  assert_int_equal(ask_run(f, RPC_CANCEL, id, &info, &err), 0);
  message_free(info);
  assert_int_equal(download_pieces(f, id, (struct wanted){many, 1}, room, &err), -1);
  assert_int_equal(err.code, ERR_NOT_FOUND);
  onnx_outline_fini(&outline);
  free(id);
}

/* Calls for pieces; atomic. */
static int n_ended, n_busy;

static void on_call_done(struct rpc_request *request, const struct err *err, const void *reply,
                         struct rpc_bytes *bytes) {
  (void)request;
  (void)reply;
  rpc_bytes_free(bytes);
  __atomic_add_fetch(&n_busy, err->code == ERR_BUSY, __ATOMIC_ACQ_REL);
  __atomic_add_fetch(&n_ended, 1, __ATOMIC_ACQ_REL);
}

static int count_calls(const int *counter) {
  return __atomic_load_n(counter, __ATOMIC_ACQUIRE);
}

/* Their model is read from a store that is slow. */
static void calls_for_pieces_beyond_a_bound_are_refused_at_once(void **state) {
  struct service_fixture *f = *state;
  static struct rpc_request calls[CALLS];
  Weir__PiecesRequest request = WEIR__PIECES_REQUEST__INIT;
  char *id = submit_run(f), key[SHA256_HEX_SIZE], *keys[] = {key};
  Weir__RunInfo *info;
  struct err err;
  sha256_hex("", 0, key);
  assert_int_equal(ask_run(f, RPC_CANCEL, id, &info, &err), 0); /* so that the model is in the store alone */
  message_free(info);
  flaky_hold_reads(f->seat.store, true);
  request.run = id;
  request.keys = keys;
  request.n_keys = 1;
  for (int i = 0; i < CALLS; i++) {
    calls[i].on_done = on_call_done;
    calls[i].ticket = f->ticket;
    rpc_request_start(&calls[i], f->channel, &(struct rpc_question){RPC_FETCH_PIECES, &request, -1}, NULL);
  }
  AWAIT(count_calls(&n_ended) == CALLS - CALLS_MAX); /* it is the last that each of them counts in */
  assert_int_equal(count_calls(&n_busy), CALLS - CALLS_MAX);
  flaky_hold_reads(f->seat.store, false);
  AWAIT(count_calls(&n_ended) == CALLS);
  assert_int_equal(count_calls(&n_busy), CALLS - CALLS_MAX);
  AWAIT(download_pieces(f, id, (struct wanted){keys, 1}, (struct iovec){NULL, 0}, &err) < 0 &&
        err.code == ERR_NOT_FOUND); /* there is room again */
  free(id);
}

static void an_outline_whose_pieces_are_not_there_is_refused(void **state) {
  struct service_fixture *f = *state;
  struct onnx_outline outline;
  struct rpc_reader *reader;
  struct err err;
  outline_of(f, &outline);
  reader = upload_begin(f, f->spec, outline.size_bytes);
  upload_add(reader, outline.bytes, outline.size_bytes);
  assert_null(upload_end(reader, &err));
  assert_int_equal(err.code, ERR_INVALID);
  assert_non_null(strstr(err.text, "it names 2 pieces, and none was sent"));
  assert_int_equal(stored_blocks(f), 0);
  onnx_outline_fini(&outline);
}

/* An upload of the outline as a file that names pieces. */
static struct rpc_reader *pieces_begin(struct service_fixture *f, const struct onnx_outline *outline) {
  struct rpc_reader *reader = rpc_reader_open(f->channel, RPC_SUBMIT, patience_ms());
  Weir__SubmitRequest request = WEIR__SUBMIT_REQUEST__INIT;
  struct err err = ERR_NONE;
  request.spec = f->spec;
  request.model_bytes = outline->size_bytes;
  request.has_pieces = true;
  rpc_reader_send(reader, &request, &err);
  upload_add(reader, outline->bytes, outline->size_bytes);
  return reader;
}

/* The next reply; NULL with err set. */
static Weir__SubmitReply *pieces_next(struct rpc_reader *reader, struct err *err) {
  void *reply = NULL;
  *err = ERR_NONE;
  return rpc_reader_next(reader, &reply, err) ? NULL : reply;
}

static void send_piece(struct rpc_reader *reader, const void *data, size_t size) {
  Weir__SubmitRequest request = WEIR__SUBMIT_REQUEST__INIT;
  struct err err = ERR_NONE;
  request.piece = (ProtobufCBinaryData){size, (uint8_t *)data};
  rpc_reader_send(reader, &request, &err);
}

/* Sends what is asked for until the run is there. Returns its id and how many pieces that took. */
static char *upload_pieces(struct service_fixture *f, const struct onnx_outline *outline, int *n_sent) {
  struct rpc_reader *reader = pieces_begin(f, outline);
  Weir__SubmitReply *reply;
  struct err err;
  char *id = NULL;
  *n_sent = 0;
  while (!id && (reply = pieces_next(reader, &err))) {
    assert_true(reply->n_wanted > 0 || *reply->run);
    for (size_t i = 0; i < reply->n_wanted; i++, ++*n_sent) {
      const struct piece_place *place = onnx_outline_find(outline, reply->wanted[i]);
      assert_non_null(place);
      send_piece(reader, place->data, place->size_bytes);
    }
    if (*reply->run)
      id = mem_strdup(reply->run);
    message_free(reply);
  }
  if (!id)
    fail_msg("%s", err.text);
  rpc_reader_close(reader);
  return id;
}

static void pieces_that_the_store_has_are_not_asked_for_again(void **state) {
  struct service_fixture *f = *state;
  Weir__CollectGarbageRequest request = WEIR__COLLECT_GARBAGE_REQUEST__INIT;
  struct rpc_question question = {RPC_COLLECT_GARBAGE, &request, patience_ms()};
  static uint8_t got[ROOM];
  struct iovec room = {got, sizeof got};
  struct onnx_outline outline;
  Weir__RunInfo *info;
  struct err err = ERR_NONE;
  char *ids[2], *keys[PIECES];
  void *reply;
  int n_sent;
  outline_of(f, &outline);
  ids[0] = upload_pieces(f, &outline, &n_sent);
  assert_int_equal(n_sent, PIECES);
  assert_int_equal(stored_blocks(f), 1 + PIECES);
  ids[1] = upload_pieces(f, &outline, &n_sent);
  take_ticket(f, ids[1]);
  assert_int_equal(n_sent, 0);
  assert_int_equal(download_run(f, RPC_GET_MODEL, ids[1], room, &err), outline.size_bytes);
  assert_memory_equal(got, outline.bytes, outline.size_bytes);
  for (int i = 0; i < PIECES; i++)
    keys[i] = outline.places[i].key;
  assert_true(download_pieces(f, ids[1], (struct wanted){keys, PIECES}, room, &err) > 0);
  assert_memory_equal(got, outline.places[0].data, outline.places[0].size_bytes);
  seat_restart(f, true);        /* references are counted anew, and the model is read from the store */
  for (int i = 0; i < 2; i++) { /* the second one still refers to them when the first goes */
    assert_int_equal(ask_run(f, RPC_CANCEL, ids[i], &info, &err), 0);
    message_free(info);
    if (i == 0)
      AWAIT(download_pieces(f, ids[1], (struct wanted){keys, PIECES}, room, &err) > 0);
    request.runs = &ids[i];
    request.n_runs = 1;
    assert_int_equal(rpc_unary(f->channel, &question, false, &reply, &err), 0);
    message_free(reply);
    assert_int_equal(stored_blocks(f), i == 0 ? 1 + PIECES : 0);
  }
  onnx_outline_fini(&outline);
  free(ids[0]);
  free(ids[1]);
}

/* What a client does in place of sending the pieces that it is asked for. */
enum harm { WRONG_BYTES, WRONG_SIZE, WRONG_ORDER, A_CHUNK, ENDS, GOES, HARMS };

static void do_harm(struct rpc_reader *reader, const struct onnx_outline *outline,
                    const Weir__SubmitReply *reply, enum harm harm) {
  const struct piece_place *one = onnx_outline_find(outline, reply->wanted[0]),
                           *two = onnx_outline_find(outline, reply->wanted[1]);
  char *wrong = mem_new(one->size_bytes + 1);
  memcpy(wrong, one->data, one->size_bytes);
  wrong[7] ^= 1;
  if (harm == WRONG_BYTES) {
    send_piece(reader, wrong, one->size_bytes);
    send_piece(reader, two->data, two->size_bytes);
  } else if (harm == WRONG_SIZE) {
    send_piece(reader, wrong, one->size_bytes + 1);
  } else if (harm == WRONG_ORDER) {
    send_piece(reader, two->data, two->size_bytes);
    send_piece(reader, one->data, one->size_bytes);
  } else if (harm == A_CHUNK) {
    upload_add(reader, wrong, 10);
  } else if (harm == ENDS) {
    send_piece(reader, one->data, one->size_bytes);
    rpc_reader_half_close(reader);
  }
  free(wrong);
}

static void a_client_that_means_harm_leaves_nothing_behind(void **state) {
  static const char *const texts[] = {"came with the sha256", "has not the size", "has not the size",
                                      "more came than the file", "ended, and 2 pieces are missing"};
  struct service_fixture *f = *state;
  struct onnx_outline outline;
  outline_of(f, &outline);
  for (enum harm harm = 0; harm < HARMS; harm++) {
    struct rpc_reader *reader = pieces_begin(f, &outline);
    Weir__SubmitReply *reply;
    struct err err;
    reply = pieces_next(reader, &err);
    assert_non_null(reply);
    assert_int_equal(reply->n_wanted, PIECES);
    assert_int_equal(reply->missing, PIECES);
    do_harm(reader, &outline, reply, harm);
    message_free(reply);
    if (harm != GOES) {
      assert_null(pieces_next(reader, &err));
      assert_int_equal(err.code, ERR_INVALID);
      if (!strstr(err.text, texts[harm]))
        fail_msg("harm %d: '%s'", harm, err.text);
    }
    rpc_reader_close(reader);
    AWAIT(stored_blocks(f) == 0);
  }
  free(submit_run(f)); /* no place is taken */
  onnx_outline_fini(&outline);
}

static void a_piece_that_nobody_asked_for_ends_an_upload(void **state) {
  struct service_fixture *f = *state;
  Weir__SubmitRequest request = WEIR__SUBMIT_REQUEST__INIT;
  struct onnx_outline outline;
  struct rpc_reader *reader = rpc_reader_open(f->channel, RPC_SUBMIT, patience_ms());
  struct err err = ERR_NONE;
  outline_of(f, &outline);
  request.spec = f->spec;
  request.model_bytes = outline.size_bytes;
  request.has_pieces = true;
  rpc_reader_send(reader, &request, &err);
  upload_add(reader, outline.bytes, outline.size_bytes / 2);
  send_piece(reader, outline.places[0].data, outline.places[0].size_bytes);
  assert_null(pieces_next(reader, &err));
  assert_int_equal(err.code, ERR_INVALID);
  assert_non_null(strstr(err.text, "not asked for"));
  rpc_reader_close(reader);
  assert_int_equal(stored_blocks(f), 0);
  onnx_outline_fini(&outline);
}

static void a_run_that_is_deleted_takes_its_outline_along(void **state) {
  struct service_fixture *f = *state;
  Weir__CollectGarbageRequest request = WEIR__COLLECT_GARBAGE_REQUEST__INIT;
  struct rpc_question question = {RPC_COLLECT_GARBAGE, &request, patience_ms()};
  char *id = submit_run(f);
  Weir__RunInfo *info;
  void *reply;
  struct err err = ERR_NONE;
  assert_int_equal(stored_blocks(f), 2);
  assert_int_equal(rpc_unary(f->channel, &question, false, &reply, &err), 0); /* a sweep leaves both */
  message_free(reply);
  assert_int_equal(stored_blocks(f), 2);
  assert_int_equal(ask_run(f, RPC_CANCEL, id, &info, &err), 0);
  message_free(info);
  request.runs = &id;
  request.n_runs = 1;
  assert_int_equal(rpc_unary(f->channel, &question, false, &reply, &err), 0);
  message_free(reply);
  assert_int_equal(stored_blocks(f), 0);
  free(id);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(members_get_an_outline_and_its_pieces_and_clients_the_file,
                                      pieces_setup, service_teardown),
      cmocka_unit_test_setup_teardown(a_model_is_given_to_those_with_a_ticket_of_its_run_alone, pieces_setup,
                                      service_teardown),
      cmocka_unit_test_setup_teardown(a_call_without_a_ticket_is_refused_before_its_message_comes,
                                      pieces_setup, service_teardown),
      cmocka_unit_test_setup_teardown(pieces_that_nobody_may_have_are_refused, pieces_setup,
                                      service_teardown),
      cmocka_unit_test_setup_teardown(calls_for_pieces_beyond_a_bound_are_refused_at_once, pieces_setup,
                                      service_teardown),
      cmocka_unit_test_setup_teardown(an_outline_whose_pieces_are_not_there_is_refused, pieces_setup,
                                      service_teardown),
      cmocka_unit_test_setup_teardown(a_run_that_is_deleted_takes_its_outline_along, pieces_setup,
                                      service_teardown),
      cmocka_unit_test_setup_teardown(pieces_that_the_store_has_are_not_asked_for_again, pieces_setup,
                                      service_teardown),
      cmocka_unit_test_setup_teardown(a_client_that_means_harm_leaves_nothing_behind, pieces_setup,
                                      service_teardown),
      cmocka_unit_test_setup_teardown(a_piece_that_nobody_asked_for_ends_an_upload, pieces_setup,
                                      service_teardown),
  };
  float_setting_apply();
  log_set_level(LOG_ERROR);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
