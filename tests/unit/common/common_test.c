/* The small pure pieces that every process must agree on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "common/agree/float_setting.h"
#include "common/agree/placement.h"
#include "common/agree/plan.h"
#include "common/agree/random.h"
#include "common/agree/spec.h"
#include "common/agree/tree.h"
#include "common/base/err.h"
#include "common/base/memory.h"
#include "common/base/hash.h"
#include "common/base/sha256.h"
#include "common/base/size.h"
#include "common/base/text.h"

static void a_keyed_permutation_visits_every_index_once(void **state) {
  static const uint64_t counts[] = {1, 2, 3, 5, 16, 17, 1000, 4097};
  (void)state;
  for (unsigned c = 0; c < sizeof counts / sizeof *counts; c++) {
    unsigned char *seen = mem_new(counts[c]);
    for (uint64_t i = 0; i < counts[c]; i++)
      seen[random_permute(random_key(7, c, 0, 0), i, counts[c])]++;
    for (uint64_t i = 0; i < counts[c]; i++)
      assert_int_equal(seen[i], 1);
    free(seen);
  }
}

static void another_key_gives_another_order(void **state) {
  int same = 0;
  (void)state;
  for (uint64_t i = 0; i < 1000; i++)
    same +=
        random_permute(random_key(1, 1, 0, 0), i, 1000) == random_permute(random_key(1, 1, 1, 0), i, 1000);
  assert_true(same < 20);
}

static void a_shuffled_epoch_is_spread_over_the_whole_dataset(void **state) {
  uint64_t moved = 0, first_half = 0;
  (void)state;
  for (uint64_t i = 0; i < 10000; i++) {
    uint64_t to = random_permute(random_key(3, 1, 0, 0), i, 10000);
    moved += to != i;
    first_half += i < 5000 && to < 5000;
  }
  assert_true(moved > 9900);
  assert_in_range(first_half, 2350, 2650);
}

static void a_tree_node_is_valid_only_where_the_tree_has_it(void **state) {
  (void)state;
  assert_true(tree_node_is_valid((struct tree_node){4, 1}, 6));
  assert_true(tree_node_is_valid((struct tree_node){0, 3}, 6));
  assert_false(tree_node_is_valid((struct tree_node){6, 0}, 6));
  assert_false(tree_node_is_valid((struct tree_node){2, 2}, 6));
  assert_false(tree_node_is_valid((struct tree_node){0, 4}, 6));
  assert_false(tree_node_is_valid((struct tree_node){0, 40}, 6));
  assert_false(tree_node_is_valid((struct tree_node){0, 0}, 0));
}

static void a_node_without_a_sibling_is_named_by_its_highest_equal(void **state) {
  struct tree_node sibling, node = tree_canonical((struct tree_node){4, 1}, 6);
  (void)state;
  assert_int_equal(node.first, 4);
  assert_int_equal(node.level, 2);
  assert_true(tree_sibling(node, 6, &sibling));
  assert_int_equal(sibling.first, 0);
  assert_true(tree_is_same(tree_canonical((struct tree_node){0, 0}, 1), tree_root(1)));
  assert_true(tree_is_same(tree_canonical((struct tree_node){4, 0}, 5), (struct tree_node){4, 2}));
}

static void blocks_are_balanced_by_bytes_over_any_number_of_servers(void **state) {
  uint32_t elems[41], owner[41];
  (void)state;
  for (uint32_t b = 0; b < 41; b++)
    elems[b] = b % 5 == 0 ? 65536 : 1000 + b;
  for (uint32_t servers = 1; servers <= 7; servers++) {
    uint64_t load[7] = {0}, most = 0, least = UINT64_MAX;
    placement_compute(elems, 41, servers, owner);
    for (uint32_t b = 0; b < 41; b++) {
      assert_true(owner[b] < servers);
      load[owner[b]] += elems[b];
    }
    for (uint32_t s = 0; s < servers; s++) {
      most = load[s] > most ? load[s] : most;
      least = load[s] < least ? load[s] : least;
    }
    assert_true(most - least <= 65536);
  }
}

static void boundaries_are_whole_epochs(void **state) {
  struct plan plan = {.train_samples = 1000,
                      .eval_samples = 10,
                      .steps = 23,
                      .batch = 128,
                      .seed = 5,
                      .microbatches = 4,
                      .microbatch_samples = 32};
  int evaluated = 0;
  (void)state;
  for (uint64_t version = 0; version <= 23; version++)
    evaluated += plan_evaluates(&plan, version);
  assert_true(plan_evaluates(&plan, 7) && plan_evaluates(&plan, 15) && plan_evaluates(&plan, 23));
  assert_int_equal(evaluated, 3);
  assert_int_equal(plan_epoch(&plan, 7), 0);
  assert_int_equal(plan_epoch(&plan, 8), 1);
}

static void versions_are_evaluated_besides_and_the_next_one_is_found(void **state) {
  struct plan plan = {.train_samples = 1000,
                      .eval_samples = 10,
                      .steps = 23,
                      .batch = 128,
                      .eval_at = {3, 15, 20},
                      .n_eval_at = 3};
  struct err err = ERR_NONE;
  (void)state;
  for (uint64_t every = 0; every <= 24; every++) {
    plan.eval_every_steps = every; /* 0: after each epoch */
    for (uint64_t from = 0; from <= 24; from++) {
      uint64_t next = from;
      while (next <= 23 && !plan_evaluates(&plan, next))
        next++;
      assert_true(plan_next_evaluated(&plan, from) == (next <= 23 ? next : UINT64_MAX));
    }
    assert_true(plan_evaluates(&plan, 3) && plan_evaluates(&plan, 15) && plan_evaluates(&plan, 20));
  }
  plan.eval_every_steps = 10;
  assert_int_equal(plan_check_hold(&plan, 15, &err) | plan_check_hold(&plan, 10, &err), 0);
  assert_int_equal(plan_check_hold(&plan, 23, &err), 0);
  assert_int_equal(plan_check_hold(&plan, 16, &err), ERR_INVALID);
  assert_string_equal(err.text,
                      "train.hold: version 16 is not evaluated, the next that is evaluated is 20: hold "
                      "the run there, or name 16 in eval.at");
  assert_int_equal(plan_check_hold(&plan, 24, &err), ERR_INVALID);
  assert_non_null(strstr(err.text, "there will be no version 24, the run's last is 23"));
  plan.eval_samples = 0; /* then anywhere */
  assert_int_equal(plan_check_hold(&plan, 16, &err), 0);
  assert_true(plan_next_evaluated(&plan, 1) == UINT64_MAX);
}

