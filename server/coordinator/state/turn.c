/* Runs take turns. */
#include "server/coordinator/state/turn.h"

enum { TURN_MS = 2000, HANDOVERS = 20, HANDOVER_MS_MAX = 60000 };

void turn_join(struct turn *turn, double place) {
  turn->is_in_line = true;
  turn->place = turn->used = place;
}

void turn_begin(struct turn *turn, uint64_t now_ms) {
  turn->began_ms = turn->stepped_ms = now_ms;
  turn->steps = 0;
}

void turn_use(struct turn *turn, uint32_t executors, uint64_t for_ms, double weight) {
  turn->used += (double)for_ms * executors / weight;
}

void turn_step(struct turn *turn, uint64_t now_ms) {
  uint64_t took_ms = now_ms - turn->stepped_ms;
  turn->stepped_ms = now_ms;
  if (turn->steps == 0)
    turn->first_ms = took_ms;
  else if (turn->steps == 1) {
    turn->handover_ms = turn->first_ms > took_ms ? turn->first_ms - took_ms : 0;
    if (turn->handover_ms > HANDOVER_MS_MAX)
      turn->handover_ms = HANDOVER_MS_MAX;
  }
  turn->steps += turn->steps < 2;
}

bool turn_is_over(const struct turn *turn, uint64_t now_ms) {
  uint64_t least_ms = HANDOVERS * turn->handover_ms;
  return turn->steps >= 2 && turn->stepped_ms == now_ms &&
         now_ms - turn->began_ms >= (least_ms > TURN_MS ? least_ms : TURN_MS);
}

void turn_end(struct turn *turn, uint64_t now_ms) {
  turn->place = turn->used;
  turn->began_ms = now_ms;
}
