/* Which workers of its team a worker does not reach, as it tells: for people. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/text.h"
#include "server/coordinator/recovery/recovery.h"
#include "server/coordinator/state/assignment.h"
#include "server/coordinator/state/member.h"
#include "server/coordinator/state/run.h"
#include "server/coordinator/state/state.h"

enum { TEXT_MAX = 1000, ERROR_MAX = 200 };

/* The worker with the stages next to these in the team; NULL: there is none. */
static const struct seat *find_mate(const struct seat *seat, bool is_above) {
  for (int i = 0; i < seat->run->n_seats; i++) {
    const struct seat *mate = seat->run->seats[i];
    bool is_next = is_above ? mate->stages.begin == seat->stages.end : mate->stages.end == seat->stages.begin;
    if (mate->group.number == seat->group.number && coordinator_is_staged(mate) && is_next)
      return mate;
  }
  return NULL;
}

/* What the heartbeat says of the worker on that side; NULL: nothing, or of another team. */
static const Weir__UnreachedMate *find_told(const struct seat *seat, const Weir__RunCounters *counters,
                                            bool is_above) {
  for (size_t i = 0; i < counters->n_unreached_mates; i++) {
    const Weir__UnreachedMate *told = counters->unreached_mates[i];
    if (told->team == seat->group.number && !told->is_above == !is_above)
      return told;
  }
  return NULL;
}

/* Appends what is said of that side. */
static void say_mate(const struct seat *mate, const Weir__UnreachedMate *told, char text[TEXT_MAX]) {
  size_t length = strlen(text);
  uint32_t first = mate->stages.begin, last = mate->stages.end - 1;
  char stages[64];
  if (first == last)
    snprintf(stages, sizeof stages, "stage %u", first);
  else
    snprintf(stages, sizeof stages, "stages %u to %u", first, last);
  snprintf(text + length, TEXT_MAX - length, "%s %s (%s), which has %s of its team: %.*s",
           length ? ", nor" : "cannot reach", mate->worker->id, mate->worker->address, stages, ERROR_MAX,
           *told->message ? told->message : "no answer");
}

/* Errors may differ from call to call: the first is kept while the same workers are missed. */
void coordinator_mates_told(struct member *worker, const Weir__RunCounters *counters) {
  struct seat *seat = coordinator_seat(worker, counters->run);
  struct missed_mates *missed, now;
  char text[TEXT_MAX] = "";
  if (!seat || counters->incarnation != seat->run->incarnation)
    return;
  missed = &seat->missed_mates;
  now = (struct missed_mates){.team = seat->group.number};
  for (int is_above = 0; is_above < 2 && now.team && coordinator_is_staged(seat); is_above++) {
    const Weir__UnreachedMate *told = find_told(seat, counters, is_above);
    const struct seat *mate = told ? find_mate(seat, is_above) : NULL;
    if (!mate)
      continue;
    say_mate(mate, told, text);
    *(is_above ? &now.is_above : &now.is_below) = true;
  }
  if (now.team == missed->team && now.is_below == missed->is_below && now.is_above == missed->is_above)
    return;
  now.text = *text ? text_copy_clean(text, TEXT_MAX) : NULL;
  free(missed->text);
  *missed = now;
  if (now.text)
    log_event(LOG_WARN, "coordinator", "mates_unreached", "run=%s id=%s message=\"%s\"", seat->run->id,
              worker->id, now.text);
}
