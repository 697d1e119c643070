/* Which blocks of a store live: those that a checkpoint or a run refers to. The others go with what is
   deleted, or in a sweep. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "common/base/log.h"
#include "common/base/memory.h"
#include "common/base/message.h"
#include "storage/checkpoint/checkpoint.h"
#include "tests/support/storage/checkpoint_store.h"
#include "tests/support/storage/flaky_store.h"

static int count_one(void *user, const char *key, uint64_t size) {
  (void)key, (void)size;
  ++*(int *)user;
  return 0;
}

static int count_blocks(struct checkpoint_store *f) {
  struct err err = ERR_NONE;
  int count = 0;
  assert_int_equal(store_list_blocks(f->store, count_one, &count, &err), 0);
  return count;
}

static bool has_block(struct checkpoint_store *f, const char *key) {
  struct err err = ERR_NONE;
  bool has;
  assert_int_equal(store_has_blocks(f->store, &key, 1, &has, &err), 0);
  return has;
}

static void a_deleted_checkpoint_takes_only_the_blocks_that_nobody_else_has(void **state) {
  struct checkpoint_store *f = *state;
  char *name = checkpoint_name("tiny-1", 5), *parameters, *statistics;
  Weir__Manifest *manifest;
  struct err err = ERR_NONE;
  commit_checkpoint(f, "tiny-1", 5);
  commit_checkpoint(f, "tiny-1", 10);
  assert_int_equal(count_blocks(f), 1 + 2 + 1); /* the model, two of parameters, one of statistics */
  manifest = read_manifest(f, "tiny-1", 5);
  parameters = manifest->blocks[0]->sha256;
  statistics = manifest->blocks[1]->sha256;
  assert_int_equal(checkpoint_delete(f->store, f->refs, name, NULL, &err), 0);
  assert_false(has_block(f, parameters));
  assert_true(has_block(f, statistics));
  message_free(manifest);
  manifest = read_manifest(f, "tiny-1", 10);
  assert_int_equal(checkpoint_is_whole(f->store, manifest, &err), 0);
  assert_int_equal(checkpoint_delete(f->store, f->refs, name, NULL, &err), 0); /* and again: nothing */
  assert_int_equal(checkpoint_is_whole(f->store, manifest, &err), 0);
  message_free(manifest);
  free(name);
}

static Weir__Manifest *commit_for(struct checkpoint_store *f, const char *run, const char *tenant) {
  Weir__Manifest *manifest = tiny_manifest(f->store, run, 5);
  struct err err = ERR_NONE;
  manifest->tenant = mem_strdup(tenant);
  assert_int_equal(checkpoint_commit(f->store, f->refs, manifest, NULL, &err), 0);
  return manifest;
}

static void assert_known(struct checkpoint_store *f, const Weir__Manifest *manifest, bool to_vision,
                         bool to_nlp) {
  for (size_t i = 0; i < manifest->n_blocks; i++) {
    assert_int_equal(block_refs_has(f->refs, "vision", manifest->blocks[i]->sha256), to_vision);
    assert_int_equal(block_refs_has(f->refs, "nlp", manifest->blocks[i]->sha256), to_nlp);
  }
}

static void blocks_are_known_to_the_tenants_that_refer_to_them(void **state) {
  struct checkpoint_store *f = *state;
  Weir__Manifest *first = commit_for(f, "tiny-1", "vision"), *second;
  char *names[] = {checkpoint_name("tiny-1", 5), checkpoint_name("tiny-2", 5)};
  struct err err = ERR_NONE;
  assert_false(block_refs_are_shared(f->refs));
  assert_known(f, first, true, false);
  second = commit_for(f, "tiny-2", "nlp"); /* the same blocks */
  assert_true(block_refs_are_shared(f->refs));
  assert_known(f, first, true, true);
  checkpoint_store_read_refs(f);
  assert_known(f, second, true, true);
  assert_int_equal(checkpoint_delete(f->store, f->refs, names[0], NULL, &err), 0);
  checkpoint_store_read_refs(f);
  assert_known(f, first, false, true);
  assert_int_equal(checkpoint_delete(f->store, f->refs, names[1], NULL, &err), 0);
  assert_known(f, second, false, false);
  message_free(first);
  message_free(second);
  free(names[0]);
  free(names[1]);
}

static void a_checkpoint_committed_anew_replaces_the_one_before(void **state) {
  struct checkpoint_store *f = *state;
  Weir__Manifest *old, *manifest;
  struct err err = ERR_NONE;
  commit_checkpoint(f, "tiny-1", 5);
  old = read_manifest(f, "tiny-1", 5);
  manifest = tiny_manifest(f->store, "tiny-1", 6);
  manifest->step = 5; /* as after a roll-back in a run that is not deterministic */
  assert_int_equal(checkpoint_commit(f->store, f->refs, manifest, NULL, &err), 0);
  assert_false(has_block(f, old->blocks[0]->sha256));
  assert_int_equal(checkpoint_is_whole(f->store, manifest, &err), 0);
  message_free(old);
  message_free(manifest);
}

