/* Tables of sweeps and their trials. */
#include "client/sweeps/sweep_table.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/sweeps/sweep_objectives.h"
#include "common/base/memory.h"
#include "common/base/text.h"
#include "common/sweep/sweep_unit.h"

enum { RUNGS_SHOWN = 6 };

/* Trials in an order, and the sweep that says which is better. */
struct ranking {
  const Weir__SweepTrial *trial;
  bool is_max;
};

bool sweep_is_max(const Weir__SweepInfo *info) {
  return info->spec && info->spec->objective && info->spec->objective->goal &&
         strcmp(info->spec->objective->goal, "max") == 0;
}

uint64_t sweep_steps_at(const Weir__SweepInfo *info, size_t n_results) {
  const Weir__SweepSchedule *schedule = info->spec ? info->spec->schedule : NULL;
  if (!schedule || n_results == 0 || schedule->n_rungs == 0)
    return 0;
  return schedule->rungs[n_results > schedule->n_rungs ? schedule->n_rungs - 1 : n_results - 1];
}

uint64_t sweep_run_step_at(const Weir__SweepInfo *info, const Weir__SweepTrial *trial, size_t n_results) {
  return sweep_unit_step(sweep_unit_of(info->spec ? info->spec->schedule : NULL),
                         sweep_steps_at(info, n_results), trial->batch, trial->train_samples);
}

const char *sweep_unit(const Weir__SweepInfo *info) {
  return sweep_unit_one(sweep_unit_of(info->spec ? info->spec->schedule : NULL));
}

bool sweep_came_to(const Weir__SweepTrial *trial, size_t rung) {
  return rung < trial->n_results && !(trial->has_parent && rung <= trial->parent_rung);
}

const char *sweep_number(double value, char text[OUTPUT_TEXT_MAX]) {
  if (isfinite(value) && value != 0 && fabs(value) < 0.01)
    snprintf(text, OUTPUT_TEXT_MAX, "%.3g", value);
  else
    output_loss(value, text);
  return text;
}

const char *sweep_values_text(const Weir__SweepTrial *trial, char text[SWEEP_VALUES_MAX]) {
  size_t at = 0;
  text[0] = '\0';
  for (size_t i = 0; i < trial->n_values && at < SWEEP_VALUES_MAX; i++)
    at += (size_t)snprintf(text + at, SWEEP_VALUES_MAX - at, "%s%s=%s", i ? " " : "", trial->values[i]->path,
                           trial->values[i]->value);
  if (trial->has_parent && at < SWEEP_VALUES_MAX)
    snprintf(text + at, SWEEP_VALUES_MAX - at, " (from trial %u)", trial->parent);
  output_clean(text);
  return text;
}

/* The trial's value of a key; NULL: there it has none. */
static const char *value_of(const Weir__SweepTrial *trial, const char *path) {
  for (size_t i = 0; i < trial->n_values; i++)
    if (strcmp(trial->values[i]->path, path) == 0)
      return trial->values[i]->value;
  return NULL;
}

static const char *last_part(const char *path) {
  const char *dot = strrchr(path, '.');
  return dot && dot[1] ? dot + 1 : path;
}

static const char *short_name(const Weir__SweepInfo *info, const char *path) {
  const char *name = last_part(path);
  for (size_t i = 0; i < info->spec->n_space; i++)
    if (strcmp(info->spec->space[i]->path, path) != 0 &&
        strcmp(last_part(info->spec->space[i]->path), name) == 0)
      return path;
  return name;
}

/* Whether trials may differ in it: a choice of one is the same for all. */
static bool may_vary(const Weir__Dimension *dimension) {
  return dimension->n_choice != 1 || dimension->n_when > 0;
}

/* Whether the trials that there are differ in it. */
static bool does_vary(const Weir__SweepInfo *info, const Weir__Dimension *dimension) {
  const char *first = info->n_trials ? value_of(info->trials[0], dimension->path) : NULL;
  for (size_t i = 1; i < info->n_trials; i++) {
    const char *value = value_of(info->trials[i], dimension->path);
    if (!first != !value || (first && strcmp(first, value) != 0))
      return true;
  }
  return info->n_trials < 2 && may_vary(dimension);
}

