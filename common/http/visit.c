/* Connections and requests. */
#include "common/http/visit.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "common/base/clock.h"
#include "common/base/loopback.h"
#include "common/http/caller.h"

/* A request that has begun; from its headers to the end of its answer. */
struct asked {
  struct arena arena;
  struct http_request request;
  const struct http_route *route;
  struct rpc_guest *guest; /* NULL: plaintext */
  char *body;              /* of the route's body_max_bytes */
};

static uint64_t late_ns(const struct http_visits *visits) {
  return clock_now_ns() + (uint64_t)visits->setting->late_ms * 1000000;
}

void http_on_connection(void *user, struct MHD_Connection *connection, void **context,
                        enum MHD_ConnectionNotificationCode code) {
  struct http_visits *visits = user;
  struct http_visit *visit = *context;
  if (code == MHD_CONNECTION_NOTIFY_STARTED) {
    visit = *context = mem_new(sizeof *visit);
    visit->fd = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    visit->late_ns = late_ns(visits);
    visit->back = &visits->first;
    visit->next = visits->first;
    if (visit->next)
      visit->next->back = &visit->next;
    visits->first = visit;
    return;
  }
  visits->n_ended++;
  *visit->back = visit->next;
  if (visit->next)
    visit->next->back = visit->back;
  free(visit);
}

void http_visits_cut(struct http_visits *visits, uint64_t now_ns) {
  for (struct http_visit *visit = visits->first; visit; visit = visit->next)
    if (now_ns >= visit->late_ns) {
      shutdown(visit->fd, SHUT_RDWR); /* libmicrohttpd sees its end, and closes it */
      visit->late_ns = UINT64_MAX;
    }
}

uint64_t http_visits_next_ns(const struct http_visits *visits) {
  uint64_t next_ns = UINT64_MAX;
  for (const struct http_visit *visit = visits->first; visit; visit = visit->next)
    next_ns = visit->late_ns < next_ns ? visit->late_ns : next_ns;
  return next_ns;
}

const char *http_header(const struct http_request *request, const char *name) {
  return MHD_lookup_connection_value(request->connection, MHD_HEADER_KIND, name);
}

const char *http_query(const struct http_request *request, const char *name) {
  return MHD_lookup_connection_value(request->connection, MHD_GET_ARGUMENT_KIND, name);
}

void http_answer_text(const struct http_request *request, struct http_answer *answer, int status,
                      const char *format, ...) {
  va_list args;
  char *text, *line;
  va_start(args, format);
  if (vasprintf(&text, format, args) < 0)
    text = NULL;
  va_end(args);
  line = arena_printf(request->arena, "%s\n", text ? text : "out of memory");
  free(text);
  answer->status = status;
  answer->body = line;
  answer->body_bytes = strlen(line);
}

static void add_fields(struct MHD_Response *response, const struct http_answer *answer) {
  MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, answer->type);
  MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
  MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
  for (int i = 0; i < HTTP_HEADERS_MAX && answer->headers[i].name; i++)
    MHD_add_response_header(response, answer->headers[i].name, answer->headers[i].value);
}

static enum MHD_Result send_answer(const struct asked *asked, const struct http_answer *answer) {
  struct MHD_Response *response =
      MHD_create_response_from_buffer(answer->body_bytes, (void *)answer->body, MHD_RESPMEM_PERSISTENT);
  enum MHD_Result result;
  if (!response)
    return MHD_NO;
  add_fields(response, answer);
  result = MHD_queue_response(asked->request.connection, (unsigned)answer->status, response);
  MHD_destroy_response(response);
  return result;
}

static bool is_of_path(const struct http_route *route, const char *path) {
  return route->is_prefix ? strncmp(path, route->path, strlen(route->path)) == 0
                          : strcmp(path, route->path) == 0;
}

/* NULL: the answer says why. */
static const struct http_route *find_route(const struct http_setting *setting, struct http_request *request,
                                           struct http_answer *answer) {
  const char *method = strcmp(request->method, "HEAD") == 0 ? "GET" : request->method, *allowed = "";
  for (int i = 0; i < setting->n_routes; i++) {
    const struct http_route *route = &setting->routes[i];
    if (!is_of_path(route, request->path))
      continue;
    if (strcmp(route->method, method) == 0) {
      request->rest = route->is_prefix ? request->path + strlen(route->path) : "";
      return route;
    }
    allowed = arena_printf(request->arena, "%s%s%s", allowed, *allowed ? ", " : "", route->method);
  }
  if (*allowed) {
    http_answer_text(request, answer, MHD_HTTP_METHOD_NOT_ALLOWED, "only %s is answered here", allowed);
    answer->headers[0] = (struct http_field){MHD_HTTP_HEADER_ALLOW, allowed};
  } else {
    http_answer_text(request, answer, MHD_HTTP_NOT_FOUND, "there is nothing at this path");
  }
  return NULL;
}