static void a_commit_whose_answer_was_lost_keeps_its_blocks_when_it_is_made_again(void **state) {
  struct checkpoint_store *f = *state;
  struct store *flaky = flaky_store_new(f->store);
  Weir__Manifest *manifest = tiny_manifest(f->store, "tiny-1", 5);
  struct err err = ERR_NONE;
  ((struct flaky_store *)flaky)->loses_answer = true;
  assert_int_equal(checkpoint_commit(flaky, f->refs, manifest, NULL, &err), ERR_UNAVAILABLE);
  assert_int_equal(checkpoint_commit(flaky, f->refs, manifest, NULL, &err), 0);
  assert_int_equal(checkpoint_is_whole(f->store, manifest, &err), 0);
  message_free(manifest);
  store_close(flaky);
}

static void
a_commit_that_lands_after_the_references_were_read_keeps_its_blocks_when_it_is_made_again(void **state) {
  struct checkpoint_store *f = *state;
  Weir__Manifest *manifest = tiny_manifest(f->store, "tiny-1", 5);
  char *name = checkpoint_name("tiny-1", 5);
  struct err err = ERR_NONE;
  assert_int_equal(checkpoint_write_record(f->store, name, manifest, NULL, &err), 0); /* not counted */
  assert_int_equal(checkpoint_commit(f->store, f->refs, manifest, NULL, &err), 0);
  assert_int_equal(checkpoint_is_whole(f->store, manifest, &err), 0);
  assert_int_equal(checkpoint_delete(f->store, f->refs, name, NULL, &err), 0);
  assert_int_equal(count_blocks(f), 0); /* and they were counted once */
  message_free(manifest);
  free(name);
}

static void a_manifest_whose_run_has_no_record_goes_with_its_blocks(void **state) {
  struct checkpoint_store *f = *state;
  Weir__Manifest *kept;
  struct err err = ERR_NONE;
  void *record;
  char *name = checkpoint_name("tiny-2", 6);
  commit_checkpoint(f, "tiny-1", 5);
  commit_checkpoint(f, "tiny-2", 6);
  kept = read_manifest(f, "tiny-1", 5);
  put_run(f, "tiny-1", kept->model_sha256);
  checkpoint_store_read_refs(f);
  assert_int_equal(checkpoint_delete_orphans(f->store, f->refs, NULL, &err), 0);
  assert_int_equal(checkpoint_read_record(f->store, name, &weir__manifest__descriptor, &record, &err),
                   ERR_NOT_FOUND);
  assert_int_equal(checkpoint_is_whole(f->store, kept, &err), 0);
  assert_int_equal(count_blocks(f), 1 + 1 + 1); /* the model, one of parameters, one of statistics */
  message_free(kept);
  free(name);
}

static void a_sweep_deletes_what_nothing_refers_to(void **state) {
  struct checkpoint_store *f = *state;
  Weir__Manifest *kept, *lost;
  Weir__CollectGarbageReply done;
  struct err err = ERR_NONE;
  char key[65];
  commit_checkpoint(f, "tiny-1", 5);
  kept = read_manifest(f, "tiny-1", 5);
  lost = tiny_manifest(f->store, "tiny-1", 10); /* written, never committed */
  assert_int_equal(store_put(f->store, "model", 5, key, &err), 0);
  put_run(f, "other-1", key);
  checkpoint_store_read_refs(f);
  assert_int_equal(checkpoint_sweep(f->store, f->refs, &done, &err), 0);
  assert_int_equal(done.blocks, 1);
  assert_int_equal(done.bytes, lost->blocks[0]->bytes);
  assert_int_equal(done.kept_blocks, 4);
  assert_false(has_block(f, lost->blocks[0]->sha256));
  assert_true(has_block(f, key));
  assert_int_equal(checkpoint_is_whole(f->store, kept, &err), 0);
  message_free(kept);
  message_free(lost);
}

static void nothing_is_swept_while_a_record_cannot_be_read(void **state) {
  struct checkpoint_store *f = *state;
  Weir__CollectGarbageReply done;
  struct err err = ERR_NONE;
  message_free(tiny_manifest(f->store, "tiny-1", 5));
  assert_int_equal(store_put_record(f->store,
                                    &(struct store_record){"runs/tiny-1/checkpoints/00000000000000000005",
                                                           "\x0a\xff", 2, NULL},
                                    &err),
                   0);
  checkpoint_store_read_refs(f);
  assert_int_equal(checkpoint_sweep(f->store, f->refs, &done, &err), ERR_CORRUPT);
  assert_non_null(strstr(err.text, "00000000000000000005"));
  assert_int_equal(count_blocks(f), 3);
}

