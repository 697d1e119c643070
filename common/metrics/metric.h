/* What a process counts and measures, for Prometheus. One table, metric.def, has all of it: its rows are what
   /metrics shows and what docs/MONITORING.md describes. Counters are the process's, so two servers in one
   process count together. */
#ifndef WEIR_COMMON_METRICS_METRIC_H
#define WEIR_COMMON_METRICS_METRIC_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/memory.h"

enum metric_id {
#define METRIC(id, program, kind, name, label, values, help) METRIC_##id,
#include "common/metrics/metric.def"
#undef METRIC
  METRIC_COUNT
};

/* Whose metrics a page shows. */
enum { METRIC_COORDINATOR = 1, METRIC_SERVER = 2, METRIC_WORKER = 4, METRIC_ALL = 7 };

/* VALUES_MAX: a label's. */
enum { METRIC_VALUES_MAX = 24 };

/* Counts so much: of a counter without a label, or one of nanoseconds. Any thread; costs one atomic addition.
 */
void metric_add(enum metric_id id, uint64_t amount);
/* Likewise, of a label's value, by its place in the row. */
void metric_add_value(enum metric_id id, int value, uint64_t amount);
void metric_add_code(
    enum metric_id id,
    enum err_code code); /* one more of the label `code`; not OK, where refusals are counted */

/* What one page has to say. */
struct metric_page;

/* For gauges, while a page is made: the value now. */
void metric_tell(struct metric_page *page, enum metric_id id, double amount);
void metric_tell_value(struct metric_page *page, enum metric_id id, int value, double amount);
/* Of a run; nothing happens on a page without names. */
void metric_tell_run(struct metric_page *page, enum metric_id id, const char *run, const char *tenant,
                     double amount);

/* Tells the gauges of a part of the process. */
struct metric_source {
  void (*tell)(void *user, struct metric_page *page);
  void *user;
};

struct metric_question {
  int programs; /* METRIC_SERVER | ... */
  bool has_names;
  const struct metric_source *sources;
  int n_sources;
};

/* The page in Prometheus' text format, version 0.0.4, in the arena. Any thread that the sources may be asked
   on. */
const char *metric_text(const struct metric_question *question, struct arena *arena);

/* The table, for what shows it elsewhere; NULL behind the last row. */
struct metric_row {
  int programs;
  const char *kind, *name, *label, *values, *help; /* kind: "counter" or "gauge" */
};
const struct metric_row *metric_row(int index);

#endif
