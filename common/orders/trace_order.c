/* Captures that the coordinator orders. */
#include "common/orders/trace_order.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/trace/capture.h"

enum { CHUNK_MAX = 512 * 1024 };

static uint64_t newest; /* capture of this process; of the thread that obeys orders */

static void answer(struct member *member, Weir__Traced *traced) {
  Weir__MemberMessage message = WEIR__MEMBER_MESSAGE__INIT;
  message.body_case = WEIR__MEMBER_MESSAGE__BODY_TRACED;
  message.traced = traced;
  traced->now_ns = clock_now_ns();
  member_send(member, &message); /* who is not there any more misses nothing */
}

/* Whole lines of at most CHUNK_MAX bytes. */
static size_t chunk_of(const char *text, size_t size) {
  const char *end = size > CHUNK_MAX ? memrchr(text, '\n', CHUNK_MAX) : NULL;
  return end ? (size_t)(end + 1 - text) : size;
}

static void send_events(struct member *member, Weir__Traced *traced, char *text, size_t size) {
  for (size_t at = 0; !traced->last;) {
    size_t n = chunk_of(text + at, size - at);
    traced->events.data = (uint8_t *)text + at;
    traced->events.len = n;
    at += n;
    traced->last = at == size;
    answer(member, traced);
  }
}

void member_trace(struct member *member, const Weir__Trace *order) {
  Weir__Traced traced = WEIR__TRACED__INIT;
  char boot[TRACE_BOOT_SIZE];
  char *text;
  size_t size = 0;
  trace_boot(boot);
  traced.number = order->number;
  traced.asked_ns = order->asked_ns;
  traced.boot = boot;
  if (!order->stop) {
    if (order->number != newest)
      trace_capture_begin(order->run);
    newest = order->number;
    answer(member, &traced);
    return;
  }
  text = order->number == newest ? trace_capture_end(&size) : NULL;
  send_events(member, &traced, text, size);
  free(text);
}
