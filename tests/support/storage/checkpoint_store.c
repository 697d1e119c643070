#include "tests/support/storage/checkpoint_store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/base/message.h"
#include "storage/checkpoint/checkpoint.h"

int checkpoint_store_open(void **state) {
  struct checkpoint_store *f = mem_new(sizeof *f);
  struct err err = ERR_NONE;
  *state = f;
  assert_int_equal(store_open("memory://", &f->store, &err), 0);
  assert_int_equal(block_refs_read(f->store, &f->refs, &err), 0);
  return 0;
}

int checkpoint_store_close(void **state) {
  struct checkpoint_store *f = *state;
  block_refs_free(f->refs);
  store_close(f->store);
  free(f);
  return 0;
}

void checkpoint_store_read_refs(struct checkpoint_store *f) {
  struct err err = ERR_NONE;
  block_refs_free(f->refs);
  assert_int_equal(block_refs_read(f->store, &f->refs, &err), 0);
}

void commit_checkpoint(struct checkpoint_store *f, const char *run, uint64_t step) {
  Weir__Manifest *manifest = tiny_manifest(f->store, run, step);
  struct err err = ERR_NONE;
  if (checkpoint_commit(f->store, f->refs, manifest, NULL, &err))
    fail_msg("%s", err.text);
  message_free(manifest);
}

Weir__Manifest *read_manifest(struct checkpoint_store *f, const char *run, uint64_t step) {
  char *name = checkpoint_name(run, step);
  Weir__Manifest *manifest;
  struct err err = ERR_NONE;
  if (checkpoint_read(f->store, name, &manifest, &err))
    fail_msg("%s", err.text);
  free(name);
  return manifest;
}

void put_run(struct checkpoint_store *f, const char *run, const char *model_sha256) {
  Weir__RunRecord record = WEIR__RUN_RECORD__INIT;
  struct err err = ERR_NONE;
  char *name = checkpoint_run_name(run, "run");
  record.run = (char *)run;
  record.model_sha256 = (char *)model_sha256;
  assert_int_equal(checkpoint_write_record(f->store, name, &record, NULL, &err), 0);
  block_refs_add_run(f->refs, &record, &(struct onnx_outline){0});
  free(name);
}
