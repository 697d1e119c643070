#include "tests/support/parameters/restore_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/base/memory.h"
#include "common/base/message.h"
#include "tests/support/common/patience.h"
#include "tests/support/model/model_bytes.h"
#include "tests/support/parameters/parameters_calls.h"

char *commit_version(struct store *store, const Weir__BlocksWritten *written, const char *model_sha256) {
  Weir__LoadRun order = *make_order(1, 1);
  order.model_sha256 = (char *)model_sha256;
  return commit_version_of(store, &order, written, 0);
}

char *commit_version_of(struct store *store, const Weir__LoadRun *order, const Weir__BlocksWritten *written,
                        uint32_t versions_before) {
  Weir__Manifest manifest = WEIR__MANIFEST__INIT;
  char *name = checkpoint_name("unit-1", written->step);
  struct err err;
  size_t size;
  uint8_t *packed;
  manifest.run = (char *)"unit-1";
  manifest.spec = order->spec;
  manifest.plan = order->plan;
  manifest.model_sha256 = order->model_sha256;
  manifest.incarnation = 1;
  manifest.step = written->step;
  manifest.versions_before = versions_before;
  manifest.n_blocks = written->n_blocks;
  manifest.blocks = written->blocks;
  size = weir__manifest__get_packed_size(&manifest);
  packed = mem_new(size);
  weir__manifest__pack(&manifest, packed);
  if (store_put_record(store, &(struct store_record){name, packed, size, NULL}, &err))
    fail_msg("%s", err.text);
  free(packed);
  return name;
}

void restore_fixture_init(struct restore_fixture *f, uint64_t version) {
  restore_fixture_init_order(f, make_order(1, 1), version);
}

void restore_fixture_init_order(struct restore_fixture *f, const Weir__LoadRun *run, uint64_t version) {
  *f = (struct restore_fixture){.version = version, .pauses_max = 1000, .patience_ms = 7 * 24 * 3600 * 1000};
  snapshot_fixture_init_order(&f->snapshots, run);
  sha256_hex(f->snapshots.server.model, f->snapshots.server.model_bytes, f->model_sha256);
  for (uint64_t step = 0; step < version; step++)
    push_version(&f->snapshots.server, step);
  order_snapshot(&f->snapshots, version);
  f->manifest =
      commit_version(&f->snapshots.store.base, wait_written(&f->snapshots, 1, version), f->model_sha256);
}

void restore_fixture_fini(struct restore_fixture *f) {
  free(f->manifest);
  snapshot_fixture_fini(&f->snapshots);
}

static bool count_pause(void *user, int pause_ms) {
  struct restore_fixture *f = user;
  (void)pause_ms; /* nobody waits: how long is not what the tests are about */
  return ++f->n_pauses < f->pauses_max;
}

int restore_run(struct restore_fixture *f, size_t servers, const char *own_id, struct hosted_run **run,
                struct err *err) {
  struct restore restore = {
      .store = &f->snapshots.store.base, .patience_ms = f->patience_ms, .pause = count_pause, .user = f};
  Weir__LoadRun order = *make_order(2, servers);
  struct restored restored;
  Weir__Manifest *manifest;
  int code;
  *run = NULL;
  order.step = f->version;
  order.manifest = f->manifest;
  order.model_sha256 = f->model_sha256;
  code = restore_manifest(&restore, &order, &manifest, err);
  if (code)
    return code;
  code = make_run(&f->snapshots.server, &order, own_id, run, err);
  if (!code)
    code = restore_blocks(&restore, *run, manifest, &restored, err);
  message_free(manifest);
  if (code)
    hosted_run_put(*run);
  return code;
}
