/* One end of what a worker and a server of one host share: which of our segments the other end has mapped,
   and which of its segments we have. Both ends are the same. A segment is offered when bytes in it are first
   to be named, and named once the other end says that it has taken it; until then, and where it cannot take
   it, bytes go by socket. Any thread. */
#ifndef WEIR_COMMON_SHARE_SHARE_H
#define WEIR_COMMON_SHARE_SHARE_H

#include "common/share/shared.h"
#include "parameters.pb-c.h"

/* SEGMENTS_MAX: that either end may offer. PARTS_MAX: that a push may bring together, whose bytes are named.
 */
enum { SHARE_SEGMENTS_MAX = 1024, SHARE_PARTS_MAX = 16 };

struct share;

/* send: a message to the other end, without waiting; what it points to ends with the callback. Not from
   within share_take's caller's locks. */
struct share *share_new(void (*send)(void *user, const Weir__ShareMessage *message), void *user);
struct share *share_get(struct share *share);
/* NULL is ignored. With the last reference the other end's segments are mapped no more. */
void share_put(struct share *share);
/* The stream is over: nothing is sent any more, nor named. What was named to us can be read until the end. */
void share_close(struct share *share);

/* A message of the other end's. Errors: INVALID, and that the stream is to end; what cannot be mapped is
   refused, and no error. */
int share_take(struct share *share, const Weir__ShareMessage *message, struct err *err);

/* True if the other end has mapped one of our segments, or has offered one that we have mapped: it is a
   process of this host. */
bool share_is_up(struct share *share);
/* True if it has refused ours. */
bool share_is_refused(struct share *share);

/* Names the buffer's bytes. False: they go by socket. */
bool share_name(struct share *share, const struct buffer *buffer, Weir__SharedBytes *name);
/* The bytes that the other end names, a reference to their segment. Errors: INVALID. */
int share_find(struct share *share, const Weir__SharedBytes *name, struct shared_bytes *bytes,
               struct err *err);

#endif
