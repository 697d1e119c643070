/* Sessions, origins, and the headers that keep a page to itself. */
#include "client/ui/guard.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

static const char policy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'";

int guard_init(struct guard *guard, struct err *err) {
  unsigned char bytes[GUARD_SESSION_BYTES];
  if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
    return err_errno(err, errno, "random bytes of the system");
  for (size_t i = 0; i < sizeof bytes; i++)
    snprintf(guard->session + 2 * i, 3, "%02x", bytes[i]);
  return 0;
}

/* In a time that depends on no byte of either. */
static bool is_session(const struct guard *guard, const char *given) {
  unsigned char difference = 0;
  if (!given || strlen(given) != sizeof guard->session - 1)
    return false;
  for (size_t i = 0; i < sizeof guard->session - 1; i++)
    difference |= (unsigned char)(guard->session[i] ^ given[i]);
  return difference == 0;
}

/* The Host has been looked at: it is this machine. */
static bool is_own_origin(const struct http_request *request, const char *origin) {
  const char *host = http_header(request, "Host");
  return host && strncmp(origin, "http://", 7) == 0 && strcasecmp(origin + 7, host) == 0;
}

static bool is_json(const struct http_request *request) {
  const char *type = http_header(request, "Content-Type");
  return type && strncasecmp(type, "application/json", 16) == 0 && strchr("; ", type[16]);
}

bool guard_admits(const struct guard *guard, const struct http_request *request, bool is_write,
                  struct http_answer *answer) {
  const char *origin = http_header(request, "Origin"), *site = http_header(request, "Sec-Fetch-Site");
  if (origin ? !is_own_origin(request, origin) : is_write)
    http_answer_text(request, answer, 403, "only pages of this dashboard may ask: the Origin is another one");
  else if (site && strcmp(site, "same-origin") != 0)
    http_answer_text(request, answer, 403, "only pages of this dashboard may ask: the request crosses sites");
  else if (!is_session(guard, http_header(request, "Weir-Session")))
    http_answer_text(request, answer, 401,
                     "this is no session of this dashboard: open the link that `weir ui` printed");
  else if (is_write && !is_json(request))
    http_answer_text(request, answer, 415, "the body must be of the type application/json");
  else
    return true;
  return false;
}

void guard_protect(struct http_answer *answer) {
  static const struct http_field fields[] = {{"Content-Security-Policy", policy},
                                             {"X-Frame-Options", "DENY"},
                                             {"Referrer-Policy", "no-referrer"},
                                             {"Cross-Origin-Opener-Policy", "same-origin"},
                                             {"Cross-Origin-Resource-Policy", "same-origin"}};
  size_t n = 0;
  while (answer->headers[n].name)
    n++;
  for (size_t i = 0; i < sizeof fields / sizeof *fields && n < HTTP_HEADERS_MAX; i++)
    answer->headers[n++] = fields[i];
}