const char *sweep_short_values(const Weir__SweepInfo *info, const Weir__SweepTrial *trial,
                               char text[SWEEP_VALUES_MAX]) {
  size_t at = 0;
  text[0] = '\0';
  for (size_t d = 0; d < info->spec->n_space && at < SWEEP_VALUES_MAX; d++) {
    const Weir__Dimension *dimension = info->spec->space[d];
    const char *value = value_of(trial, dimension->path);
    if (value && may_vary(dimension))
      at += (size_t)snprintf(text + at, SWEEP_VALUES_MAX - at, "%s%s=%s", at ? " " : "",
                             short_name(info, dimension->path), value);
  }
  output_clean(text);
  return text;
}

int sweep_varying(const Weir__SweepInfo *info, const Weir__Dimension **out, int most) {
  int n = 0;
  for (size_t d = 0; d < info->spec->n_space && n < most; d++)
    if (does_vary(info, info->spec->space[d]))
      out[n++] = info->spec->space[d];
  return n;
}

const char *sweep_heading(const Weir__SweepInfo *info, const Weir__Dimension *dimension,
                          struct arena *arena) {
  return arena_printf(arena, "%s%s", dimension->n_choice ? "" : ">", short_name(info, dimension->path));
}

const char *sweep_cell(const Weir__SweepTrial *trial, const Weir__Dimension *dimension, struct arena *arena) {
  const char *value = value_of(trial, dimension->path);
  char *text = arena_strdup(arena, value ? value : "-");
  output_clean(text);
  return text;
}

const Weir__SweepTrial *sweep_find_trial(const Weir__SweepInfo *info, uint32_t number) {
  for (size_t i = 0; i < info->n_trials; i++)
    if (info->trials[i]->number == number)
      return info->trials[i];
  return NULL;
}

/* Who has come further first, then by the value there; those that failed last. */
static int compare(const void *a, const void *b) {
  const struct ranking *left = a, *right = b;
  const Weir__SweepTrial *x = left->trial, *y = right->trial;
  size_t n = x->n_results;
  if (!*x->failure != !*y->failure)
    return *x->failure ? 1 : -1;
  if (n != y->n_results)
    return n < y->n_results ? 1 : -1;
  if (n > 0 && x->results[n - 1] != y->results[n - 1])
    return (x->results[n - 1] < y->results[n - 1]) == left->is_max ? 1 : -1;
  return x->number < y->number ? -1 : 1;
}

/* The best first; freed by the caller. */
static struct ranking *rank(const Weir__SweepInfo *info) {
  struct ranking *ranking = mem_new((info->n_trials + 1) * sizeof *ranking);
  for (size_t i = 0; i < info->n_trials; i++)
    ranking[i] = (struct ranking){info->trials[i], sweep_is_max(info)};
  qsort(ranking, info->n_trials, sizeof *ranking, compare);
  return ranking;
}

static void print_head(FILE *file, const Weir__SweepInfo *info) {
  const Weir__SweepTrial *best = info->has_best ? sweep_find_trial(info, info->best) : NULL;
  char values[SWEEP_VALUES_MAX], number[TEXT_NUMBER_SIZE];
  fprintf(file, "%s: %s%s%s%s%s; %u trial%s, %u running, %u failed", info->sweep,
          *info->end ? "ended, " : "running", info->end, *info->message ? " (" : "", info->message,
          *info->message ? ")" : "", info->begun, info->begun == 1 ? "" : "s", info->running, info->failed);
  if (info->earlier > 0)
    fprintf(file, "; it has learned from %u trial%s of other sweeps", info->earlier,
            info->earlier == 1 ? "" : "s");
  fputc('\n', file);
  if (sweep_objectives(info) > 1)
    sweep_print_front(file, info);
  else if (best)
    fprintf(file, "best: trial %u with %s %s: %s\n", best->number, sweep_metric(info, 0),
            text_number(info->best_value, number), sweep_values_text(best, values));
}

/* The columns of the table: which there are, and texts that are built for it. */
struct columns {
  const char *texts[TABLE_COLUMNS_MAX + 1];
  int n;
  size_t n_rungs; /* with a column each; 0: one for where the trial stands */
  const Weir__Dimension *varying[TABLE_COLUMNS_MAX];
  int n_varying;
  bool has_failures, has_forks;
  struct arena arena;
};

static void column_add(struct columns *columns, const char *text) {
  columns->texts[columns->n++] = text;
}

static char *upper(struct arena *arena, const char *text) {
  char *copy = arena_strdup(arena, text);
  for (char *at = copy; *at; at++)
    *at = (char)toupper((unsigned char)*at);
  return copy;
}

