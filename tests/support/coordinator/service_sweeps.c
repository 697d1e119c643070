/* Sweeps of the coordinator of a service fixture. */
#include "tests/support/coordinator/service_fixture.h"

#include <stdlib.h>
#include <string.h>

#include "common/agree/spec.h"
#include "common/base/memory.h"
#include "common/base/message.h"
#include "common/specs/spec_text.h"
#include "tests/support/common/sweep_specs.h"

const char sweep_tries_text[] = "name: search\n"
                                "spec: base.yaml\n"
                                "search: {name: random, seed: 3}\n"
                                "budget: {trials: 500}\n"
                                "concurrency: 3\n"
                                "space:\n"
                                "  train.optimizer.lr: {log: [0.0001, 0.3]}\n";

void sweeps_prepare(struct service_fixture *f) {
  struct err err = ERR_NONE;
  const char *settings[] = {"data.split=[0.5, 0.5]"};
  char *text = spec_text(f->spec);
  spec_free(f->spec);
  assert_int_equal(
      spec_read_text(&(struct spec_source){.file = "spec", .settings = settings, .n_settings = 1}, text,
                     strlen(text), &f->spec, &err),
      0);
  assert_int_equal(spec_check(f->spec, &err), 0);
  free(text);
}

char *sweep_try(struct service_fixture *f, Weir__SweepSpec *sweep, struct err *err) {
  struct rpc_reader *reader = rpc_reader_open(f->channel, RPC_SUBMIT, patience_ms());
  Weir__SubmitRequest request = WEIR__SUBMIT_REQUEST__INIT;
  struct err ignored = ERR_NONE;
  request.spec = f->spec;
  request.sweep = sweep;
  request.model_bytes = f->onnx_bytes;
  rpc_reader_send(reader, &request, &ignored); /* a refusal shows in the reply */
  upload_add(reader, f->onnx, f->onnx_bytes);
  return upload_end(reader, err);
}

char *sweep_search(struct service_fixture *f, const char *text, const char *const *settings, int n) {
  struct err err = ERR_NONE;
  Weir__SweepSpec *sweep = sweep_spec_of(text, settings, n, &err);
  char *id;
  assert_string_equal(err.text, "");
  id = sweep_try(f, sweep, &err);
  assert_string_equal(err.text, "");
  assert_non_null(id);
  message_free(sweep);
  return id;
}

size_t sweeps_count(struct service_fixture *f) {
  Weir__ListSweepsRequest request = WEIR__LIST_SWEEPS_REQUEST__INIT;
  const struct rpc_question question = {RPC_LIST_SWEEPS, &request, patience_ms()};
  Weir__ListSweepsReply *reply = NULL;
  struct err err = ERR_NONE;
  size_t n;
  assert_int_equal(rpc_unary(f->channel, &question, false, (void **)&reply, &err), 0);
  n = reply->n_sweeps;
  message_free(reply);
  return n;
}

int sweeps_count_records(struct service_fixture *f) {
  struct store_names names = {0};
  struct err err = ERR_NONE;
  int n;
  assert_int_equal(store_list_records(f->store, "sweeps/", &names, &err), 0);
  n = names.count;
  store_names_fini(&names);
  return n;
}

Weir__SweepInfo *sweep_page(struct service_fixture *f, const char *sweep, uint32_t trial, uint64_t record) {
  Weir__GetSweepRequest request = WEIR__GET_SWEEP_REQUEST__INIT;
  const struct rpc_question question = {RPC_GET_SWEEP, &request, patience_ms()};
  Weir__SweepInfo *info = NULL;
  struct err err = ERR_NONE;
  request.sweep = (char *)sweep;
  request.has_records = true;
  request.first_trial = trial;
  request.first_record = record;
  if (rpc_unary(f->channel, &question, false, (void **)&info, &err))
    fail_msg("%s", err.text);
  return info;
}

uint32_t sweep_count_begun(struct service_fixture *f, const char *sweep) {
  Weir__SweepInfo *info = sweep_page(f, sweep, UINT32_MAX, UINT64_MAX);
  uint32_t begun = info->begun;
  assert_int_equal(info->n_trials, 0);
  assert_int_equal(info->n_records, 0);
  message_free(info);
  return begun;
}

uint64_t sweep_count_log(struct service_fixture *f, const char *sweep) {
  Weir__SweepInfo *info = sweep_page(f, sweep, UINT32_MAX, UINT64_MAX);
  uint64_t n = info->log_records;
  message_free(info);
  return n;
}

Weir__SweepInfo *sweep_change(struct service_fixture *f, enum rpc_method_id method, const void *request) {
  const struct rpc_question question = {method, request, patience_ms()};
  Weir__SweepInfo *info = NULL;
  struct err err = ERR_NONE;
  if (rpc_unary(f->channel, &question, false, (void **)&info, &err))
    fail_msg("%s", err.text);
  return info;
}
