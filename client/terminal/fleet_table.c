/* The fleet, as `weir top` shows it. */
#include "client/terminal/fleet_table.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "client/terminal/output.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/memory.h"

enum { INDENT = 4, STOPPED_SHOWN_MS = 60000 };

struct row;

static void lines_print(FILE *file, const char *lines, const struct row *rows, int columns);
static void message_print(FILE *file, const char *message, int columns);

static bool is_over(const Weir__RunInfo *run) {
  return run->state == WEIR__RUN_STATE__DONE || run->state == WEIR__RUN_STATE__FAILED ||
         run->state == WEIR__RUN_STATE__CANCELLED || run->state == WEIR__RUN_STATE__STOPPED;
}

/* It stands still until somebody lets it go on. */
static bool is_standing(const Weir__RunInfo *run) {
  return run->state == WEIR__RUN_STATE__PAUSED || run->state == WEIR__RUN_STATE__HELD;
}

static bool is_queued(const Weir__RunInfo *run) {
  return run->state == WEIR__RUN_STATE__QUEUED;
}

static void workers_line(FILE *file, const Weir__ListWorkersReply *reply) {
  uint32_t workers = 0, executors = 0, busy = 0, idle = 0, draining = 0, seats = 0;
  for (size_t i = 0; i < reply->n_workers; i++) {
    const Weir__WorkerInfo *worker = reply->workers[i];
    if (worker->pid == 0) /* a device in quarantine that has none */
      continue;
    workers++;
    executors += worker->executors;
    busy += *worker->run != '\0';
    seats += (uint32_t)worker->n_seats;
    idle += strcmp(worker->state, "idle") == 0;
    draining += strcmp(worker->state, "draining") == 0;
  }
  fprintf(file, "workers %u, executors %u: %u with runs, %u idle", workers, executors, busy, idle);
  if (draining)
    fprintf(file, ", %u draining", draining);
  if (seats > busy) /* some compute several runs */
    fprintf(file, ", %u seats", seats);
  fputc('\n', file);
}

static void servers_line(FILE *file, const struct fleet *fleet) {
  uint32_t begun = 0, queued = 0, paused = 0, held = 0, draining = 0;
  uint64_t bytes = 0;
  char text[OUTPUT_TEXT_MAX];
  for (size_t i = 0; i < fleet->servers->n_servers; i++) {
    bytes += fleet->servers->servers[i]->bytes;
    draining += fleet->servers->servers[i]->draining;
  }
  for (size_t i = 0; i < fleet->runs->n_runs; i++) {
    const Weir__RunInfo *run = fleet->runs->runs[i];
    queued += is_queued(run);
    paused += run->state == WEIR__RUN_STATE__PAUSED;
    held += run->state == WEIR__RUN_STATE__HELD;
    begun += !is_over(run) && !is_queued(run) && !is_standing(run);
  }
  fprintf(file, "servers %zu with %s of weights", fleet->servers->n_servers, output_bytes(bytes, text));
  if (draining)
    fprintf(file, ", %u draining", draining);
  fprintf(file, "; runs: %u begun, %u queued", begun, queued);
  if (paused)
    fprintf(file, ", %u paused", paused);
  if (held)
    fprintf(file, ", %u held", held);
  fputs("\n\n", file);
}

/* A run, and its place in the order of submission. */
struct row {
  const Weir__RunInfo *run;
  size_t at;
};

/* Which part of the table it is in: those that have begun, the queue, those that are held, those that are
 * over.
 */
static int part_of(const Weir__RunInfo *run) {
  return is_over(run) ? 3 : is_standing(run) ? 2 : is_queued(run);
}

/* The same from one second to the next, whichever run has a turn. */
static int compare_rows(const void *left, const void *right) {
  const struct row *a = left, *b = right;
  if (part_of(a->run) != part_of(b->run))
    return part_of(a->run) - part_of(b->run);
  if (a->run->priority != b->run->priority)
    return a->run->priority > b->run->priority ? -1 : 1;
  return a->at < b->at ? -1 : a->at > b->at;
}

/* Before its last step, so that whoever looks may wonder where it is. */
static bool has_just_stopped_early(const Weir__RunInfo *run) {
  return run->state == WEIR__RUN_STATE__DONE && run->patience && run->patience->last_step && !*run->sweep &&
         clock_unix_ms() - run->finished_unix_ms < STOPPED_SHOWN_MS;
}

