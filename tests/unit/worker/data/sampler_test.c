/* Which samples a run reads: its split, and its sampler. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "common/agree/spec.h"
#include "common/base/memory.h"
#include "tests/support/worker/format_fixture.h"
#include "worker/data/sampler.h"

enum { SAMPLES = 1000, BATCH = 128 };

/* Class 0 has 1 sample in 10, class 1 none, class 2 one alone, class 3 the rest; sample 5 does not count. */
static int64_t label_of(uint64_t s) {
  return s == 5 ? 4 : s == 7 ? 2 : s % 10 == 0 ? 0 : 3;
}

static const struct label_rule rule = {.classes = 5, .ignore_index = 4};
static int64_t label_values[SAMPLES];
static struct column label_column = {
    .name = "labels", .dtype = DTYPE_I64, .samples = SAMPLES, .data = label_values};

static struct sampler *make_sampler(const Weir__RunSpec *spec, const struct plan *plan) {
  struct sampler_labels labels = {&label_column, &rule};
  struct sampler *sampler;
  struct err err = ERR_NONE;
  for (uint64_t s = 0; s < SAMPLES; s++)
    label_values[s] = label_of(s);
  if (sampler_new(spec->data, plan, &labels, &sampler, &err))
    fail_msg("%s", err.text);
  return sampler;
}

static struct plan make_plan(const Weir__RunSpec *spec) {
  struct plan plan;
  struct err err = ERR_NONE;
  uint64_t train = SAMPLES, eval = 0;
  if (spec->data->n_split)
    plan_split(spec->data, SAMPLES, &train, &eval);
  spec->train->batch = BATCH;
  if (plan_init(&plan, spec, train, eval, &err))
    fail_msg("%s", err.text);
  return plan;
}

#define DATA "train: {format: idx, images: x}, "

/* How often each sample comes in n places from `begin` of the stream on. */
static void count_samples(const struct sampler *sampler, uint64_t begin, uint64_t n, uint32_t seen[SAMPLES]) {
  memset(seen, 0, SAMPLES * sizeof *seen);
  for (uint64_t at = begin; at < begin + n; at++) {
    uint64_t sample = sampler_at(sampler, at / BATCH, (uint32_t)(at % BATCH));
    assert_true(sample < SAMPLES);
    seen[sample]++;
  }
}

static void every_epoch_shuffles_every_sample_once(void **state) {
  Weir__RunSpec *spec = make_spec(NULL, DATA "sampler: shuffle");
  struct plan plan = make_plan(spec);
  struct sampler *sampler = make_sampler(spec, &plan);
  uint32_t seen[SAMPLES], same = 0;
  (void)state;
  for (uint64_t epoch = 0; epoch < 3; epoch++) {
    count_samples(sampler, epoch * SAMPLES, SAMPLES, seen);
    for (int i = 0; i < SAMPLES; i++)
      assert_int_equal(seen[i], 1);
  }
  for (uint64_t at = 0; at < SAMPLES; at++)
    same += sampler_at(sampler, at / BATCH, at % BATCH) ==
            sampler_at(sampler, (at + SAMPLES) / BATCH, (at + SAMPLES) % BATCH);
  assert_true(same < 10);
  sampler_free(sampler);
  spec_free(spec);
}

static void shuffle_false_is_sequential(void **state) {
  static const char *const data[] = {DATA "shuffle: false", DATA "sampler: sequential"};
  (void)state;
  for (int d = 0; d < 2; d++) {
    Weir__RunSpec *spec = make_spec(NULL, data[d]);
    struct plan plan = make_plan(spec);
    struct sampler *sampler = make_sampler(spec, &plan);
    for (uint64_t at = 0; at < 2 * SAMPLES; at++)
      assert_int_equal(sampler_at(sampler, at / BATCH, at % BATCH), at % SAMPLES);
    sampler_free(sampler);
    spec_free(spec);
  }
}

/* Of n draws with probability p, so many standard deviations off. */
static double deviation(double count, double n, double p) {
  return fabs(count - n * p) / sqrt(n * p * (1 - p));
}

