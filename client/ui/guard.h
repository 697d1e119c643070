/* Who may ask the dashboard for more than its files: pages that it has served, and that have its session id.
   A browser sends other pages' requests, too, and other users of the machine can connect. */
#ifndef WEIR_CLIENT_UI_GUARD_H
#define WEIR_CLIENT_UI_GUARD_H

#include "common/http/http.h"

enum { GUARD_SESSION_BYTES = 24 };

struct guard {
  char session[2 * GUARD_SESSION_BYTES + 1]; /* hexadecimal digits */
};

/* A new session id. Errors: IO, where the system gives no random bytes. */
int guard_init(struct guard *guard, struct err *err);

/* Whether the request comes from a page of ours: it has the session id in the header Weir-Session, which
   pages of other origins cannot send, and its Origin and Sec-Fetch-Site, where it has them, are ours.
   is_write: it must have an Origin, and its body be JSON. False: the answer says why. */
bool guard_admits(const struct guard *guard, const struct http_request *request, bool is_write,
                  struct http_answer *answer);

/* What every answer has: what a browser must not do with it. */
void guard_protect(struct http_answer *answer);

#endif
