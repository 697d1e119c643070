/* What the coordinator tells Prometheus of runs and members. */
#ifndef WEIR_SERVER_COORDINATOR_CORE_MEASURES_H
#define WEIR_SERVER_COORDINATOR_CORE_MEASURES_H

#include "common/metrics/metric.h"

struct coordinator;

/* The coordinator's gauges (common/metrics/metric.def), as of the newest step. */
void coordinator_measure(const struct coordinator *coordinator, struct metric_page *page);

#endif
