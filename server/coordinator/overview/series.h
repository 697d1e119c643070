/* The curves of a run, and what happened to it. */
#ifndef WEIR_SERVER_COORDINATOR_OVERVIEW_SERIES_H
#define WEIR_SERVER_COORDINATOR_OVERVIEW_SERIES_H

#include "server/coordinator/overview/overview.h"

enum { SERIES_POINTS = 800, SERIES_POINTS_MAX = 2000, SERIES_EVENTS_MAX = 500 };

/* id: of a run that there is. Errors: INVALID, of too many points or a metric that the run does not have. */
int series_answer(const struct overview_question *question, const char *id,
                  const Weir__SeriesRequest *request, Weir__Series *series, struct err *err);

#endif