static void weighted_draws_classes_and_their_samples_alike(void **state) {
  enum { DRAWS = 300000 };
  Weir__RunSpec *spec = make_spec(NULL, DATA "sampler: weighted");
  struct plan plan = make_plan(spec);
  struct sampler *sampler = make_sampler(spec, &plan);
  double classes[5] = {0}, squares[5] = {0};
  uint32_t seen[SAMPLES];
  (void)state;
  count_samples(sampler, 17, DRAWS, seen);
  for (uint64_t s = 0; s < SAMPLES; s++)
    classes[label_of(s)] += seen[s];
  assert_true(classes[1] == 0 && classes[4] == 0);
  for (uint64_t s = 0; s < SAMPLES; s++) {
    double of_class = label_of(s) == 0 ? 100 : label_of(s) == 2 ? 1 : 898;
    double wanted = DRAWS / 3.0 / of_class;
    squares[label_of(s)] += label_of(s) == 4 ? 0 : (seen[s] - wanted) * (seen[s] - wanted) / wanted;
  }
  assert_true(deviation(classes[0], DRAWS, 1 / 3.0) < 4 && deviation(classes[2], DRAWS, 1 / 3.0) < 4);
  assert_true(fabs(squares[0] - 99) < 5 * sqrt(2 * 99.0)); /* chi-squared */
  assert_true(fabs(squares[3] - 897) < 5 * sqrt(2 * 897.0));
  sampler_free(sampler);
  spec_free(spec);
}

static void refuse_sampler(const char *data, const struct sampler_labels *labels, const char *wanted) {
  Weir__RunSpec *spec = make_spec(NULL, data);
  struct plan plan = make_plan(spec);
  struct sampler *sampler;
  struct err err = ERR_NONE;
  assert_int_equal(sampler_new(spec->data, &plan, labels, &sampler, &err), ERR_INVALID);
  if (!strstr(err.text, wanted))
    fail_msg("'%s' does not hold '%s'", err.text, wanted);
  spec_free(spec);
}

static void weighted_wants_one_class_a_sample(void **state) {
  static const struct label_rule targets = {.sample_denominator = 1},
                                 nothing = {.classes = 3, .ignore_index = 0};
  static const int64_t zeros[3 * SAMPLES];
  const struct column wide = {
      .name = "pixels", .dtype = DTYPE_I64, .sample = {1, {3}}, .samples = SAMPLES, .data = zeros};
  const struct column ignored = {.name = "zeros", .dtype = DTYPE_I64, .samples = SAMPLES, .data = zeros};
  (void)state;
  refuse_sampler(DATA "sampler: weighted", &(struct sampler_labels){&label_column, &targets},
                 "data.sampler: 'weighted': balances classes");
  refuse_sampler(DATA "sampler: weighted", &(struct sampler_labels){NULL, &rule}, "balances classes");
  refuse_sampler(DATA "sampler: weighted", &(struct sampler_labels){&wide, &rule},
                 "wants one label a sample; column 'pixels' has 3");
  refuse_sampler(DATA "sampler: weighted", &(struct sampler_labels){&ignored, &nothing},
                 "no sample of column 'zeros' has a class that counts");
  refuse_sampler(DATA "sampler: random", &(struct sampler_labels){&label_column, &rule},
                 "data.sampler: 'random' is not known (known: shuffle sequential weighted)");
}

static void a_split_gives_every_sample_to_one_part(void **state) {
  static const char *const samplers[] = {"shuffle", "sequential"};
  (void)state;
  for (int i = 0; i < 2; i++) {
    char data[128];
    Weir__RunSpec *spec;
    struct plan plan;
    struct sampler *sampler;
    uint32_t seen[SAMPLES];
    uint64_t low = 0;
    snprintf(data, sizeof data, DATA "split: [0.71, 0.29], sampler: %s", samplers[i]);
    spec = make_spec(NULL, data);
    plan = make_plan(spec);
    sampler = make_sampler(spec, &plan);
    assert_true(plan.train_samples == 710 && plan.eval_samples == 290);
    count_samples(sampler, 0, 710, seen);
    for (uint64_t e = 0; e < 290; e++) {
      low += plan_eval_index(&plan, e) < 500;
      seen[plan_eval_index(&plan, e)] += 2;
    }
    for (int s = 0; s < SAMPLES; s++)
      assert_true(seen[s] == 1 || seen[s] == 2);
    assert_true(low > 110 && low < 180); /* of both halves */
    sampler_free(sampler);
    spec_free(spec);
  }
}

