/* The team that a view has a worker in. */
#include "worker/train/run/mates.h"

#include <stdio.h>
#include <string.h>

enum { TERM_SHIFT = 32 }; /* views are numbered from term << 32 */

bool stage_part_is_whole(const struct stage_part *part) {
  return part->first == 0 && part->last == part->n_stages - 1;
}

static const Weir__Assignment *own_assignment(const Weir__View *view, const char *worker) {
  for (size_t i = 0; i < view->n_workers; i++)
    if (strcmp(view->workers[i]->worker, worker) == 0)
      return view->workers[i];
  return NULL;
}

static bool has_same_work(const Weir__Assignment *a, const Weir__Assignment *b) {
  return a->microbatch_begin == b->microbatch_begin && a->microbatch_end == b->microbatch_end &&
         a->eval_begin == b->eval_begin && a->eval_end == b->eval_end;
}

/* Whether the address is one where there is to be one, and none where there is not. */
static bool take_address(const char *address, bool is_wanted, char out[MATE_ADDRESS_MAX + 1]) {
  snprintf(out, MATE_ADDRESS_MAX + 1, "%s", address);
  return strlen(address) <= MATE_ADDRESS_MAX && (*address != 0) == is_wanted;
}

bool mates_read(const Weir__View *view, const char *worker, const struct stage_part *part,
                struct mates *mates) {
  const Weir__Assignment *own = own_assignment(view, worker);
  const char *below = "", *above = "";
  bool is_past = false, is_sound = true;
  *mates = (struct mates){0};
  if (!own || own->team == 0)
    return true;
  for (size_t i = 0; i < view->n_workers; i++) {
    const Weir__Assignment *member = view->workers[i];
    if (member->team != own->team)
      continue;
    is_sound &= has_same_work(member, own);
    if (member == own)
      is_past = true;
    else if (!is_past)
      below = member->address;
    else if (!*above)
      above = member->address;
  }
  is_sound &= take_address(below, part->first > 0, mates->below);
  is_sound &= take_address(above, part->last < part->n_stages - 1, mates->above);
  mates->term = view->number >> TERM_SHIFT;
  mates->incarnation = view->incarnation;
  mates->view = view->number;
  mates->number = own->team;
  if (!is_sound)
    *mates = (struct mates){0};
  return is_sound;
}

bool mates_are_same(const struct mates *a, const struct mates *b) {
  return a->number == b->number && a->term == b->term && a->incarnation == b->incarnation;
}
