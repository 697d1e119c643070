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

extern const struct model_kind_def model_kind_mlp;

enum { PIECES = 2, KEYS_MAX = 16, ROOM = 1 << 20 };

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
  Weir__FetchPiecesRequest request = WEIR__FETCH_PIECES_REQUEST__INIT;
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

static int count_block(void *user, const char *key, uint64_t size_bytes) {
  (void)key;
  (void)size_bytes;
  ++*(int *)user;
  return 0;
}

static int stored_blocks(const struct service_fixture *f) {
  struct err err = ERR_NONE;
  int n = 0;
  assert_int_equal(store_list_blocks(f->store, count_block, &n, &err), 0);
  return n;
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
  assert_non_null(strstr(err.text, "was not sent"));
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
      cmocka_unit_test_setup_teardown(pieces_that_nobody_may_have_are_refused, pieces_setup,
                                      service_teardown),
      cmocka_unit_test_setup_teardown(an_outline_whose_pieces_are_not_there_is_refused, pieces_setup,
                                      service_teardown),
      cmocka_unit_test_setup_teardown(a_run_that_is_deleted_takes_its_outline_along, pieces_setup,
                                      service_teardown),
  };
  float_setting_apply();
  log_set_level(LOG_ERROR);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