static Weir__RunSpec *epochs_spec(void) {
  static const char text[] =
      "name: a\nmodel: {onnx: a.onnx}\ndata: {train: {format: npy, columns: {x: x.npy}}, "
      "split: [0.5, 0.5]}\neval: {every_steps: 100, at_epochs: [0.5, 1, 3]}\n"
      "train: {epochs: 3, batch: 128, hold_epochs: 1, optimizer: {lr: 0.1}}\n";
  Weir__RunSpec *spec;
  struct err err = ERR_NONE;
  if (spec_read("a.yaml", text, strlen(text), &spec, &err) || spec_check(spec, &err))
    fail_msg("%s", err.text);
  return spec;
}

static void ends_of_epochs_are_versions_once_the_data_is_known(void **state) {
  Weir__RunSpec *spec = epochs_spec();
  struct plan plan;
  struct err err = ERR_NONE;
  (void)state;
  assert_int_equal(plan_init(&plan, spec, 1000, 10, &err), 0);
  assert_int_equal(plan.steps, 23);
  for (uint64_t version = 0; version <= 23; version++)
    assert_int_equal(plan_evaluates(&plan, version), version == 3 || version == 7 || version == 23);
  assert_int_equal(plan_init(&plan, spec, 200, 10, &err), ERR_INVALID);
  assert_string_equal(err.text, "eval.at_epochs: 0.5 epochs of 200 samples make no batch of 128");
  spec->eval->at_epochs[0] = 0.9;
  assert_int_equal(plan_init(&plan, spec, 200, 10, &err), 0);
  plan_fix_hold(&plan, spec->train);
  assert_true(spec->train->has_hold && spec->train->hold == 1 && !spec->train->has_hold_epochs);
  spec_free(spec);
}

static void a_hold_by_epochs_is_checked_when_the_data_is_known(void **state) {
  Weir__RunSpec *spec = epochs_spec();
  struct plan plan;
  struct err err = ERR_NONE;
  (void)state;
  spec->train->hold_epochs = 2;
  assert_int_equal(plan_init(&plan, spec, 1000, 10, &err), ERR_INVALID);
  assert_string_equal(
      err.text, "train.hold_epochs: train.hold: version 15 is not evaluated, the next that is evaluated is "
                "23: hold the run there, or name 15 in eval.at");
  spec->eval->n_at_epochs = 0;
  spec->train->hold_epochs = 0.1;
  assert_int_equal(plan_init(&plan, spec, 1000, 10, &err), ERR_INVALID);
  assert_string_equal(err.text, "train.hold_epochs: 0.1 epochs of 1000 samples make no batch of 128");
  spec_free(spec);
}

/* By xxhsum -H3 and the vectors of the xxHash project. */
static void known_bytes_have_their_published_hash(void **state) {
  static const char text[] = "abc";
  char long_text[1000];
  uint64_t hash;
  (void)state;
  assert_int_equal(hash_bytes("", 0), UINT64_C(0x2d06800538d394c2));
  assert_int_equal(hash_bytes(text, 3), UINT64_C(0x78af5f94892f3950));
  memset(long_text, 'x', sizeof long_text);
  hash = hash_bytes(long_text, sizeof long_text);
  for (size_t i = 0; i < sizeof long_text; i++) {
    long_text[i] ^= 1;
    assert_int_not_equal(hash_bytes(long_text, sizeof long_text), hash);
    long_text[i] ^= 1;
  }
}

