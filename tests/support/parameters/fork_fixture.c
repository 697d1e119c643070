#include "tests/support/parameters/fork_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/spec.h"
#include "common/base/message.h"
#include "server/parameters/load/adopt.h"

void fork_fixture_init(struct fork_fixture *f, const Weir__LoadRun *order, uint64_t version) {
  struct store *store = &f->parent.snapshots.store.base;
  Weir__LoadRun load = *order;
  char model_sha256[SHA256_HEX_SIZE];
  Weir__Manifest *manifest;
  Weir__RunSpec *other;
  struct err err;
  void *model;
  size_t model_bytes;
  make_model(&model, &model_bytes);
  sha256_hex(model, model_bytes, model_sha256);
  free(model);
  load.model_sha256 = model_sha256;
  f->spec = spec_copy(order->spec);
  restore_fixture_init_order(&f->parent, &load, version);
  if (checkpoint_read(store, f->parent.manifest, &manifest, &err))
    fail_msg("%s", err.text);
  other = manifest->spec;
  manifest->spec = f->spec;
  if (checkpoint_write_record(store, f->parent.manifest, manifest, NULL, &err))
    fail_msg("%s", err.text);
  manifest->spec = other;
  message_free(manifest);
}

void fork_fixture_fini(struct fork_fixture *f) {
  restore_fixture_fini(&f->parent);
  spec_free(f->spec);
}

Weir__ForkSource fork_source(const struct fork_fixture *f) {
  Weir__ForkSource source = WEIR__FORK_SOURCE__INIT;
  source.run = (char *)"unit-1";
  source.incarnation = 1;
  source.step = f->parent.version;
  return source;
}

static bool lies_alike(const Weir__RunSpec *a, const Weir__RunSpec *b) {
  Weir__RunSpec *left = spec_copy(a), *right = spec_copy(b);
  struct err err;
  bool are_alike = optimizer_settle(left->train->optimizer, &err) == 0 &&
                   optimizer_settle(right->train->optimizer, &err) == 0 &&
                   optimizer_slots_are_alike(left->train->optimizer, right->train->optimizer) &&
                   !left->train->average == !right->train->average;
  spec_free(left);
  spec_free(right);
  return are_alike;
}

char *fork_commit(struct store *store, const struct fork_order *order, uint64_t version) {
  char *parents = checkpoint_name(order->of, version), *name = checkpoint_name(order->id, version);
  Weir__Manifest *manifest, own;
  const Weir__RunSpec *layout;
  struct err err;
  if (checkpoint_read(store, parents, &manifest, &err))
    fail_msg("%s", err.text);
  own = *manifest;
  layout = own.layout_spec ? own.layout_spec : own.spec;
  own.layout_spec = lies_alike(layout, order->spec) ? NULL : (Weir__RunSpec *)layout;
  own.run = (char *)order->id;
  own.spec = (Weir__RunSpec *)order->spec;
  if (checkpoint_write_record(store, name, &own, NULL, &err))
    fail_msg("%s", err.text);
  message_free(manifest);
  free(parents);
  return name;
}

static bool never_pauses(void *user, int pause_ms) {
  (void)user, (void)pause_ms;
  return false;
}

void fork_load(struct fork_fixture *f, const struct fork_order *order, struct forked *out) {
  struct parameters_fixture *server = &f->parent.snapshots.server;
  struct restore restore = {.store = &f->parent.snapshots.store.base, .pause = never_pauses};
  Weir__LoadRun load = *make_order(1, order->servers);
  Weir__Manifest *manifest;
  struct err err;
  *out = (struct forked){0};
  load.run = (char *)order->id;
  load.spec = (Weir__RunSpec *)order->spec;
  load.step = f->parent.version;
  load.slots_step = order->slots_step;
  load.model_sha256 = f->parent.model_sha256;
  load.manifest = fork_commit(restore.store, order, load.step);
  if (restore_manifest(&restore, &load, &manifest, &err) ||
      make_run(server, &load, "server-1", &out->run, &err))
    fail_msg("%s", err.text);
  if (order->from)
    out->n_adopted = adopt_blocks(&server->runs, out->run, manifest, order->from);
  if (restore_blocks(&restore, out->run, manifest, &out->restored, &err))
    fail_msg("%s", err.text);
  assert_int_equal(out->n_adopted + out->restored.n_blocks, out->run->n_own);
  message_free(manifest);
  free(load.manifest);
}

void fork_begin(struct fork_fixture *f, struct hosted_run *run) {
  struct err err;
  if (run_table_add(&f->parent.snapshots.server.runs, hosted_run_get(run), &err))
    fail_msg("%s", err.text);
}

void fork_hide_blocks(struct store_double *store) {
  pthread_mutex_lock(&store->lock);
  for (int i = 0; i < store->n_items; i++)
    if (strlen(store->items[i].name) == STORE_KEY_SIZE - 1 && !strchr(store->items[i].name, '/'))
      store->items[i].name[0] = 'x';
  pthread_mutex_unlock(&store->lock);
}
