/* The rows of one statistics block. */
#include "server/parameters/statistics.h"

#include <stdlib.h>
#include <string.h>

struct metrics_row {
  float value[METRICS];
  bool is_there;
};

void statistics_init(struct statistics *statistics, const struct model *model, const struct block *block,
                     const struct plan *plan, struct pool *pool) {
  *statistics = (struct statistics){.elems = block->elems,
                                    .microbatches = plan->microbatches,
                                    .eval_chunks = plan->eval_chunks,
                                    .n_metrics = block->begin == 0 ? METRICS : 0,
                                    .pool = pool};
  statistics->momentum = mem_new(block->elems * sizeof(float));
  statistics->rows = mem_new(plan->microbatches * sizeof(struct buffer *));
  statistics->eval_rows = mem_new(plan->eval_chunks * sizeof *statistics->eval_rows);
  for (int s = 0; s < model->n_statistics; s++)
    for (uint64_t i = 0; i < model->statistics[s].elems; i++) {
      uint64_t column = model->statistics[s].begin + i;
      if (column >= block->begin && column < block->begin + block->elems)
        statistics->momentum[column - block->begin] = model->statistics[s].momentum;
    }
}

void statistics_fini(struct statistics *statistics) {
  statistics_clear(statistics);
  free(statistics->momentum);
  free(statistics->rows);
  free(statistics->eval_rows);
}

/* Only the metrics of an eval chunk count: the running statistics do not change. */
static int statistics_add_eval(struct statistics *statistics, uint32_t chunk, const float *row,
                               struct err *err) {
  struct metrics_row *into = &statistics->eval_rows[chunk];
  if (part_check(row, METRICS, err))
    return err->code;
  memcpy(into->value, row, sizeof into->value);
  into->is_there = true;
  statistics->n_eval_rows++;
  return 0;
}

int statistics_add(struct statistics *statistics, const struct part *part, struct err *err) {
  uint32_t index = part->node.first;
  struct buffer *row;
  int code;
  if (part->is_evaluation ? statistics->eval_rows[index].is_there : statistics->rows[index] != NULL)
    return 0;
  row = pool_take(statistics->pool);
  if (!row)
    return err_set(err, ERR_NO_MEMORY, "no memory for a row of %u elements", statistics->elems);
  part_read(part, statistics->elems, row->data);
  if (part->is_evaluation)
    code = statistics_add_eval(statistics, index, row->data, err);
  else if (!(code = part_check(row->data, statistics->elems, err))) {
    statistics->rows[index] = row;
    statistics->n_rows++;
    return 0;
  }
  pool_give(statistics->pool, row);
  return code;
}

bool statistics_is_complete(const struct statistics *statistics) {
  return statistics->n_rows == statistics->microbatches;
}

bool statistics_is_evaluation_complete(const struct statistics *statistics) {
  return statistics->n_eval_rows == statistics->eval_chunks;
}

void statistics_merge(const struct statistics *statistics, const float *state, float *out) {
  struct metrics metrics = statistics_metrics(statistics);
  memcpy(out, state, statistics->elems * sizeof *out);
  for (uint32_t m = 0; m < statistics->microbatches; m++) {
    const float *row = statistics->rows[m]->data;
    for (uint32_t i = statistics->n_metrics; i < statistics->elems; i++)
      out[i] = out[i] * statistics->momentum[i] + row[i] * (1 - statistics->momentum[i]);
  }
  for (uint32_t m = 0; m < statistics->n_metrics; m++)
    out[m] = (float)metrics.sum[m];
}

struct metrics statistics_metrics(const struct statistics *statistics) {
  struct metrics metrics = {0};
  for (uint32_t b = 0; b < statistics->microbatches; b++)
    for (uint32_t m = 0; m < statistics->n_metrics; m++)
      metrics.sum[m] += ((const float *)statistics->rows[b]->data)[m];
  return metrics;
}

struct metrics statistics_eval_metrics(const struct statistics *statistics) {
  struct metrics metrics = {0};
  for (uint32_t c = 0; c < statistics->eval_chunks; c++)
    for (uint32_t m = 0; m < statistics->n_metrics; m++)
      metrics.sum[m] += statistics->eval_rows[c].value[m];
  return metrics;
}

void statistics_clear(struct statistics *statistics) {
  for (uint32_t m = 0; m < statistics->microbatches; m++)
    if (statistics->rows[m]) {
      pool_give(statistics->pool, statistics->rows[m]);
      statistics->rows[m] = NULL;
    }
  for (uint32_t c = 0; c < statistics->eval_chunks; c++)
    statistics->eval_rows[c].is_there = false;
  statistics->n_rows = statistics->n_eval_rows = 0;
  statistics->is_evaluated = false;
}
