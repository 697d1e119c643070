/* The dashboard's server: files of the page, and its calls. */
#include "client/ui/ui.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ui/asset.h"
#include "client/ui/call.h"
#include "client/ui/guard.h"
#include "common/base/loopback.h"

/* THREADS: so that files come while calls wait for a coordinator. */
enum { BODY_BYTES_MAX = 64 * 1024, THREADS = 4 };

struct ui {
  struct http *http;
  struct call_line reads;
  struct call_line writes; /* apart, so that one that takes long holds up no view */
  struct guard guard;
  char *url;
};

static void answer_asset(void *user, const struct http_request *request, struct http_answer *answer);
static void answer_read(void *user, const struct http_request *request, struct http_answer *answer);
static void answer_write(void *user, const struct http_request *request, struct http_answer *answer);
static char *url_of(const struct ui *ui, const char *listen);

static const struct http_route routes[] = {
    {.method = "GET", .path = "/api/", .answer = answer_read, .is_prefix = true},
    {.method = "POST",
     .path = "/api/",
     .answer = answer_write,
     .is_prefix = true,
     .body_max_bytes = BODY_BYTES_MAX},
    {.method = "GET", .path = "/", .answer = answer_asset, .is_prefix = true},
};

/* A page of any other machine would be plaintext, and its link enough to change runs. */
static int check_listen(const char *listen, struct err *err) {
  const char *colon = strrchr(listen, ':');
  char host[64];
  bool is_bracketed = listen[0] == '[';
  size_t length = colon ? (size_t)(colon - listen) : 0;
  if (!colon || length < 2 || length >= sizeof host)
    return err_set(err, ERR_INVALID, "--listen '%.100s': this is no HOST:PORT", listen);
  snprintf(host, sizeof host, "%.*s", (int)(length - 2 * is_bracketed), listen + is_bracketed);
  if (!host_is_loopback(host))
    return err_set(
        err, ERR_INVALID,
        "--listen %s: the dashboard is for this machine alone: give 127.0.0.1, ::1 or localhost; from "
        "elsewhere, `ssh -L PORT:127.0.0.1:PORT` leads to it",
        listen);
  return 0;
}

int ui_open(const struct ui_options *options, struct ui **out, struct err *err) {
  struct ui *ui = mem_new(sizeof *ui);
  const struct http_options http = {.listen = options->listen,
                                    .routes = routes,
                                    .n_routes = sizeof routes / sizeof *routes,
                                    .user = ui,
                                    .threads = THREADS};
  *out = ui;
  if (check_listen(options->listen, err) || guard_init(&ui->guard, err) ||
      call_line_open(&ui->reads, options->coordinator, options->security, err) ||
      call_line_open(&ui->writes, options->coordinator, options->security, err) ||
      http_open(&http, &ui->http, err)) {
    ui_close(ui);
    *out = NULL;
    return err->code;
  }
  ui->url = url_of(ui, options->listen);
  return 0;
}

/* The session id is behind '#': no browser sends it on, or shows it as where it came from. */
static char *url_of(const struct ui *ui, const char *listen) {
  int host_length = (int)(strrchr(listen, ':') - listen);
  return mem_printf("http://%.*s:%d/#session=%s", host_length, listen, http_port(ui->http),
                    ui->guard.session);
}

const char *ui_url(const struct ui *ui) {
  return ui->url;
}

void ui_close(struct ui *ui) {
  if (!ui)
    return;
  http_close(ui->http);
  call_line_close(&ui->reads);
  call_line_close(&ui->writes);
  free(ui->url);
  free(ui);
}

static void answer_asset(void *user, const struct http_request *request, struct http_answer *answer) {
  const struct asset *asset = asset_find(*request->rest ? request->rest : "index.html");
  (void)user;
  if (asset) {
    answer->type = asset_type(asset);
    answer->body = asset->bytes;
    answer->body_bytes = asset->size_bytes;
    answer->headers[0] = (struct http_field){"Content-Encoding", "gzip"};
  } else {
    http_answer_text(request, answer, 404, "there is nothing at this path");
  }
  guard_protect(answer);
}

static void answer_call(struct ui *ui, bool is_write, const struct http_request *request,
                        struct http_answer *answer) {
  const struct call_def *call = call_find(request->rest);
  if (guard_admits(&ui->guard, request, is_write, answer)) {
    if (!call)
      http_answer_text(request, answer, 404, "the dashboard has no call of this name");
    else if (call_is_write(call) != is_write)
      http_answer_text(request, answer, 405, "this call is asked by %s", is_write ? "GET" : "POST");
    else
      call_answer(is_write ? &ui->writes : &ui->reads, call, request, answer);
  }
  guard_protect(answer);
}

static void answer_read(void *user, const struct http_request *request, struct http_answer *answer) {
  answer_call(user, false, request, answer);
}

static void answer_write(void *user, const struct http_request *request, struct http_answer *answer) {
  answer_call(user, true, request, answer);
}
