/* The best cuts into stages, compared with trying all of them. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/stages/choose.h"

enum { PLACES_MAX = 10, QUESTIONS = 2000 };

/* A model that is drawn: what is between neighbouring places costs and takes memory, and so does a cut. */
struct drawn {
  uint64_t state;
  double costs[PLACES_MAX + 1], crossing[PLACES_MAX + 2];
  uint64_t bytes[PLACES_MAX + 1];
  struct stage_question question;
  uint64_t most_bytes[PLACES_MAX + 1];
};

static struct drawn drawn;

static int draw(int n) {
  drawn.state = drawn.state * 6364136223846793005u + 1442695040888963407u;
  return (int)((drawn.state >> 33) % (uint64_t)n);
}

/* The first stages have more microbatches in flight. */
static void drawn_estimate(void *user, const struct stage_range *range, struct stage_estimate *out) {
  const struct drawn *of = user;
  *out = (struct stage_estimate){of->crossing[range->begin] + of->crossing[range->end], 0};
  for (int p = range->begin; p < range->end; p++) {
    out->cost += of->costs[p];
    out->memory_bytes += of->bytes[p] * (uint64_t)(range->n_stages - range->stage);
  }
}

static void question_draw(uint64_t seed) {
  memset(&drawn, 0, sizeof drawn);
  drawn.state = seed * 2 + 1;
  drawn.question = (struct stage_question){.n_places = draw(PLACES_MAX),
                                           .most_stages = PLACES_MAX,
                                           .most_bytes = draw(3) ? drawn.most_bytes : NULL,
                                           .estimate = drawn_estimate,
                                           .user = &drawn};
  drawn.question.n_stages = 1 + draw(drawn.question.n_places + 1);
  for (int p = 0; p <= drawn.question.n_places; p++) {
    drawn.costs[p] = draw(20);
    drawn.crossing[p] = p > 0 ? draw(8) : 0;
    drawn.bytes[p] = (uint64_t)draw(100);
  }
  for (int s = 0; s <= PLACES_MAX; s++)
    drawn.most_bytes[s] = (uint64_t)(100 + draw(400));
}

/* The slowest stage of a way, and the sum of squares; INFINITY: one does not fit. */
static double way_cost(const int *cuts, int n_stages, double *total) {
  double slowest = 0;
  *total = 0;
  for (int s = 0; s < n_stages; s++) {
    struct stage_range range = {s, n_stages, s ? cuts[s - 1] : 0,
                                s + 1 < n_stages ? cuts[s] : drawn.question.n_places + 1};
    struct stage_estimate of;
    drawn_estimate(&drawn, &range, &of);
    if (drawn.question.most_bytes && of.memory_bytes > drawn.most_bytes[s])
      return INFINITY;
    slowest = of.cost > slowest ? of.cost : slowest;
    *total += of.cost * of.cost;
  }
  return slowest;
}

/* Of all ways into so many stages. */
static double best_by_trying(int n_stages, double *total) {
  double best = INFINITY;
  *total = INFINITY;
  for (int way = 0; way < 1 << drawn.question.n_places; way++) {
    int cuts[PLACES_MAX], n = 0;
    double sum;
    for (int p = 0; p < drawn.question.n_places; p++)
      if (way >> p & 1)
        cuts[n++] = p + 1;
    if (n != n_stages - 1)
      continue;
    double cost = way_cost(cuts, n_stages, &sum);
    if (cost < best || (cost == best && sum < *total))
      *total = sum;
    best = cost < best ? cost : best;
  }
  return best;
}

static void check_choice(const struct stage_choice *choice, double cost, double total) {
  double sum;
  assert_true(choice->cost == cost);
  assert_true(way_cost(choice->cuts, choice->n_stages, &sum) == cost);
  assert_true(sum == total);
}

