/* The rows of one statistics block. */
#include "server/parameters/round/statistics.h"

#include <stdlib.h>
#include <string.h>

#include "server/parameters/round/marks.h"

int statistics_init(struct statistics *statistics, const struct model *model, const struct block *block,
                    const struct plan *plan, struct err *err) {
  *statistics = (struct statistics){.elems = block->elems,
                                    .part_elems = block_part_elems(block, plan->inner_steps),
                                    .units = plan_units(plan),
                                    .inner_steps = plan->inner_steps,
                                    .eval_chunks = plan->eval_chunks,
                                    .n_metrics = block->begin == 0 ? METRICS : 0,
                                    .eval_metrics = model->metrics};
  statistics->momentum = mem_new(block->elems * sizeof(float));
  statistics->has_row = mem_new(statistics->units * sizeof(bool));
  statistics->eval_rows = mem_new(plan->eval_chunks * sizeof(float *));
  for (int s = 0; s < model->n_statistics; s++)
    for (uint64_t i = 0; i < model->statistics[s].elems; i++) {
      uint64_t column = model->statistics[s].begin + i;
      if (column >= block->begin && column < block->begin + block->elems)
        statistics->momentum[column - block->begin] = model->statistics[s].momentum;
    }
  statistics->rows = buffer_new((size_t)statistics->units * statistics->part_elems * sizeof(float));
  if (!statistics->rows)
    return err_set(err, ERR_NO_MEMORY, "no memory for %u rows of %u elements", statistics->units,
                   statistics->part_elems);
  return 0;
}

void statistics_fini(struct statistics *statistics) {
  statistics_clear(statistics);
  free(statistics->momentum);
  buffer_put(statistics->rows);
  free(statistics->has_row);
  free(statistics->eval_rows);
}

static float *statistics_row(const struct statistics *statistics, uint32_t unit) {
  return (float *)statistics->rows->data + (size_t)unit * statistics->part_elems;
}

/* The running statistics do not change: the row has but what the evaluation says. */
static int statistics_add_eval(struct statistics *statistics, const struct part *part, struct err *err) {
  float **into = &statistics->eval_rows[part->node.first], *row;
  uint32_t elems = (uint32_t)statistics->eval_metrics.row_elems;
  if (*into)
    return 0;
  row = malloc(elems * sizeof *row);
  if (!row)
    return err_set(err, ERR_NO_MEMORY, "no memory for a row of %u elements", elems);
  if (part_read(part, elems * sizeof *row, row, err) || part_check(row, elems, err)) {
    free(row);
    return err->code;
  }
  *into = row;
  statistics->n_eval_rows++;
  return 0;
}

int statistics_add(struct statistics *statistics, const struct part *part, struct err *err) {
  uint32_t index = part->node.first;
  float *row;
  if (part->is_evaluation)
    return statistics_add_eval(statistics, part, err);
  if (statistics->has_row[index])
    return 0;
  row = statistics_row(statistics, index);
  if (part_read(part, statistics->part_elems * sizeof *row, row, err) ||
      part_check(row, statistics->part_elems, err))
    return err->code;
  statistics->has_row[index] = true;
  statistics->n_rows++;
  return 0;
}

bool statistics_is_complete(const struct statistics *statistics) {
  return statistics->n_rows == statistics->units;
}

bool statistics_is_evaluation_complete(const struct statistics *statistics) {
  return statistics->n_eval_rows == statistics->eval_chunks;
}

void statistics_missing(const struct statistics *statistics, uint64_t *units) {
  for (uint32_t m = 0; m < statistics->units; m++)
    if (!statistics->has_row[m])
      marks_set(units, m, m + 1);
}

void statistics_missing_evaluation(const struct statistics *statistics, uint64_t *chunks) {
  for (uint32_t c = 0; c < statistics->eval_chunks; c++)
    if (!statistics->eval_rows[c])
      marks_set(chunks, c, c + 1);
}

/* Where the replicas' running statistics are; each has made those updates of its own. */
static void merge_replicas(const struct statistics *statistics, float *out) {
  for (uint32_t i = statistics->n_metrics; i < statistics->elems; i++) {
    double sum = 0;
    for (uint32_t u = 0; u < statistics->units; u++)
      sum += (double)statistics_row(statistics, u)[i];
    out[i] = (float)(sum / statistics->units);
  }
}

static void merge_microbatches(const struct statistics *statistics, float *out) {
  for (uint32_t m = 0; m < statistics->units; m++) {
    const float *row = statistics_row(statistics, m);
    for (uint32_t i = statistics->n_metrics; i < statistics->elems; i++)
      out[i] = out[i] * statistics->momentum[i] + row[i] * (1 - statistics->momentum[i]);
  }
}

void statistics_merge(const struct statistics *statistics, const float *state, float *out) {
  struct metrics metrics = statistics_metrics(statistics, 0);
  memcpy(out, state, statistics->elems * sizeof *out);
  if (statistics->inner_steps)
    merge_replicas(statistics, out);
  else
    merge_microbatches(statistics, out);
  for (uint32_t m = 0; m < statistics->n_metrics; m++)
    out[m] = (float)metrics.sum[m];
}

/* Replicas have those of their inner steps behind all else. */
struct metrics statistics_metrics(const struct statistics *statistics, uint32_t inner_step) {
  uint32_t begin = statistics->inner_steps ? statistics->elems + inner_step * METRICS : 0;
  struct metrics metrics = {0};
  for (uint32_t u = 0; u < statistics->units; u++)
    for (uint32_t m = 0; m < statistics->n_metrics; m++)
      metrics.sum[m] += (double)statistics_row(statistics, u)[begin + m];
  return metrics;
}

struct metrics statistics_eval_metrics(const struct statistics *statistics) {
  struct metrics metrics = {0};
  for (uint32_t c = 0; c < statistics->eval_chunks; c++)
    for (uint32_t m = 0; m < statistics->n_metrics; m++)
      metrics.sum[m] += (double)statistics->eval_rows[c][m];
  return metrics;
}

void statistics_eval_values(const struct statistics *statistics, const struct metrics *totals,
                            double values[METRICS_NAMED_MAX]) {
  metric_set_values(&statistics->eval_metrics, totals->sum, (const float *const *)statistics->eval_rows,
                    statistics->eval_chunks, values);
}

void statistics_clear(struct statistics *statistics) {
  memset(statistics->has_row, 0, statistics->units * sizeof(bool));
  for (uint32_t c = 0; c < statistics->eval_chunks; c++)
    free(statistics->eval_rows[c]);
  memset(statistics->eval_rows, 0, statistics->eval_chunks * sizeof(float *));
  statistics->n_rows = statistics->n_eval_rows = 0;
  statistics->is_evaluated = false;
}