/* Of a Host without its port: "localhost:80", "[::1]:80". */
static bool is_this_machine(const char *host) {
  char name[64];
  size_t length = host[0] == '[' ? strcspn(host, "]") : strcspn(host, ":");
  bool is_bracketed = host[0] == '[';
  if (length - is_bracketed >= sizeof name)
    return false;
  snprintf(name, sizeof name, "%.*s", (int)(length - is_bracketed), host + is_bracketed);
  return host_is_loopback(name);
}

/* Before any of its body is read. True: it is refused, and the answer says why. */
static bool is_refused(const struct http_setting *setting, struct asked *asked, struct http_answer *answer) {
  struct http_request *request = &asked->request;
  const char *host = http_header(request, "Host"), *length = http_header(request, "Content-Length");
  struct err err = ERR_NONE;
  if (setting->guard && http_caller_check(setting->guard, request->connection, &asked->guest, &err)) {
    http_answer_text(request, answer, MHD_HTTP_FORBIDDEN, "%s", err.text);
    return true;
  }
  request->holder = asked->guest ? rpc_guest_holder(asked->guest) : NULL;
  if (setting->is_local && host && !is_this_machine(host)) {
    http_answer_text(request, answer, MHD_HTTP_MISDIRECTED_REQUEST, "this port is for this machine alone");
    return true;
  }
  asked->route = find_route(setting, request, answer);
  if (!asked->route)
    return true;
  if (length && strtoull(length, NULL, 10) > asked->route->body_max_bytes) {
    http_answer_text(request, answer, MHD_HTTP_CONTENT_TOO_LARGE, "a body may have %zu bytes here",
                     asked->route->body_max_bytes);
    return true;
  }
  return false;
}

static struct asked *asked_new(struct MHD_Connection *connection, const char *path, const char *method) {
  struct asked *asked = mem_new(sizeof *asked);
  arena_init(&asked->arena);
  asked->request = (struct http_request){.method = arena_strdup(&asked->arena, method),
                                         .path = arena_strdup(&asked->arena, path),
                                         .rest = "",
                                         .arena = &asked->arena,
                                         .connection = connection};
  return asked;
}

/* False: there is more of it than may be, and the connection is to be closed. */
static bool take_body(struct asked *asked, const char *data, size_t size) {
  struct http_request *request = &asked->request;
  size_t room = asked->route->body_max_bytes - request->body_bytes;
  if (size > room)
    return false;
  if (!asked->body)
    request->body = asked->body = arena_new(&asked->arena, asked->route->body_max_bytes);
  memcpy(asked->body + request->body_bytes, data, size);
  request->body_bytes += size;
  return true;
}

enum MHD_Result http_on_request(void *user, struct MHD_Connection *connection, const char *path,
                                const char *method, const char *version, const char *data, size_t *size,
                                void **context) {
  struct http_visits *visits = user;
  struct http_answer answer = {.status = MHD_HTTP_OK, .type = "text/plain; charset=utf-8"};
  struct asked *asked = *context;
  (void)version;
  if (!asked) {
    asked = *context = asked_new(connection, path, method);
    return is_refused(visits->setting, asked, &answer) ? send_answer(asked, &answer) : MHD_YES;
  }
  if (*size) {
    if (!take_body(asked, data, *size))
      return MHD_NO;
    *size = 0;
    return MHD_YES;
  }
  asked->route->answer(visits->setting->user, &asked->request, &answer);
  return send_answer(asked, &answer);
}

void http_on_completed(void *user, struct MHD_Connection *connection, void **context,
                       enum MHD_RequestTerminationCode code) {
  struct http_visits *visits = user;
  struct asked *asked = *context;
  struct http_visit *visit =
      MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
  if (code == MHD_REQUEST_TERMINATED_COMPLETED_OK)
    visit->late_ns = late_ns(visits);
  if (!asked)
    return;
  rpc_guest_put(asked->guest);
  arena_fini(&asked->arena);
  free(asked);
  *context = NULL;
}