/* The headings. */
static void columns_init(struct columns *columns, const Weir__SweepInfo *info) {
  const Weir__SweepSchedule *schedule = info->spec->schedule;
  const char *metric;
  *columns = (struct columns){.n_rungs = schedule->n_rungs <= RUNGS_SHOWN ? schedule->n_rungs : 0};
  arena_init(&columns->arena);
  metric = upper(&columns->arena, sweep_metric(info, 0));
  for (size_t i = 0; i < info->n_trials; i++)
    columns->has_failures |= *info->trials[i]->failure != '\0';
  for (size_t i = 0; i < info->n_trials; i++)
    columns->has_forks |= info->trials[i]->has_parent;
  column_add(columns, ">TRIAL");
  column_add(columns, "STATE");
  if (columns->has_forks)
    column_add(columns, ">FROM");
  for (size_t r = 0; r < columns->n_rungs; r++)
    column_add(columns, arena_printf(&columns->arena, ">%s@%" PRIu64, r ? "" : metric, schedule->rungs[r]));
  if (columns->n_rungs == 0 && schedule->n_rungs > 0)
    column_add(columns, arena_printf(&columns->arena, ">%s", upper(&columns->arena, sweep_unit(info))));
  if (columns->n_rungs == 0)
    column_add(columns, arena_printf(&columns->arena, ">%s", metric));
  if (sweep_objectives(info) > 1)
    column_add(columns, "FRONT");
  for (size_t o = 1; o < sweep_objectives(info); o++)
    column_add(columns, arena_printf(&columns->arena, ">%s", upper(&columns->arena, sweep_metric(info, o))));
  columns->n_varying = sweep_varying(info, columns->varying, TABLE_COLUMNS_MAX - 1 - columns->n);
  for (int d = 0; d < columns->n_varying; d++)
    column_add(columns, sweep_heading(info, columns->varying[d], &columns->arena));
  if (columns->has_failures)
    column_add(columns, "FAILURE");
  columns->texts[columns->n] = NULL;
}

static char *number_text(struct columns *columns, const Weir__SweepTrial *trial, size_t at) {
  char text[OUTPUT_TEXT_MAX];
  return arena_strdup(&columns->arena, at < trial->n_results ? sweep_number(trial->results[at], text) : "");
}

/* Of an objective behind the first. */
static char *last_text(struct columns *columns, const Weir__SweepTrial *trial, size_t objective) {
  const double *results = sweep_results(trial, objective);
  char text[OUTPUT_TEXT_MAX];
  return arena_strdup(&columns->arena,
                      results && trial->n_results ? sweep_number(results[trial->n_results - 1], text) : "");
}

/* Of the trial; of one whose run people have paused, that it waits for them. */
static const char *state_text(const Weir__SweepInfo *info, const Weir__SweepTrial *trial) {
  for (size_t i = 0; i < info->n_progress; i++)
    if (info->progress[i]->trial == trial->number && info->progress[i]->state == WEIR__RUN_STATE__PAUSED)
      return "paused";
  return trial->state;
}

/* A row's cells. */
static void columns_fill(struct columns *columns, const Weir__SweepInfo *info,
                         const Weir__SweepTrial *trial) {
  columns->n = 0;
  column_add(columns, arena_printf(&columns->arena, "%u", trial->number));
  column_add(columns, state_text(info, trial));
  if (columns->has_forks)
    column_add(columns, trial->has_parent ? arena_printf(&columns->arena, "%u", trial->parent) : "");
  for (size_t r = 0; r < columns->n_rungs; r++)
    column_add(columns, number_text(columns, trial, r));
  if (columns->n_rungs == 0 && info->spec->schedule->n_rungs > 0)
    column_add(columns, trial->n_results ? arena_printf(&columns->arena, "%" PRIu64,
                                                        sweep_steps_at(info, trial->n_results))
                                         : "");
  if (columns->n_rungs == 0)
    column_add(columns, trial->n_results ? number_text(columns, trial, trial->n_results - 1) : "");
  if (sweep_objectives(info) > 1)
    column_add(columns, sweep_is_on_front(info, trial) ? "*" : "");
  for (size_t o = 1; o < sweep_objectives(info); o++)
    column_add(columns, last_text(columns, trial, o));
  for (int d = 0; d < columns->n_varying; d++)
    column_add(columns, sweep_cell(trial, columns->varying[d], &columns->arena));
  if (columns->has_failures)
    column_add(columns, trial->failure);
}

