/* Spaces and histories of sweeps. */
#include "tests/support/common/sweep_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/message.h"

enum { WORDS_MAX = 1100 };

static void number_add(double **list, size_t *n, const char *word) {
  *list = mem_resize(*list, (*n + 1) * sizeof **list);
  (*list)[(*n)++] = strtod(word, NULL);
}

static void text_add(char ***list, size_t *n, const char *word) {
  *list = mem_resize(*list, (*n + 1) * sizeof **list);
  (*list)[(*n)++] = mem_strdup(word);
}

static void when_add(Weir__Dimension *dimension, const char *path, const char *value) {
  Weir__SweepValue *when = mem_new(sizeof *when);
  weir__sweep_value__init(when);
  when->path = mem_strdup(path);
  when->value = mem_strdup(value);
  dimension->when = mem_resize(dimension->when, (dimension->n_when + 1) * sizeof *dimension->when);
  dimension->when[dimension->n_when++] = when;
}

/* Adds a word of the list that `kind` names. */
static void value_add(Weir__Dimension *dimension, const char *kind, const char *word) {
  if (strcmp(kind, "choice") == 0)
    text_add(&dimension->choice, &dimension->n_choice, word);
  else if (strcmp(kind, "files") == 0)
    text_add(&dimension->files, &dimension->n_files, word);
  else if (strcmp(kind, "uniform") == 0)
    number_add(&dimension->uniform, &dimension->n_uniform, word);
  else if (strcmp(kind, "log") == 0)
    number_add(&dimension->log, &dimension->n_log, word);
  else {
    dimension->has_step = true;
    dimension->step = strtod(word, NULL);
  }
}

static bool is_kind(const char *word) {
  static const char *const kinds[] = {"choice", "files", "uniform", "log", "step"};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (strcmp(word, kinds[i]) == 0)
      return true;
  return false;
}

static Weir__Dimension *dimension_make(char *text) {
  Weir__Dimension *dimension = mem_new(sizeof *dimension);
  const char *words[WORDS_MAX] = {NULL}, *kind = "choice";
  int n = 0;
  char *rest;
  weir__dimension__init(dimension);
  for (char *word = strtok_r(text, " ", &rest); word && n < WORDS_MAX; word = strtok_r(NULL, " ", &rest))
    words[n++] = word;
  dimension->path = n ? mem_strdup(words[0]) : NULL;
  for (int i = 1; i < n; i++)
    if (strcmp(words[i], "when") == 0 && i + 2 < n) {
      when_add(dimension, words[i + 1], words[i + 2]);
      i += 2;
    } else if (is_kind(words[i]))
      kind = words[i];
    else
      value_add(dimension, kind, words[i]);
  return dimension;
}

Weir__SweepSpec *sweep_spec_make(const char *line) {
  Weir__SweepSpec *spec = mem_new(sizeof *spec);
  char *text = mem_strdup(line), *rest;
  weir__sweep_spec__init(spec);
  for (char *part = strtok_r(text, ";", &rest); part; part = strtok_r(NULL, ";", &rest)) {
    spec->space = mem_resize(spec->space, (spec->n_space + 1) * sizeof *spec->space);
    spec->space[spec->n_space++] = dimension_make(part);
  }
  free(text);
  return spec;
}

struct space *sweep_space_make(const char *line) {
  Weir__SweepSpec *spec = sweep_spec_make(line);
  struct space *space = NULL;
  struct err err = ERR_NONE;
  if (space_make(spec, &space, &err))
    fail_msg("%s: %s", line, err.text);
  message_free(spec);
  return space;
}

void trials_init(struct trials *trials, const char *line, const char *searcher, uint64_t seed) {
  struct err err = ERR_NONE;
  *trials = (struct trials){.space = sweep_space_make(line), .options = mem_new(sizeof *trials->options)};
  weir__sweep_search__init(trials->options);
  trials->options->name = mem_strdup(searcher);
  trials->options->has_seed = true;
  trials->options->seed = seed;
  if (searcher_settle(trials->options, trials->space, &err))
    fail_msg("%s in %s: %s", searcher, line, err.text);
}

void trials_fini(struct trials *trials) {
  for (int i = 0; i < trials->n; i++) {
    free((void *)trials->observations[i].point);
    free((void *)trials->observations[i].results);
  }
  free(trials->observations);
  message_free(trials->options);
  space_free(trials->space);
}

void trials_suggest(const struct trials *trials, double *point) {
  struct err err = ERR_NONE;
  struct search search = {.space = trials->space,
                          .options = trials->options,
                          .trial = (uint32_t)trials->n,
                          .observations = trials->observations,
                          .n_observations = trials->n};
  if (search_suggest(&search, point, &err))
    fail_msg("trial %d: %s", trials->n, err.text);
}

void trials_add(struct trials *trials, const double *point, enum sweep_state state, uint64_t steps,
                double value) {
  int n = trials->space->n;
  double *kept = mem_new((size_t)n * sizeof *kept);
  struct err err = ERR_NONE;
  for (int i = 0; i < n; i++) {
    char text[SPACE_NUMBER_SIZE];
    const struct dimension *dimension = &trials->space->dimensions[i];
    kept[i] = NAN;
    if (!isnan(point[i]) && space_position(dimension, space_text(dimension, point[i], text), &kept[i], &err))
      fail_msg("%s", err.text);
  }
  array_reserve((void **)&trials->observations, &trials->capacity, trials->n, sizeof *trials->observations);
  trials->observations[trials->n++] = (struct sweep_observation){.point = kept, .state = state};
  if (!isnan(value))
    trials_add_result(trials, trials->n - 1, steps, value);
}

void trials_add_result(struct trials *trials, int trial, uint64_t steps, double value) {
  struct sweep_observation *to = &trials->observations[trial];
  struct sweep_result *results =
      mem_resize((void *)to->results, ((size_t)to->n_results + 1) * sizeof *results);
  results[to->n_results++] = (struct sweep_result){steps, value};
  to->results = results;
}
