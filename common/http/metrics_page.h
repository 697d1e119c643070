/* /metrics of a process, on a port of its own: what --http asks for. */
#ifndef WEIR_COMMON_HTTP_METRICS_PAGE_H
#define WEIR_COMMON_HTTP_METRICS_PAGE_H

#include "common/http/http.h"
#include "common/metrics/metric.h"

struct metrics_page;

struct metrics_page_options {
  const char *listen; /* as of http_options, with tls and is_insecure; copied */
  const struct rpc_tls *tls;
  bool is_insecure;
  struct metric_question question; /* its sources outlive the page; they are asked on its thread alone */
};

/* Answers members of the cluster, and clients of the tenant `default`; without certificates whoever asks.
   Errors: those of http_open. */
int metrics_page_open(const struct metrics_page_options *options, struct metrics_page **out, struct err *err);
void metrics_page_close(struct metrics_page *page); /* waits for the sources; NULL is ignored */

#endif