static void a_known_text_has_its_published_sha256(void **state) {
  char hex[SHA256_HEX_SIZE];
  (void)state;
  sha256_hex("abc", 3, hex);
  assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

static void an_error_keeps_its_code_under_a_prefix(void **state) {
  struct err err = ERR_NONE;
  (void)state;
  assert_int_equal(err_set(&err, ERR_CORRUPT, "block %d", 7), ERR_CORRUPT);
  assert_int_equal(err_prefix(&err, "store"), ERR_CORRUPT);
  assert_string_equal(err.text, "store: block 7");
  for (int code = 1; code < ERR_COUNT; code++)
    assert_int_not_equal(err_from_grpc_status(err_grpc_status(code)), ERR_OK);
}

/* Else a client gives up what it should try again, or tries for ever what never gets better. */
static void an_error_that_crosses_the_network_stays_retryable_or_not(void **state) {
  (void)state;
  for (int code = 1; code < ERR_COUNT; code++)
    assert_int_equal(err_is_retryable(err_from_grpc_status(err_grpc_status(code))), err_is_retryable(code));
}

static void a_buffer_is_sole_until_it_is_shared(void **state) {
  struct buffer *buffer = buffer_new(100);
  (void)state;
  assert_true(((uintptr_t)buffer->data & 63) == 0);
  assert_true(buffer_is_sole(buffer));
  buffer_get(buffer);
  assert_false(buffer_is_sole(buffer));
  buffer_put(buffer);
  assert_true(buffer_is_sole(buffer));
  buffer_put(buffer);
  assert_null(buffer_new(SIZE_MAX - 8));
}

static void amounts_of_memory_have_units_of_1000_and_1024(void **state) {
  static const struct {
    const char *text;
    uint64_t bytes;
  } sizes[] = {{"4096", 4096},
               {"1", 1},
               {"2GB", 2000000000},
               {"1.5GiB", 1610612736},
               {"3 MiB", 3145728},
               {"10KB", 10000},
               {"512B", 512},
               {"1TB", 1000000000000},
               {"0", 0},
               {"-1", 0},
               {"", 0},
               {"GB", 0},
               {"2 gigs", 0},
               {"2Gb", 0},
               {"1e30", 0},
               {"inf", 0},
               {"nan", 0},
               {" 5", 0},
               {"0.5", 0}};
  (void)state;
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    uint64_t bytes = 0;
    assert_int_equal(size_parse(sizes[i].text, &bytes), sizes[i].bytes > 0);
    assert_int_equal(bytes, sizes[i].bytes);
  }
}

static void what_is_no_printable_utf8_is_replaced(void **state) {
  static const struct {
    const char *text, *clean;
  } cases[] = {
      {"", ""},
      {"run 7", "run 7"},
      {"\u00e9\u20ac\U0001f600\xf4\x8f\xbf\xbf", "\u00e9\u20ac\U0001f600\xf4\x8f\xbf\xbf"},
      {"a\nb\x1b[2J\x7f", "a?b?[2J?"},
      {"\xff", "?"},
      {"a\x80z", "a?z"},
      {"\xc3", "?"},
      {"\xc3(", "?("},
      {"\xc0\xaf", "??"},
      {"\xe0\x80\xaf", "???"},
      {"\xe2\x82\xac\xe2\x82", "\u20ac??"},
      {"\xed\xa0\x80", "???"},
      {"\xf0\x9f\x98", "???"},
      {"\xf4\x90\x80\x80", "????"},
  };
  char *copy;
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    copy = text_copy_clean(cases[i].text, 100);
    assert_string_equal(copy, cases[i].clean);
    assert_int_equal(text_is_clean(cases[i].text), strcmp(cases[i].text, cases[i].clean) == 0);
    assert_true(text_is_clean(copy));
    free(copy);
  }
  copy = text_copy_clean("ab\u20ac", 4); /* cut within a character */
  assert_string_equal(copy, "ab??");
  free(copy);
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_keyed_permutation_visits_every_index_once),
      cmocka_unit_test(another_key_gives_another_order),
      cmocka_unit_test(a_shuffled_epoch_is_spread_over_the_whole_dataset),
      cmocka_unit_test(a_tree_node_is_valid_only_where_the_tree_has_it),
      cmocka_unit_test(a_node_without_a_sibling_is_named_by_its_highest_equal),
      cmocka_unit_test(blocks_are_balanced_by_bytes_over_any_number_of_servers),
      cmocka_unit_test(boundaries_are_whole_epochs),
      cmocka_unit_test(versions_are_evaluated_besides_and_the_next_one_is_found),
      cmocka_unit_test(a_hold_by_epochs_is_checked_when_the_data_is_known),
      cmocka_unit_test(ends_of_epochs_are_versions_once_the_data_is_known),
      cmocka_unit_test(known_bytes_have_their_published_hash),
      cmocka_unit_test(a_known_text_has_its_published_sha256),
      cmocka_unit_test(an_error_keeps_its_code_under_a_prefix),
      cmocka_unit_test(an_error_that_crosses_the_network_stays_retryable_or_not),
      cmocka_unit_test(a_buffer_is_sole_until_it_is_shared),
      cmocka_unit_test(amounts_of_memory_have_units_of_1000_and_1024),
      cmocka_unit_test(what_is_no_printable_utf8_is_replaced),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
