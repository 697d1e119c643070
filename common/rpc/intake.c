/* Room for received payloads, given in the order in which calls ask. */
#include "common/rpc/intake.h"

#include <pthread.h>
#include <stdlib.h>

#include "common/base/err.h"
#include "common/rpc/wire.h"

struct rpc_intake {
  pthread_mutex_t lock; /* what follows */
  size_t bytes, bytes_max;
  struct rpc_intake_place *first, **end; /* that wait */
  int refs;                              /* the server's, and one of each rpc_bytes that came */
};

struct rpc_intake *rpc_intake_new(size_t bytes_max) {
  struct rpc_intake *intake = mem_new(sizeof *intake);
  pthread_mutex_init(&intake->lock, NULL);
  intake->bytes_max = bytes_max ? bytes_max : SIZE_MAX;
  intake->end = &intake->first;
  intake->refs = 1;
  return intake;
}

static bool has_room_locked(const struct rpc_intake *intake, size_t bytes) {
  return intake->bytes == 0 || bytes <= intake->bytes_max - intake->bytes;
}

/* Takes the places whose turn has come out of the queue. */
static struct rpc_intake_place *admit_locked(struct rpc_intake *intake) {
  struct rpc_intake_place *admitted = intake->first, **end = &intake->first;
  while (*end && intake->bytes <= intake->bytes_max && has_room_locked(intake, (*end)->bytes)) {
    intake->bytes += (*end)->bytes;
    (*end)->is_waiting = false;
    end = &(*end)->next;
  }
  if (end == &intake->first)
    return NULL;
  intake->first = *end;
  if (!intake->first)
    intake->end = &intake->first;
  *end = NULL;
  return admitted;
}

/* Unlocks, tells who is admitted, and frees the intake with its last reference. */
static void settle_and_unlock(struct rpc_intake *intake) {
  struct rpc_intake_place *admitted = admit_locked(intake), *next;
  int refs = intake->refs;
  pthread_mutex_unlock(&intake->lock);
  for (; admitted; admitted = next) {
    next = admitted->next;
    admitted->admitted(admitted);
  }
  if (refs)
    return;
  pthread_mutex_destroy(&intake->lock);
  free(intake);
}

void rpc_intake_free(struct rpc_intake *intake) {
  pthread_mutex_lock(&intake->lock);
  CHECK(!intake->first);
  intake->refs--;
  settle_and_unlock(intake);
}

bool rpc_intake_enter(struct rpc_intake_place *place, size_t bytes) {
  struct rpc_intake *intake = place->intake;
  bool is_admitted;
  pthread_mutex_lock(&intake->lock);
  place->bytes = bytes;
  is_admitted = !intake->first && intake->bytes <= intake->bytes_max && has_room_locked(intake, bytes);
  if (is_admitted) {
    intake->bytes += bytes;
  } else {
    place->is_waiting = true;
    place->next = NULL;
    *intake->end = place;
    intake->end = &place->next;
  }
  pthread_mutex_unlock(&intake->lock);
  return is_admitted;
}

static void give_back_locked(struct rpc_intake_place *place) {
  place->intake->bytes -= place->bytes;
  place->bytes = 0;
}

void rpc_intake_came(struct rpc_intake_place *place, struct rpc_bytes *bytes) {
  struct rpc_intake *intake = place->intake;
  pthread_mutex_lock(&intake->lock);
  give_back_locked(place);
  intake->bytes += rpc_bytes_size(bytes);
  if (bytes) {
    rpc_bytes_charge(bytes, intake);
    intake->refs++;
  }
  settle_and_unlock(intake);
}

static void give_up_turn_locked(struct rpc_intake_place *place) {
  struct rpc_intake *intake = place->intake;
  struct rpc_intake_place **link = &intake->first;
  while (*link != place)
    link = &(*link)->next;
  *link = place->next;
  if (!*link)
    intake->end = link;
  place->is_waiting = false;
  place->bytes = 0;
}

bool rpc_intake_lapse(struct rpc_intake_place *place) {
  struct rpc_intake *intake = place->intake;
  bool is_waiting;
  pthread_mutex_lock(&intake->lock);
  is_waiting = place->is_waiting;
  if (!is_waiting)
    give_back_locked(place);
  settle_and_unlock(intake);
  return is_waiting;
}

bool rpc_intake_leave(struct rpc_intake_place *place) {
  struct rpc_intake *intake = place->intake;
  bool was_waiting;
  if (!intake)
    return false;
  pthread_mutex_lock(&intake->lock);
  was_waiting = place->is_waiting;
  if (was_waiting)
    give_up_turn_locked(place);
  else
    give_back_locked(place);
  settle_and_unlock(intake);
  return was_waiting;
}

void rpc_intake_release(struct rpc_intake *intake, size_t bytes) {
  pthread_mutex_lock(&intake->lock);
  intake->bytes -= bytes;
  intake->refs--;
  settle_and_unlock(intake);
}

size_t rpc_intake_bytes(struct rpc_intake *intake) {
  size_t bytes;
  pthread_mutex_lock(&intake->lock);
  bytes = intake->bytes;
  pthread_mutex_unlock(&intake->lock);
  return bytes;
}
