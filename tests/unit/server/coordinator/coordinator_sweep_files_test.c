/* Sweeps of several model files over real RPC, with no member: their trials stay queued. */
#include <stdlib.h>
#include <string.h>

#include "client/models/model_kind.h"
#include "common/agree/float_setting.h"
#include "common/base/log.h"
#include "common/base/memory.h"
#include "common/base/message.h"
#include "storage/checkpoint/checkpoint.h"
#include "store.pb-c.h"
#include "tests/support/common/sweep_specs.h"
#include "tests/support/coordinator/service_fixture.h"
#include "tests/support/model/model_bytes.h"
#include "tests/support/storage/checkpoint_fixture.h"

extern const struct model_kind_def model_kind_mlp;

enum { ROOM = 64 * 1024, WIDE_PARAMS = (16 + 1) * 7 + (7 + 1) * 3 };

static const char files_text[] = "name: search\n"
                                 "spec: base.yaml\n"
                                 "search: {name: grid}\n"
                                 "concurrency: 1\n"
                                 "space: {model.onnx: {files: [same.onnx, wide.onnx]}}\n";

struct sweep_fixture {
  struct service_fixture *f;
  Weir__SweepSpec *spec;
  void *wide;
  size_t wide_bytes;
};

static int setup(void **state) {
  static const char *const options[] = {"--input", "1,4,4", "--classes", "3", "--hidden", "7", NULL};
  struct model_recipe recipe = {.kind = &model_kind_mlp, .options = options, .seed = 1};
  struct sweep_fixture *of = mem_new(sizeof *of);
  Weir__DataSpec *data;
  struct err err = ERR_NONE;
  service_setup((void **)&of->f);
  data = of->f->spec->data; /* what is submitted has an evaluation */
  data->n_split = 2;
  data->split = mem_new(2 * sizeof *data->split);
  data->split[0] = data->split[1] = 0.5;
  of->spec = sweep_spec_of(files_text, NULL, 0, &err);
  assert_string_equal(err.text, "");
  assert_int_equal(model_bytes(&recipe, &of->wide, &of->wide_bytes, &err), 0);
  *state = of;
  return 0;
}

static int teardown(void **state) {
  struct sweep_fixture *of = *state;
  service_teardown((void **)&of->f);
  message_free(of->spec);
  free(of->wide);
  free(of);
  return 0;
}

/* Begins as upload_begin(): the spec's model, then files of so many bytes. */
static struct rpc_reader *begin(struct sweep_fixture *of, uint64_t *file_bytes, size_t n) {
  struct rpc_reader *reader = rpc_reader_open(of->f->channel, RPC_SUBMIT, patience_ms());
  Weir__SubmitRequest request = WEIR__SUBMIT_REQUEST__INIT;
  struct err ignored = ERR_NONE;
  request.spec = of->f->spec;
  request.sweep = of->spec;
  request.model_bytes = of->f->onnx_bytes;
  request.file_bytes = file_bytes;
  request.n_file_bytes = n;
  rpc_reader_send(reader, &request, &ignored); /* a refusal shows in the reply */
  return reader;
}

/* The run's parameters, and that its model is this. */
static uint64_t check_run(struct service_fixture *f, const char *run, const void *onnx, size_t size) {
  static uint8_t got[ROOM];
  Weir__RunInfo *info;
  struct err err = ERR_NONE;
  uint64_t parameters;
  AWAIT(run_state(f, run) == WEIR__RUN_STATE__QUEUED);
  assert_int_equal(ask_run(f, RPC_GET_RUN, run, &info, &err), 0);
  parameters = info->parameters;
  message_free(info);
  assert_int_equal(download_run(f, RPC_GET_MODEL, run, (struct iovec){got, sizeof got}, &err), size);
  assert_memory_equal(got, onnx, size);
  return parameters;
}

/* Of the head in the store: what virtual time goes by. */
static void check_multiply_adds(struct service_fixture *f, const char *sweep) {
  char *name = mem_printf("sweeps/%s/sweep", sweep);
  Weir__SweepHead *head;
  struct err err = ERR_NONE;
  assert_int_equal(
      checkpoint_read_record(f->store, name, &weir__sweep_head__descriptor, (void **)&head, &err), 0);
  assert_int_equal(head->multiply_adds, 16 * 5 + 5 * 3);
  assert_int_equal(head->files[0]->multiply_adds, 16 * 5 + 5 * 3);
  assert_int_equal(head->files[1]->multiply_adds, 16 * 7 + 7 * 3);
  message_free(head);
  free(name);
}

/* Not before the runs of its trials have ended. */
static bool is_deleted(struct service_fixture *f, const char *sweep) {
  Weir__SweepRequest request = WEIR__SWEEP_REQUEST__INIT;
  struct err err = ERR_NONE;
  void *reply = NULL;
  request.sweep = (char *)sweep;
  rpc_unary(f->channel, &(struct rpc_question){RPC_DELETE_SWEEP, &request, patience_ms()}, false, &reply,
            &err);
  assert_true(err.code == 0 || err.code == ERR_BUSY);
  message_free(reply);
  return !err.code;
}

