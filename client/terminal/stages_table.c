/* Stages of workers, for people. */
#include "client/terminal/stages_table.h"

#include "client/terminal/output.h"

static void add_rows(struct table *table, const Weir__WorkerInfo *worker) {
  for (size_t s = 0; s < worker->n_stages; s++) {
    const Weir__StageInfo *stage = worker->stages[s];
    char teams[16], number[24], idle[OUTPUT_TEXT_MAX], bubble[OUTPUT_TEXT_MAX], memory[OUTPUT_TEXT_MAX];
    snprintf(teams, sizeof teams, "%u", worker->teams);
    snprintf(number, sizeof number, "%zu", worker->first_stage + s);
    table_row(table, (const char *const[]){worker->id, teams, number, output_percent(stage->idle, idle),
                                           output_percent(worker->bubble, bubble),
                                           output_bytes(stage->program_bytes, memory)});
  }
}

void stages_table_print(FILE *file, Weir__WorkerInfo *const *workers, size_t n) {
  static const char *const headings[] = {"WORKER", ">TEAMS", ">STAGE", ">IDLE", ">BUBBLE", ">MEMORY", NULL};
  struct table table;
  size_t n_stages = 0;
  for (size_t i = 0; i < n; i++)
    n_stages += workers[i]->n_stages;
  if (n_stages == 0)
    return;
  table_init(&table, headings);
  for (size_t i = 0; i < n; i++)
    add_rows(&table, workers[i]);
  fprintf(file, "\n");
  table_print(&table, file);
  table_fini(&table);
}