void sweep_print(FILE *file, const Weir__SweepInfo *info) {
  struct ranking *ranking = rank(info);
  struct columns columns;
  struct table table;
  print_head(file, info);
  columns_init(&columns, info);
  table_init(&table, columns.texts);
  for (size_t i = 0; i < info->n_trials; i++) {
    columns_fill(&columns, info, ranking[i].trial);
    table_row(&table, columns.texts);
  }
  table_print(&table, file);
  table_fini(&table);
  arena_fini(&columns.arena);
  free(ranking);
}

/* In quotes where it has to be. */
static void print_field(FILE *file, const char *text, bool is_first) {
  fputs(is_first ? "" : ",", file);
  if (text[strcspn(text, ",\"\n\r")] == '\0') {
    fputs(text, file);
    return;
  }
  fputc('"', file);
  for (; *text; text++)
    fprintf(file, *text == '"' ? "\"\"" : "%c", *text);
  fputc('"', file);
}

static void print_result(FILE *file, const Weir__SweepTrial *trial, size_t at) {
  char text[TEXT_NUMBER_SIZE];
  print_field(file, at < trial->n_results ? text_number(trial->results[at], text) : "", false);
}

/* Of the objectives behind the first, and whether it is on the front. */
static void print_others(FILE *file, const Weir__SweepInfo *info, const Weir__SweepTrial *trial) {
  char text[TEXT_NUMBER_SIZE];
  for (size_t o = 1; o < sweep_objectives(info); o++) {
    const double *results = sweep_results(trial, o);
    print_field(file, results && trial->n_results ? text_number(results[trial->n_results - 1], text) : "",
                false);
  }
  if (sweep_objectives(info) > 1)
    fputs(sweep_is_on_front(info, trial) ? ",1" : ",0", file);
}

void sweep_print_csv(FILE *file, const Weir__SweepInfo *info) {
  const Weir__SweepSchedule *schedule = info->spec->schedule;
  const char *metric = sweep_metric(info, 0);
  struct ranking *ranking = rank(info);
  fprintf(file, "trial,run,state,step,%s", metric);
  for (size_t r = 0; r < schedule->n_rungs; r++)
    fprintf(file, ",%s@%" PRIu64, metric, schedule->rungs[r]);
  for (size_t d = 0; d < info->spec->n_space; d++)
    print_field(file, info->spec->space[d]->path, false);
  for (size_t o = 1; o < sweep_objectives(info); o++)
    print_field(file, sweep_metric(info, o), false);
  fprintf(file, "%s,failure,parent,parent_step\n", sweep_objectives(info) > 1 ? ",front" : "");
  for (size_t i = 0; i < info->n_trials; i++) {
    const Weir__SweepTrial *trial = ranking[i].trial;
    fprintf(file, "%u,%s,%s,", trial->number, trial->run, trial->state);
    if (sweep_steps_at(info, trial->n_results))
      fprintf(file, "%" PRIu64, sweep_run_step_at(info, trial, trial->n_results));
    print_result(file, trial, trial->n_results - 1); /* of none: past the last */
    for (size_t r = 0; r < schedule->n_rungs; r++)
      print_result(file, trial, r);
    for (size_t d = 0; d < info->spec->n_space; d++) {
      const char *value = value_of(trial, info->spec->space[d]->path);
      print_field(file, value ? value : "", false);
    }
    print_others(file, info, trial);
    print_field(file, trial->failure, false);
    if (trial->has_parent)
      fprintf(file, ",%u,%" PRIu64 "\n", trial->parent,
              sweep_run_step_at(info, trial, trial->parent_rung + 1));
    else
      fputs(",,\n", file);
  }
  free(ranking);
}

void sweeps_print(FILE *file, const Weir__ListSweepsReply *reply) {
  static const char *const headings[] = {"SWEEP", "STATE", ">TRIALS", ">RUNNING", ">FAILED", ">BEST", NULL};
  struct table table;
  table_init(&table, headings);
  for (size_t i = 0; i < reply->n_sweeps; i++) {
    const Weir__SweepInfo *info = reply->sweeps[i];
    char trials[16], running[16], failed[16], best[TEXT_NUMBER_SIZE] = "-";
    snprintf(trials, sizeof trials, "%u", info->begun);
    snprintf(running, sizeof running, "%u", info->running);
    snprintf(failed, sizeof failed, "%u", info->failed);
    if (info->has_best)
      text_number(info->best_value, best);
    table_row(&table, (const char *const[]){info->sweep, *info->end ? "ended" : "running", trials, running,
                                            failed, best});
  }
  table_print(&table, file);
  table_fini(&table);
}