static void the_slowest_stage_is_as_fast_as_can_be(void **state) {
  int n_found = 0, n_refused = 0;
  (void)state;
  for (uint64_t seed = 1; seed <= QUESTIONS; seed++) {
    struct err err = ERR_NONE;
    struct stage_choice choice;
    double total, cost;
    question_draw(seed);
    cost = best_by_trying(drawn.question.n_stages, &total);
    if (stages_choose(&drawn.question, &choice, &err)) {
      assert_int_equal(err.code, ERR_NO_MEMORY);
      assert_null(choice.cuts);
      assert_true(cost == INFINITY);
      n_refused++;
      continue;
    }
    assert_int_equal(choice.n_stages, drawn.question.n_stages);
    check_choice(&choice, cost, total);
    n_found++;
    free(choice.cuts);
  }
  assert_true(n_found > QUESTIONS / 4 && n_refused > QUESTIONS / 8);
}

static void auto_takes_as_few_stages_as_fit(void **state) {
  int n_several = 0;
  (void)state;
  for (uint64_t seed = 1; seed <= QUESTIONS; seed++) {
    struct err err = ERR_NONE;
    struct stage_choice choice;
    double cost = INFINITY, total = 0;
    int n_stages = 0;
    question_draw(seed);
    drawn.question.n_stages = 0;
    drawn.question.most_stages = 1 + draw(PLACES_MAX);
    while (cost == INFINITY && n_stages < drawn.question.most_stages && n_stages <= drawn.question.n_places)
      cost = best_by_trying(++n_stages, &total);
    int code = stages_choose(&drawn.question, &choice, &err);
    assert_int_equal(code, cost == INFINITY ? ERR_NO_MEMORY : ERR_OK);
    if (code)
      continue;
    assert_int_equal(choice.n_stages, n_stages);
    check_choice(&choice, cost, total);
    n_several += n_stages > 1;
    free(choice.cuts);
  }
  assert_true(n_several > QUESTIONS / 20);
}

static void too_many_stages_are_refused_with_how_many_there_can_be(void **state) {
  struct err err = ERR_NONE;
  struct stage_choice choice;
  (void)state;
  question_draw(1);
  drawn.question.n_places = 2;
  drawn.question.n_stages = 5;
  assert_int_equal(stages_choose(&drawn.question, &choice, &err), ERR_INVALID);
  assert_null(choice.cuts);
  assert_string_equal(err.text, "5 stages need 4 cuts, and there are 2 places to cut: there can be 3 stages");
  drawn.question.n_places = 0;
  assert_int_equal(stages_choose(&drawn.question, &choice, &err), ERR_INVALID);
  assert_string_equal(err.text, "5 stages need 4 cuts, and there are 0 places to cut: there can be 1 stage");
}

static void what_does_not_fit_is_refused_with_what_would(void **state) {
  struct err err = ERR_NONE;
  struct stage_choice choice;
  (void)state;
  question_draw(1);
  drawn.question.n_places = 2;
  drawn.question.n_stages = 2;
  drawn.question.most_bytes = drawn.most_bytes;
  memcpy(drawn.bytes, (uint64_t[]){10, 40, 30}, 3 * sizeof drawn.bytes[0]);
  memcpy(drawn.most_bytes, (uint64_t[]){15, 60}, 2 * sizeof drawn.most_bytes[0]);
  /* Cut behind the first, stages take 20 and 70; behind the second, 100 and 30. */
  assert_int_equal(stages_choose(&drawn.question, &choice, &err), ERR_NO_MEMORY);
  assert_non_null(strstr(err.text, "2 stages"));
  assert_non_null(strstr(err.text, "stage 1 needs 70 bytes, and may take 60"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_slowest_stage_is_as_fast_as_can_be),
      cmocka_unit_test(auto_takes_as_few_stages_as_fit),
      cmocka_unit_test(too_many_stages_are_refused_with_how_many_there_can_be),
      cmocka_unit_test(what_does_not_fit_is_refused_with_what_would),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
