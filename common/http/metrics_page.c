/* /metrics. */
#include "common/http/metrics_page.h"

#include <stdlib.h>
#include <string.h>

struct metrics_page {
  struct metric_question question;
  struct http *http;
};

/* Numbers of all tenants are for nobody who sees only one. */
static bool may_read(const struct cert_holder *holder) {
  if (!holder)
    return true;
  if (holder->role == CERT_CLIENT)
    return strcmp(holder->tenant, CERT_TENANT_DEFAULT) == 0;
  return holder->role != CERT_STORE && !*holder->tenant;
}

static void answer_metrics(void *user, const struct http_request *request, struct http_answer *answer) {
  const struct metrics_page *page = user;
  const char *text;
  if (!may_read(request->holder)) {
    http_answer_text(
        request, answer, 403,
        "metrics are for members of the cluster that work for all tenants, and for clients of the tenant %s",
        CERT_TENANT_DEFAULT);
    return;
  }
  text = metric_text(&page->question, request->arena);
  answer->type = "text/plain; version=0.0.4; charset=utf-8";
  answer->body = text;
  answer->body_bytes = strlen(text);
}

static const struct http_route routes[] = {{.method = "GET", .path = "/metrics", .answer = answer_metrics}};

int metrics_page_open(const struct metrics_page_options *options, struct metrics_page **out,
                      struct err *err) {
  struct metrics_page *page = mem_new(sizeof *page);
  struct http_options http = {.listen = options->listen,
                              .tls = options->tls,
                              .is_insecure = options->is_insecure,
                              .routes = routes,
                              .n_routes = sizeof routes / sizeof *routes,
                              .user = page};
  page->question = options->question;
  *out = NULL;
  if (http_open(&http, &page->http, err)) {
    free(page);
    return err_prefix(err, "--http");
  }
  *out = page;
  return 0;
}

void metrics_page_close(struct metrics_page *page) {
  if (!page)
    return;
  http_close(page->http);
  free(page);
}