static char *upload(struct sweep_fixture *of) {
  struct service_fixture *f = of->f;
  uint64_t bytes[] = {0, of->wide_bytes}; /* the first one is the spec's */
  struct rpc_reader *reader = begin(of, bytes, 2);
  struct err err = ERR_NONE;
  char *id;
  upload_add(reader, f->onnx, f->onnx_bytes);
  upload_add(reader, of->wide, of->wide_bytes / 2);
  upload_add(reader, (char *)of->wide + of->wide_bytes / 2, of->wide_bytes - of->wide_bytes / 2);
  id = upload_end(reader, &err);
  assert_string_equal(err.text, "");
  return id;
}

static void ask_for(struct service_fixture *f, enum rpc_method_id method, const void *request) {
  struct err err = ERR_NONE;
  void *reply;
  if (rpc_unary(f->channel, &(struct rpc_question){method, request, patience_ms()}, false, &reply, &err))
    fail_msg("%s", err.text);
  message_free(reply);
}

static void each_trial_has_the_model_that_it_names_and_a_sweep_takes_them_along(void **state) {
  const Weir__CollectGarbageRequest collect = WEIR__COLLECT_GARBAGE_REQUEST__INIT;
  struct sweep_fixture *of = *state;
  struct service_fixture *f = of->f;
  Weir__RunRequest cancel = WEIR__RUN_REQUEST__INIT;
  Weir__SweepRequest stop = WEIR__SWEEP_REQUEST__INIT;
  char *id = upload(of), *first = mem_printf("%s-0000", id), *second = mem_printf("%s-0001", id);
  assert_int_equal(check_run(f, first, f->onnx, f->onnx_bytes), TINY_PARAMS);
  check_multiply_adds(f, id);
  ask_for(f, RPC_COLLECT_GARBAGE, &collect);
  seat_restart(f, true);                     /* a successor knows of the second model what the store has */
  ask_for(f, RPC_COLLECT_GARBAGE, &collect); /* no run needs it yet */
  assert_int_equal(stored_blocks(f), 2);
  assert_int_equal(check_run(f, first, f->onnx, f->onnx_bytes), TINY_PARAMS);
  cancel.run = first;
  ask_for(f, RPC_CANCEL, &cancel);
  assert_int_equal(check_run(f, second, of->wide, of->wide_bytes), WIDE_PARAMS);
  stop.sweep = id;
  ask_for(f, RPC_STOP_SWEEP, &stop);
  assert_int_equal(stored_blocks(f), 2);
  AWAIT(is_deleted(f, id));
  assert_int_equal(stored_blocks(f), 0);
  free(first);
  free(second);
  free(id);
}

static void assert_refused(struct sweep_fixture *of, struct rpc_reader *reader, const char *expected) {
  struct err err = ERR_NONE;
  assert_null(upload_end(reader, &err));
  assert_int_equal(err.code, ERR_INVALID);
  if (!strstr(err.text, expected))
    fail_msg("'%s' lacks '%s'", err.text, expected);
  assert_int_equal(stored_blocks(of->f), 0);
}

static void files_that_do_not_fit_the_space_are_refused(void **state) {
  struct sweep_fixture *of = *state;
  struct service_fixture *f = of->f;
  uint64_t bytes[] = {0, of->wide_bytes, 1}, huge[] = {UINT64_MAX, 1}, junk[] = {0, 4};
  struct rpc_reader *reader;
  assert_refused(of, begin(of, bytes, 1), "1 model files come, and the space has 2");
  assert_refused(of, begin(of, bytes, 3), "3 model files come, and the space has 2");
  assert_refused(of, begin(of, NULL, 0), "0 model files come, and the space has 2");
  assert_refused(of, begin(of, huge, 2), "a model of 18446744073709551615 bytes");
  reader = begin(of, bytes, 2);
  upload_add(reader, f->onnx, f->onnx_bytes);
  assert_refused(of, reader, "was announced with");
  reader = begin(of, bytes, 2); /* a chunk of two models */
  upload_add(reader, f->onnx, f->onnx_bytes - 1);
  upload_add(reader, of->wide, 2);
  assert_refused(of, reader, "more than the");
  reader = begin(of, bytes, 2);
  upload_add(reader, f->onnx, f->onnx_bytes);
  upload_add(reader, of->wide, of->wide_bytes);
  upload_add(reader, of->wide, 1);
  assert_refused(of, reader, "more than the");
  reader = begin(of, junk, 2);
  upload_add(reader, f->onnx, f->onnx_bytes);
  upload_add(reader, (char[]){"junk"}, 4);
  assert_refused(of, reader, "space.model.onnx: files: wide.onnx: ");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      TEST(each_trial_has_the_model_that_it_names_and_a_sweep_takes_them_along),
      TEST(files_that_do_not_fit_the_space_are_refused),
  };
  log_set_level(LOG_ERROR + 1);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
