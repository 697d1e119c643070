/* When a server counts as reached. */
#include "worker/train/transfer/link_reach.h"

/* UNREACHED_MS: a question that is asked after SILENT_MS has its three seconds, and some are to spare. */
enum { SILENT_MS = 2000, UNREACHED_MS = 6000, ASK_PAUSE_MS = 500, LOOK_MS = 1000, FRESH_MS = 2000 };
#define NS_OF(ms) ((uint64_t)(ms)*1000000)

void link_reach_begin(struct link_reach *reach, int silent_ms, int unreached_ms, uint64_t now_ns) {
  *reach = (struct link_reach){.silent_ns = NS_OF(silent_ms > 0 ? silent_ms : SILENT_MS),
                               .unreached_ns = NS_OF(unreached_ms > 0 ? unreached_ms : UNREACHED_MS),
                               .heard_ns = now_ns};
}

void link_reach_heard(struct link_reach *reach, uint64_t now_ns) {
  reach->heard_ns = now_ns;
  reach->is_failing = reach->is_without_run = false;
}

void link_reach_failed(struct link_reach *reach, const struct err *err, uint64_t now_ns) {
  if (err->code != ERR_UNAVAILABLE && err->code != ERR_TIMEOUT) {
    link_reach_heard(reach, now_ns);
    reach->is_without_run = err->code == ERR_NOT_FOUND || err->code == ERR_STALE;
    return;
  }
  reach->is_failing = true;
  reach->failure = *err;
}

bool link_reach_asked(struct link_reach *reach, uint64_t now_ns) {
  bool is_void = reach->is_void;
  reach->is_asking = reach->is_void = false;
  reach->ask_ns = now_ns + NS_OF(ASK_PAUSE_MS);
  return !is_void;
}

static uint64_t silence_ns(const struct link_reach *reach, uint64_t now_ns) {
  return now_ns > reach->heard_ns ? now_ns - reach->heard_ns : 0;
}

/* What was said to us meanwhile is still to be read, and what we asked had no time to be answered. */
static void excuse(struct link_reach *reach, uint64_t now_ns, uint64_t away_ns) {
  uint64_t silent_ns = silence_ns(reach, now_ns);
  reach->heard_ns += silent_ns < away_ns ? silent_ns : away_ns;
  reach->is_failing = false;
  reach->is_void = reach->is_asking;
}

bool link_reach_look(struct link_reach *reach, uint64_t now_ns, uint64_t away_ns) {
  if (away_ns > 0)
    excuse(reach, now_ns, away_ns);
  reach->is_unreached = reach->is_failing && silence_ns(reach, now_ns) >= reach->unreached_ns;
  if (reach->is_asking || silence_ns(reach, now_ns) < reach->silent_ns || now_ns < reach->ask_ns)
    return false;
  reach->is_asking = true;
  return true;
}

static uint64_t earlier_of(uint64_t due_ns, uint64_t at_ns, uint64_t now_ns) {
  return at_ns > now_ns && at_ns < due_ns ? at_ns : due_ns;
}

uint64_t link_reach_due_ns(const struct link_reach *reach, uint64_t now_ns) {
  uint64_t due_ns = earlier_of(now_ns + NS_OF(LOOK_MS), reach->heard_ns + reach->unreached_ns, now_ns);
  return reach->is_asking ? due_ns
                          : earlier_of(earlier_of(due_ns, reach->heard_ns + reach->silent_ns, now_ns),
                                       reach->ask_ns, now_ns);
}

bool link_reach_is_fresh(const struct link_reach *reach, uint64_t now_ns) {
  return !reach->is_failing && !reach->is_without_run && silence_ns(reach, now_ns) <= NS_OF(FRESH_MS);
}