static void blocks_are_deleted_only_while_the_guard_holds(void **state) {
  struct checkpoint_store *f = *state;
  Weir__CollectGarbageReply done;
  struct err err = ERR_NONE;
  message_free(tiny_manifest(f->store, "tiny-1", 5));
  assert_int_equal(
      store_put_record(f->store, &(struct store_record){"coordinator/epoch", "8", 1, NULL}, &err), 0);
  block_refs_guard(f->refs, "coordinator/epoch", "7");
  assert_int_equal(checkpoint_sweep(f->store, f->refs, &done, &err), ERR_STALE);
  assert_int_equal(count_blocks(f), 3);
  block_refs_guard(f->refs, "coordinator/epoch", "8");
  assert_int_equal(checkpoint_sweep(f->store, f->refs, &done, &err), 0);
  assert_int_equal(count_blocks(f), 0);
}

static void a_deleted_run_leaves_nothing_and_others_alone(void **state) {
  struct checkpoint_store *f = *state;
  struct err err = ERR_NONE;
  struct store_names names = {0};
  Weir__Manifest *other;
  commit_checkpoint(f, "tiny-1", 5);
  commit_checkpoint(f, "tiny-1", 10);
  commit_checkpoint(f, "tiny-10", 7);
  other = read_manifest(f, "tiny-10", 7);
  put_run(f, "tiny-1", other->model_sha256);
  assert_int_equal(
      store_put_record(f->store,
                       &(struct store_record){"runs/tiny-1/events/00000000000000000001", "", 0, NULL}, &err),
      0);
  assert_int_equal(
      store_put_record(f->store, &(struct store_record){"runs/tiny-1/incarnation", "1", 1, NULL}, &err), 0);
  assert_int_equal(checkpoint_delete_run(f->store, f->refs, "tiny-1", NULL, &err), 0);
  assert_int_equal(store_list_records(f->store, "runs/", &names, &err), 0);
  assert_int_equal(names.count, 1);
  store_names_fini(&names);
  assert_int_equal(count_blocks(f), 3);
  assert_int_equal(block_refs_deleted(f->refs).blocks, 2); /* of parameters */
  assert_int_equal(block_refs_deleted(f->refs).bytes, 2 * other->blocks[0]->bytes);
  assert_int_equal(checkpoint_is_whole(f->store, other, &err), 0);
  assert_int_equal(checkpoint_delete_run(f->store, f->refs, "tiny-1", NULL, &err), ERR_NOT_FOUND);
  message_free(other);
}

static void references_are_counted_for_any_number_of_blocks(void **state) {
  struct checkpoint_store *f = *state;
  enum { MANY = 5000 };
  struct err err = ERR_NONE;
  Weir__Manifest manifest = WEIR__MANIFEST__INIT;
  Weir__WrittenBlock *blocks = mem_new(MANY * sizeof *blocks), **list = mem_new(MANY * sizeof *list);
  char(*keys)[65] = mem_new(MANY * sizeof *keys);
  Weir__CollectGarbageReply done;
  for (int i = 0; i < MANY; i++) {
    assert_int_equal(store_put(f->store, &i, sizeof i, keys[i], &err), 0);
    weir__written_block__init(&blocks[i]);
    blocks[i].sha256 = keys[i];
    list[i] = &blocks[i];
  }
  manifest.blocks = list;
  manifest.n_blocks = MANY - 1;
  manifest.run = "many-1";
  block_refs_add(f->refs, &manifest);
  block_refs_add(f->refs, &manifest);
  assert_int_equal(checkpoint_sweep(f->store, f->refs, &done, &err), 0);
  assert_int_equal(done.blocks, 1);
  assert_int_equal(done.kept_blocks, MANY - 1);
  free(blocks);
  free(list);
  free(keys);
}

int main(void) {
  float_setting_apply();
#define TEST(name) cmocka_unit_test_setup_teardown(name, checkpoint_store_open, checkpoint_store_close)
  const struct CMUnitTest tests[] = {
      TEST(a_deleted_checkpoint_takes_only_the_blocks_that_nobody_else_has),
      TEST(blocks_are_known_to_the_tenants_that_refer_to_them),
      TEST(a_checkpoint_committed_anew_replaces_the_one_before),
      TEST(a_commit_whose_answer_was_lost_keeps_its_blocks_when_it_is_made_again),
      TEST(a_commit_that_lands_after_the_references_were_read_keeps_its_blocks_when_it_is_made_again),
      TEST(a_manifest_whose_run_has_no_record_goes_with_its_blocks),
      TEST(a_sweep_deletes_what_nothing_refers_to),
      TEST(nothing_is_swept_while_a_record_cannot_be_read),
      TEST(blocks_are_deleted_only_while_the_guard_holds),
      TEST(a_deleted_run_leaves_nothing_and_others_alone),
      TEST(references_are_counted_for_any_number_of_blocks),
  };
#undef TEST
  log_set_level(LOG_ERROR + 1);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
