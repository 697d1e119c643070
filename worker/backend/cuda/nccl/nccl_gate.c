/* Who takes part in an operation of an nccl group has come to it. */
#include "worker/backend/cuda/nccl/nccl.h"
#include "worker/collective/shm_meeting.h"

static const float nothing = 0;

/* One that fails was aborted with its group, which is seen elsewhere. */
static void gate_tell(struct collective *c, struct collective_work *work, int gate,
                      enum collective_kind kind) {
  struct collective_call call = {
      .kind = kind, .root = work->call.root, .in = &nothing, .out = work->told, .elems = 1};
  struct err ignored;
  if (collective_shm.start(c->meeting, &call, &work->gates[gate], &ignored))
    work->gates[gate] = NULL;
}

void nccl_gate_begin(struct collective *c, struct collective_work *work) {
  switch (work->call.kind) {
  case COLLECTIVE_SEND:
  case COLLECTIVE_RECEIVE: /* between the two alone */
    gate_tell(c, work, 0, COLLECTIVE_SEND);
    gate_tell(c, work, 1, COLLECTIVE_RECEIVE);
    break;
  default:
    gate_tell(c, work, 0, COLLECTIVE_ALL_GATHER);
  }
}

bool nccl_gate_is_open(const struct collective_work *work) {
  for (int g = 0; g < 2; g++)
    if (work->gates[g] && !collective_shm.is_done(work->gates[g]))
      return false;
  return true;
}

void nccl_gate_end(struct collective_work *work) {
  struct err ignored;
  for (int g = 0; g < 2; g++)
    if (work->gates[g])
      collective_shm.wait(work->gates[g], &ignored);
  work->gates[0] = work->gates[1] = NULL;
}
