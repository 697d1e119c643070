/* Counting, and the page. */
#include "common/metrics/metric.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "build_id.h"
#include "common/base/text.h"
#include "common/metrics/process.h"

#define METRIC_BUILD WEIR_BUILD

/* The names of err.def; and without the first, OK. */
#define METRIC_CODES CODES
#define METRIC_REFUSALS (CODES + sizeof "OK")
static const char CODES[] =
#define ERR(name, status, retryable, text) #name " "
#include "common/base/err.def"
#undef ERR
    ;

enum kind { COUNTER, SECONDS, GAUGE };

static const struct {
  struct metric_row row;
  enum kind kind;
} rows[METRIC_COUNT + 1] = {
#define METRIC(id, program, kind, name, label, values, help)                                                 \
  {{METRIC_##program, kind == GAUGE ? "gauge" : "counter", name, label, values, help}, kind},
#include "common/metrics/metric.def"
#undef METRIC
    {{0}, GAUGE}};

static uint64_t counted[METRIC_COUNT][METRIC_VALUES_MAX]; /* atomic */

/* Of a run. */
struct run_sample {
  enum metric_id id;
  const char *run, *tenant;
  double amount;
};

struct metric_page {
  const struct metric_question *question;
  struct arena *arena;
  bool is_told[METRIC_COUNT][METRIC_VALUES_MAX];
  double told[METRIC_COUNT][METRIC_VALUES_MAX];
  struct run_sample *runs;
  int n_runs, runs_capacity;
};

void metric_add_value(enum metric_id id, int value, uint64_t amount) {
  CHECK(value >= 0 && value < METRIC_VALUES_MAX);
  __atomic_fetch_add(&counted[id][value], amount, __ATOMIC_RELAXED);
}

void metric_add(enum metric_id id, uint64_t amount) {
  metric_add_value(id, 0, amount);
}

void metric_add_code(enum metric_id id, enum err_code code) {
  metric_add_value(id, (int)code - (rows[id].row.values != CODES), 1);
}

void metric_tell_value(struct metric_page *page, enum metric_id id, int value, double amount) {
  CHECK(value >= 0 && value < METRIC_VALUES_MAX);
  page->is_told[id][value] = true;
  page->told[id][value] = amount;
}

void metric_tell(struct metric_page *page, enum metric_id id, double amount) {
  metric_tell_value(page, id, 0, amount);
}

void metric_tell_run(struct metric_page *page, enum metric_id id, const char *run, const char *tenant,
                     double amount) {
  struct arena *arena = page->arena;
  if (!page->question->has_names)
    return;
  array_reserve((void **)&page->runs, &page->runs_capacity, page->n_runs, sizeof *page->runs);
  page->runs[page->n_runs++] =
      (struct run_sample){id, arena_strdup(arena, run), arena_strdup(arena, tenant), amount};
}

const struct metric_row *metric_row(int index) {
  return index < METRIC_COUNT ? &rows[index].row : NULL;
}

/* As Prometheus reads it: whole numbers whole. */
static void print_amount(FILE *out, double amount) {
  char text[TEXT_NUMBER_SIZE];
  if (isnan(amount))
    fputs(" NaN\n", out);
  else if (isinf(amount))
    fputs(amount < 0 ? " -Inf\n" : " +Inf\n", out);
  else if (amount == floor(amount) && fabs(amount) < 9e15)
    fprintf(out, " %.0f\n", amount);
  else
    fprintf(out, " %s\n", text_number(amount, text));
}

/* A label's value between its quotes. */
static void print_quoted(FILE *out, const char *text) {
  fputc('"', out);
  for (; *text; text++)
    if (*text == '\n')
      fputs("\\n", out);
    else if (*text == '"' || *text == '\\')
      fprintf(out, "\\%c", *text);
    else
      fputc(*text, out);
  fputc('"', out);
}

static void print_runs(FILE *out, const struct metric_page *page, int id) {
  for (int i = 0; i < page->n_runs; i++) {
    const struct run_sample *sample = &page->runs[i];
    if ((int)sample->id != id)
      continue;
    fprintf(out, "%s{run=", rows[id].row.name);
    print_quoted(out, sample->run);
    fputs(",tenant=", out);
    print_quoted(out, sample->tenant);
    fputc('}', out);
    print_amount(out, sample->amount);
  }
}

/* False: it was not told. */
static bool amount_of(const struct metric_page *page, int id, int value, double *amount) {
  uint64_t count = __atomic_load_n(&counted[id][value], __ATOMIC_RELAXED);
  *amount = page->told[id][value];
  if (!page->is_told[id][value] && rows[id].kind != GAUGE)
    *amount = rows[id].kind == SECONDS ? (double)count * 1e-9 : (double)count;
  return page->is_told[id][value] || rows[id].kind != GAUGE;
}

static void print_values(FILE *out, const struct metric_page *page, int id) {
  const struct metric_row *row = &rows[id].row;
  char *list = mem_strdup(row->values), *rest = list, *word;
  double amount;
  for (int value = 0; (word = strsep(&rest, " ")) && *word; value++)
    if (amount_of(page, id, value, &amount)) {
      fprintf(out, "%s{%s=", row->name, row->label);
      print_quoted(out, word);
      fputc('}', out);
      print_amount(out, amount);
    }
  free(list);
}

static bool has_samples(const struct metric_page *page, int id) {
  bool has_any = rows[id].kind != GAUGE;
  for (int value = 0; value < METRIC_VALUES_MAX; value++)
    has_any |= page->is_told[id][value];
  for (int i = 0; i < page->n_runs; i++)
    has_any |= (int)page->runs[i].id == id;
  return has_any;
}

static void print_metric(FILE *out, const struct metric_page *page, int id) {
  const struct metric_row *row = &rows[id].row;
  double amount;
  if (!(row->programs & page->question->programs) || !has_samples(page, id))
    return;
  fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", row->name, row->help, row->name, row->kind);
  if (*row->values)
    print_values(out, page, id);
  else if (*row->label)
    print_runs(out, page, id);
  else if (amount_of(page, id, 0, &amount)) {
    fputs(row->name, out);
    print_amount(out, amount);
  }
}

const char *metric_text(const struct metric_question *question, struct arena *arena) {
  struct metric_page *page = mem_new(sizeof *page);
  char *text = NULL;
  const char *copy;
  size_t size = 0;
  FILE *out = open_memstream(&text, &size);
  CHECK(out);
  page->question = question;
  page->arena = arena;
  metric_tell_process(page);
  for (int i = 0; i < question->n_sources; i++)
    question->sources[i].tell(question->sources[i].user, page);
  for (int id = 0; id < METRIC_COUNT; id++)
    print_metric(out, page, id);
  fclose(out);
  copy = arena_strdup(arena, text);
  free(text);
  free(page->runs);
  free(page);
  return copy;
}