static void a_weighted_split_draws_from_the_train_part_alone(void **state) {
  Weir__RunSpec *spec = make_spec(NULL, DATA "split: [0.5, 0.5], sampler: weighted");
  struct plan plan = make_plan(spec);
  struct sampler *sampler = make_sampler(spec, &plan);
  uint32_t seen[SAMPLES];
  bool has_lone = false;
  double rare = 0;
  (void)state;
  count_samples(sampler, 0, 20000, seen);
  for (uint64_t e = 0; e < plan.eval_samples; e++)
    assert_int_equal(seen[plan_eval_index(&plan, e)], 0);
  for (uint64_t i = 0; i < plan.train_samples; i++) {
    uint64_t sample = plan_train_index(&plan, i);
    has_lone |= sample == 7;
    rare += label_of(sample) == 0 ? seen[sample] : 0;
  }
  assert_true(deviation(rare, 20000, has_lone ? 1 / 3.0 : 0.5) < 4);
  sampler_free(sampler);
  spec_free(spec);
}

static uint32_t n_same_eval(const struct plan *a, const struct plan *b) {
  uint32_t same = 0;
  for (uint32_t i = 0; i < SAMPLES / 2; i++)
    same += plan_eval_index(a, i) == plan_eval_index(b, i);
  return same;
}

static struct plan split_plan(uint64_t seed, const char *more) {
  char *data = mem_printf(DATA "split: [0.5, 0.5]%s", more);
  Weir__RunSpec *spec = make_spec(NULL, data);
  struct plan plan;
  spec->train->has_seed = true;
  spec->train->seed = seed;
  plan = make_plan(spec);
  spec_free(spec);
  free(data);
  return plan;
}

/* The numbers were drawn before there was a data.split_seed. */
static void without_split_seed_the_split_is_drawn_by_train_seed(void **state) {
  static const uint64_t drawn[2][6] = {{29, 35, 454, 283, 972, 934}, {305, 361, 755, 923, 688, 813}};
  (void)state;
  for (uint32_t s = 0; s < 2; s++) {
    struct plan plan = split_plan(7 * s, "");
    for (uint32_t i = 0; i < 6; i++)
      assert_int_equal(plan_eval_index(&plan, i), drawn[s][i]);
  }
}

static void split_seed_draws_the_split_whatever_train_seed_is(void **state) {
  struct plan plan = split_plan(3, ", split_seed: 7"), same = split_plan(4, ", split_seed: 7");
  struct plan other = split_plan(3, ", split_seed: 8"), by_train_seed = split_plan(7, "");
  struct plan zero = split_plan(7, ", split_seed: 0"), zero_by_train_seed = split_plan(0, "");
  (void)state;
  assert_int_equal(n_same_eval(&plan, &same), SAMPLES / 2);
  assert_int_equal(n_same_eval(&plan, &by_train_seed), SAMPLES / 2);
  assert_int_equal(n_same_eval(&zero, &zero_by_train_seed), SAMPLES / 2);
  assert_true(n_same_eval(&plan, &other) < 10);
}

static void split_seed_leaves_the_order_of_samples_to_train_seed(void **state) {
  Weir__RunSpec *spec = make_spec(NULL, DATA "split: [0.5, 0.5], split_seed: 7");
  struct plan plan = make_plan(spec), other = plan;
  struct sampler *sampler = make_sampler(spec, &plan), *another;
  uint32_t same = 0;
  (void)state;
  other.seed = plan.seed + 1;
  another = make_sampler(spec, &other);
  for (uint32_t i = 0; i < 500; i++)
    same += sampler_at(sampler, i / BATCH, i % BATCH) == sampler_at(another, i / BATCH, i % BATCH);
  assert_true(same < 10);
  sampler_free(sampler);
  sampler_free(another);
  spec_free(spec);
}