/* A search may have hundreds of trials that are held. */
static bool has_row(const Weir__RunInfo *run) {
  return has_just_stopped_early(run) || (!is_over(run) && run->state != WEIR__RUN_STATE__PAUSED &&
                                         (run->state != WEIR__RUN_STATE__HELD || !*run->sweep));
}

/* Freed by the caller. */
static struct row *rows_of(const Weir__ListRunsReply *reply, size_t *n) {
  struct row *rows = mem_new((reply->n_runs + 1) * sizeof *rows);
  *n = 0;
  for (size_t i = 0; i < reply->n_runs; i++)
    if (has_row(reply->runs[i]))
      rows[(*n)++] = (struct row){reply->runs[i], i};
  qsort(rows, *n, sizeof *rows, compare_rows);
  return rows;
}

static void row_add(struct table *table, const Weir__RunInfo *run, size_t place) {
  char state[OUTPUT_TEXT_MAX], rate[OUTPUT_TEXT_MAX], loss[OUTPUT_TEXT_MAX], step[OUTPUT_TEXT_MAX];
  char priority[32], weight[32], workers[32], executors[32];
  snprintf(priority, sizeof priority, "%" PRId64, run->priority);
  snprintf(weight, sizeof weight, "%g", run->weight);
  snprintf(workers, sizeof workers, "%u/%u", run->workers, run->share);
  snprintf(executors, sizeof executors, "%u", run->executors);
  snprintf(step, sizeof step, "-");
  if (run->steps > 0)
    snprintf(step, sizeof step, "%" PRIu64 "/%" PRIu64, run->step, run->steps);
  output_state(run->state, state);
  if (place)
    snprintf(state, sizeof state, "queued, %zu.", place);
  output_clean(run->message);
  table_row(table,
            (const char *const[]){
                run->run, state, priority, weight, workers, executors,
                output_count(run->state == WEIR__RUN_STATE__RUNNING ? run->samples_per_second : NAN, rate),
                step, output_loss(run->loss, loss), run->message});
}

/* Freed by the caller: the headings, and a line for each row. */
static char *table_text(const struct row *rows, size_t n, bool has_messages) {
  const char *headings[] = {
      "RUN",        "STATE",      ">PRIORITY", ">WEIGHT", ">WORKERS",
      ">EXECUTORS", ">SAMPLES/S", ">STEP",     ">LOSS",   has_messages ? "MESSAGE" : NULL,
      NULL};
  struct table table;
  size_t place = 0, size;
  char *text = NULL;
  FILE *file = open_memstream(&text, &size);
  CHECK(file);
  table_init(&table, headings);
  for (size_t i = 0; i < n; i++) {
    place += is_queued(rows[i].run);
    row_add(&table, rows[i].run, is_queued(rows[i].run) ? place : 0);
  }
  table_print(&table, file);
  table_fini(&table);
  fclose(file);
  return text;
}

void fleet_print(FILE *file, const struct fleet *fleet) {
  size_t n;
  struct row *rows = rows_of(fleet->runs, &n);
  char *text = table_text(rows, n, fleet->columns == 0);
  workers_line(file, fleet->workers);
  servers_line(file, fleet);
  if (fleet->columns > 0)
    lines_print(file, text, rows, fleet->columns);
  else
    fputs(text, file);
  free(text);
  free(rows);
}

/* The headings, then each row with its message below it. */
static void lines_print(FILE *file, const char *lines, const struct row *rows, int columns) {
  for (const char *end = strchr(lines, '\n'), *line = lines; end; line = end + 1, end = strchr(line, '\n')) {
    fprintf(file, "%.*s\n", (int)(end - line), line);
    if (line > lines)
      message_print(file, rows++->run->message, columns);
  }
}

/* Cut at blanks. */
static void message_print(FILE *file, const char *message, int columns) {
  int room = columns > 2 * INDENT ? columns - INDENT : INDENT, used = 0;
  for (const char *word = message; *word; word += strspn(word, " ")) {
    int length = (int)strcspn(word, " ");
    bool begins = used == 0 || used + 1 + length > room;
    if (begins)
      fprintf(file, "%s%*s", used ? "\n" : "", INDENT, "");
    fprintf(file, "%s%.*s", begins ? "" : " ", length, word);
    used = begins ? length : used + 1 + length;
    word += length;
  }
  if (used)
    fputc('\n', file);
}
