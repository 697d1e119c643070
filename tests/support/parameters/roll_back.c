#include "tests/support/parameters/roll_back.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/base/message.h"
#include "tests/support/parameters/restore_fixture.h"

static bool never(void *user, int pause_ms) {
  (void)user, (void)pause_ms;
  return false;
}

int roll_back_load(struct snapshot_fixture *f, const struct roll_back *from, struct hosted_run **run,
                   struct err *err) {
  struct restore restore = {.store = &f->store.base, .pause = never};
  Weir__LoadRun order = *from->order;
  char model_sha256[SHA256_HEX_SIZE];
  struct restored restored;
  Weir__Manifest *manifest;
  int code;
  *run = NULL;
  sha256_hex(f->server.model, f->server.model_bytes, model_sha256);
  order.incarnation = 2;
  order.step = from->written->step;
  order.model_sha256 = model_sha256;
  order.manifest = commit_version_of(&f->store.base, &order, from->written, from->versions_before);
  code = restore_manifest(&restore, &order, &manifest, err);
  if (!code) {
    code = make_run(&f->server, &order, "server-1", run, err);
    if (!code)
      code = restore_blocks(&restore, *run, manifest, &restored, err);
    message_free(manifest);
  }
  free(order.manifest);
  if (code)
    hosted_run_put(*run);
  return code;
}

void roll_back_to(struct snapshot_fixture *f, struct hosted_run *run) {
  struct err err;
  run->incarnation = 1; /* what the fixture's workers say */
  run_table_remove(&f->server.runs, "unit-1", "it is rolled back");
  report_log_open(&run->log, 1, 0);
  report_log_resume(&run->log);
  assert_int_equal(run_table_add(&f->server.runs, run, &err), 0);
  hosted_run_put(f->run);
  f->run = hosted_run_get(run);
}