static void the_seed_keys_split_and_draws(void **state) {
  static const char data[] = DATA "split: [0.5, 0.5], sampler: weighted";
  Weir__RunSpec *spec = make_spec(NULL, data);
  struct plan plan = make_plan(spec), other;
  struct sampler *sampler = make_sampler(spec, &plan), *another;
  uint32_t same_draw = 0;
  (void)state;
  spec->train->seed++;
  other = make_plan(spec);
  another = make_sampler(spec, &other);
  for (uint32_t i = 0; i < 500; i++)
    same_draw += sampler_at(sampler, i / BATCH, i % BATCH) == sampler_at(another, i / BATCH, i % BATCH);
  assert_true(n_same_eval(&plan, &other) < 10 && same_draw < 300); /* a class's only sample is in both */
  sampler_free(sampler);
  sampler_free(another);
  spec_free(spec);
}

static void shares_are_floors_whatever_their_binary_form(void **state) {
  static const struct {
    double share;
    uint64_t samples, train;
  } cases[] = {{0.29, 100, 29}, {0.9, 10, 9}, {0.9, 15, 13}, {0.7, 10, 7}, {0.1, 9, 0}, {0.999999, 3, 2}};
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    double shares[2] = {cases[i].share, 1 - cases[i].share};
    Weir__DataSpec data = WEIR__DATA_SPEC__INIT;
    uint64_t train, eval;
    data.n_split = 2;
    data.split = shares;
    plan_split(&data, cases[i].samples, &train, &eval);
    assert_int_equal(train, cases[i].train);
    assert_int_equal(train + eval, cases[i].samples);
  }
}

static void refuse_spec(const char *data, const char *wanted) {
  struct err err = ERR_NONE;
  Weir__RunSpec *spec;
  char *text = mem_printf(
      "name: t\nmodel: {onnx: m}\ndata: {%s}\ntrain: {epochs: 1, batch: 2, optimizer: {lr: 1}}\n", data);
  assert_int_equal(spec_read("t", text, strlen(text), &spec, &err), 0);
  assert_int_equal(spec_check(spec, &err), ERR_INVALID);
  if (!strstr(err.text, wanted))
    fail_msg("'%s' does not hold '%s'", err.text, wanted);
  free(text);
  spec_free(spec);
}

static void contradictions_are_refused(void **state) {
  Weir__RunSpec *spec = make_spec(NULL, DATA "split: [0.9, 0.1]");
  struct plan plan;
  struct err err = ERR_NONE;
  (void)state;
  refuse_spec(DATA "eval: {format: idx, images: y}, split: [0.9, 0.1]",
              "data.split: is given beside data.eval");
  refuse_spec(DATA "split: [0.9]", "data.split: wants two shares");
  refuse_spec(DATA "split: [0.9, 0.2]", "data.split: wants two shares above 0 that add up to 1");
  refuse_spec(DATA "split: [1.0, 0.0]", "data.split: wants two shares");
  refuse_spec(DATA "split_seed: 1", "data.split_seed: draws the parts of data.split, which is not given");
  refuse_spec(DATA "shuffle: true, sampler: weighted", "data.shuffle: is given beside data.sampler");
  assert_int_equal(plan_init(&plan, spec, 4, 0, &err), ERR_INVALID);
  assert_string_equal(err.text, "data.split: 4 and 0 samples; each part needs one at least");
  spec_free(spec);
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_epoch_shuffles_every_sample_once),
      cmocka_unit_test(shuffle_false_is_sequential),
      cmocka_unit_test(weighted_draws_classes_and_their_samples_alike),
      cmocka_unit_test(weighted_wants_one_class_a_sample),
      cmocka_unit_test(a_split_gives_every_sample_to_one_part),
      cmocka_unit_test(a_weighted_split_draws_from_the_train_part_alone),
      cmocka_unit_test(without_split_seed_the_split_is_drawn_by_train_seed),
      cmocka_unit_test(split_seed_draws_the_split_whatever_train_seed_is),
      cmocka_unit_test(split_seed_leaves_the_order_of_samples_to_train_seed),
      cmocka_unit_test(the_seed_keys_split_and_draws),
      cmocka_unit_test(shares_are_floors_whatever_their_binary_form),
      cmocka_unit_test(contradictions_are_refused),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
