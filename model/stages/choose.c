/* The best cuts, by dynamic programming over stages and places. */
#include "model/stages/choose.h"

#include <math.h>
#include <stdlib.h>

#include "common/base/memory.h"

/* What a way is measured by: the largest of its stages, or the sum of all. */
enum aim {
  AIM_SLOWEST, /* the largest cost, of stages that fit */
  AIM_EVEN,    /* the sum of squared costs, of stages that fit and cost no more than the slowest one has to */
  AIM_SMALLEST, /* the largest excess over a stage's memory */
};

struct search {
  const struct stage_question *question;
  int n_stages;
  enum aim aim;
  double slowest; /* of AIM_EVEN */
  /* [n_stages + 1][n_places + 2] of the best way to make so many stages of what is before the place. */
  double *best;
  int *before; /* where the last of these stages begins */
};

static int at(const struct search *search, int n_stages, int place) {
  return n_stages * (search->question->n_places + 2) + place;
}

static struct stage_estimate estimate(const struct search *search, int stage, int begin, int end) {
  struct stage_estimate out = {0};
  search->question->estimate(search->question->user,
                             &(struct stage_range){stage, search->n_stages, begin, end}, &out);
  return out;
}

static double excess_bytes(const struct search *search, int stage, const struct stage_estimate *of) {
  const uint64_t *most_bytes = search->question->most_bytes;
  return most_bytes ? (double)of->memory_bytes - (double)most_bytes[stage] : -INFINITY;
}

/* INFINITY: there must be no such stage. */
static double stage_weight(const struct search *search, int stage, int begin, int end) {
  struct stage_estimate of = estimate(search, stage, begin, end);
  double excess = excess_bytes(search, stage, &of);
  if (search->aim == AIM_SMALLEST)
    return excess;
  if (excess > 0 || (search->aim == AIM_EVEN && of.cost > search->slowest))
    return INFINITY;
  return search->aim == AIM_EVEN ? of.cost * of.cost : of.cost;
}

static void place_search(struct search *search, int n, int end) {
  double *best = &search->best[at(search, n, end)];
  *best = INFINITY;
  for (int begin = n - 1; begin < end; begin++) {
    double until = search->best[at(search, n - 1, begin)];
    if (n == 1 ? begin > 0 : until >= *best) /* no stage behind it makes it better */
      continue;
    double weight = stage_weight(search, n - 1, begin, end);
    double whole = n == 1                    ? weight
                   : search->aim == AIM_EVEN ? until + weight
                   : weight > until          ? weight
                                             : until;
    if (whole >= *best)
      continue;
    *best = whole;
    search->before[at(search, n, end)] = begin;
  }
}

/* Returns the weight of the best way; INFINITY: there is none. */
static double search_run(struct search *search, enum aim aim) {
  int end = search->question->n_places + 1;
  search->aim = aim;
  for (int n = 1; n <= search->n_stages; n++)
    for (int place = n; place <= end - (search->n_stages - n); place++)
      place_search(search, n, place);
  return search->best[at(search, search->n_stages, end)];
}

/* Where stage `stage` of the best way begins. */
static int stage_begin(const struct search *search, int stage) {
  int place = search->question->n_places + 1;
  for (int n = search->n_stages; n > stage; n--)
    place = search->before[at(search, n, place)];
  return place;
}

static int choice_fail(struct search *search, struct err *err) {
  int worst = 0;
  double most = -INFINITY;
  uint64_t bytes = 0;
  search_run(search, AIM_SMALLEST);
  for (int s = 0; s < search->n_stages; s++) {
    int end = s + 1 < search->n_stages ? stage_begin(search, s + 1) : search->question->n_places + 1;
    struct stage_estimate of = estimate(search, s, stage_begin(search, s), end);
    if (excess_bytes(search, s, &of) <= most)
      continue;
    most = excess_bytes(search, s, &of);
    worst = s;
    bytes = of.memory_bytes;
  }
  return err_set(err, ERR_NO_MEMORY,
                 "cut into %d stage%s as evenly as can be, stage %d needs %llu bytes, and may take %llu",
                 search->n_stages, search->n_stages > 1 ? "s" : "", worst, (unsigned long long)bytes,
                 (unsigned long long)search->question->most_bytes[worst]);
}

/* False if no way into so many stages fits. */
static bool choice_find(struct search *search, struct stage_choice *out) {
  double slowest = search_run(search, AIM_SLOWEST);
  if (slowest == INFINITY)
    return false;
  search->slowest = slowest;
  search_run(search, AIM_EVEN);
  *out = (struct stage_choice){.n_stages = search->n_stages, .cost = slowest};
  out->cuts = mem_new((size_t)search->n_stages * sizeof *out->cuts);
  for (int s = 1; s < search->n_stages; s++)
    out->cuts[s - 1] = stage_begin(search, s);
  return true;
}

int stages_choose(const struct stage_question *question, struct stage_choice *out, struct err *err) {
  int most = question->n_places + 1;
  int last = question->n_stages             ? question->n_stages
             : question->most_stages < most ? question->most_stages
                                            : most;
  struct search search = {.question = question};
  *out = (struct stage_choice){0};
  if (last > most)
    return err_set(
        err, ERR_INVALID, "%d stages need %d cuts, and there %s %d place%s to cut: there can be %d stage%s",
        last, last - 1, most == 2 ? "is" : "are", most - 1, most == 2 ? "" : "s", most, most == 1 ? "" : "s");
  search.best = mem_new((size_t)(last + 1) * ((size_t)most + 1) * sizeof *search.best);
  search.before = mem_new((size_t)(last + 1) * ((size_t)most + 1) * sizeof *search.before);
  search.n_stages = question->n_stages ? last : 1;
  while (!choice_find(&search, out) && search.n_stages < last)
    search.n_stages++;
  if (!out->cuts)
    choice_fail(&search, err);
  free(search.best);
  free(search.before);
  return out->cuts ? ERR_OK : (int)err->code;
}
