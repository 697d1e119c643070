/* What the system says of this process. */
#ifndef WEIR_COMMON_METRICS_PROCESS_H
#define WEIR_COMMON_METRICS_PROCESS_H

struct metric_page;

/* The metrics of all programs, but those that are counted. What cannot be found out is not told. */
void metric_tell_process(struct metric_page *page);

#endif
