/* Offers and answers. */
#include "common/share/share.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"

enum offer_state { OFFER_MADE, OFFER_TAKEN };

struct offer {
  struct segment *segment; /* a reference */
  enum offer_state state;
};

struct taken {
  uint32_t id; /* the other end's */
  struct segment *segment;
};

struct share {
  void (*send)(void *user, const Weir__ShareMessage *message);
  void *user;
  uint32_t refs;        /* atomic */
  pthread_mutex_t lock; /* what follows */
  struct offer *offers;
  int n_offers, offers_capacity;
  struct taken *taken;
  int n_taken, taken_capacity;
  bool is_up, is_refused, is_closed;
};

struct share *share_new(void (*send)(void *user, const Weir__ShareMessage *message), void *user) {
  struct share *share = mem_new(sizeof *share);
  share->send = send;
  share->user = user;
  share->refs = 1;
  pthread_mutex_init(&share->lock, NULL);
  return share;
}

struct share *share_get(struct share *share) {
  __atomic_fetch_add(&share->refs, 1, __ATOMIC_RELAXED);
  return share;
}

void share_put(struct share *share) {
  if (!share || __atomic_sub_fetch(&share->refs, 1, __ATOMIC_ACQ_REL) > 0)
    return;
  for (int i = 0; i < share->n_offers; i++)
    segment_put(share->offers[i].segment);
  for (int i = 0; i < share->n_taken; i++)
    segment_put(share->taken[i].segment);
  pthread_mutex_destroy(&share->lock);
  free(share->offers);
  free(share->taken);
  free(share);
}

void share_close(struct share *share) {
  pthread_mutex_lock(&share->lock);
  share->is_closed = true;
  pthread_mutex_unlock(&share->lock);
}

static void send_locked(struct share *share, const Weir__ShareMessage *message) {
  if (!share->is_closed)
    share->send(share->user, message);
}

static struct taken *find_taken_locked(struct share *share, uint32_t id) {
  for (int i = 0; i < share->n_taken; i++)
    if (share->taken[i].id == id)
      return &share->taken[i];
  return NULL;
}

static int offered_locked(struct share *share, const Weir__Segment *offered, struct err *err) {
  struct segment_place place = {.pid = offered->pid, .fd = offered->fd, .size_bytes = offered->size};
  Weir__ShareMessage answer = WEIR__SHARE_MESSAGE__INIT;
  struct segment *segment;
  struct err refusal;
  if (offered->id == 0 || offered->token.len != sizeof place.token || find_taken_locked(share, offered->id) ||
      share->n_taken == SHARE_SEGMENTS_MAX)
    return err_set(err, ERR_INVALID,
                   "segment %u is offered twice, with %zu bytes of token, or after %d others", offered->id,
                   offered->token.len, share->n_taken);
  memcpy(place.token, offered->token.data, sizeof place.token);
  if (segment_open(&place, &segment, &refusal)) {
    answer.refused = offered->id;
    answer.reason = refusal.text;
    send_locked(share, &answer);
    log_event(LOG_DEBUG, "share", "refused", "segment=%u code=%s reason=\"%s\"", offered->id,
              err_name(refusal.code), refusal.text);
    return 0;
  }
  array_reserve((void **)&share->taken, &share->taken_capacity, share->n_taken, sizeof *share->taken);
  share->taken[share->n_taken++] = (struct taken){offered->id, segment};
  share->is_up = true;
  answer.taken = offered->id;
  send_locked(share, &answer);
  return 0;
}

static int answered_locked(struct share *share, uint32_t id, struct err *err) {
  for (int i = 0; i < share->n_offers; i++) {
    if (share->offers[i].segment->id != id)
      continue;
    share->offers[i].state = OFFER_TAKEN;
    share->is_up = true;
    return 0;
  }
  return err_set(err, ERR_INVALID, "segment %u was not offered", id);
}

int share_take(struct share *share, const Weir__ShareMessage *message, struct err *err) {
  err->code = ERR_OK;
  pthread_mutex_lock(&share->lock);
  if (message->offered)
    offered_locked(share, message->offered, err);
  if (!err->code && message->taken)
    answered_locked(share, message->taken, err);
  share->is_refused |= message->refused != 0;
  pthread_mutex_unlock(&share->lock);
  return err->code;
}

bool share_is_up(struct share *share) {
  bool is_up;
  pthread_mutex_lock(&share->lock);
  is_up = share->is_up;
  pthread_mutex_unlock(&share->lock);
  return is_up;
}

bool share_is_refused(struct share *share) {
  bool is_refused;
  pthread_mutex_lock(&share->lock);
  is_refused = share->is_refused;
  pthread_mutex_unlock(&share->lock);
  return is_refused;
}

static void offer_locked(struct share *share, struct segment *segment) {
  struct segment_place place = segment_place(segment);
  Weir__ShareMessage message = WEIR__SHARE_MESSAGE__INIT;
  Weir__Segment offered = WEIR__SEGMENT__INIT;
  if (share->n_offers == SHARE_SEGMENTS_MAX)
    return;
  array_reserve((void **)&share->offers, &share->offers_capacity, share->n_offers, sizeof *share->offers);
  share->offers[share->n_offers++] = (struct offer){segment_get(segment), OFFER_MADE};
  offered.id = segment->id;
  offered.pid = place.pid;
  offered.fd = place.fd;
  offered.size = place.size_bytes;
  offered.token = (ProtobufCBinaryData){sizeof place.token, place.token};
  message.offered = &offered;
  send_locked(share, &message);
}

static bool may_name_locked(struct share *share, struct segment *segment) {
  if (share->is_closed || share->is_refused)
    return false;
  for (int i = 0; i < share->n_offers; i++)
    if (share->offers[i].segment == segment)
      return share->offers[i].state == OFFER_TAKEN;
  offer_locked(share, segment);
  return false;
}

bool share_name(struct share *share, const struct buffer *buffer, Weir__SharedBytes *name) {
  bool may_name;
  if (!share || !buffer->place)
    return false;
  pthread_mutex_lock(&share->lock);
  may_name = may_name_locked(share, buffer->place->segment);
  pthread_mutex_unlock(&share->lock);
  if (!may_name)
    return false;
  name->segment = buffer->place->segment->id;
  name->offset = buffer->place->offset;
  name->size = buffer->size_bytes;
  name->turn = shared_turn(buffer->place);
  return true;
}

int share_find(struct share *share, const Weir__SharedBytes *name, struct shared_bytes *bytes,
               struct err *err) {
  struct taken *taken;
  pthread_mutex_lock(&share->lock);
  taken = find_taken_locked(share, name->segment);
  *bytes =
      (struct shared_bytes){taken ? segment_get(taken->segment) : NULL, name->offset, name->size, name->turn};
  pthread_mutex_unlock(&share->lock);
  if (!bytes->segment)
    return err_set(err, ERR_INVALID, "bytes in segment %u, which was not taken", name->segment);
  if (!shared_bytes_check(bytes, err))
    return 0;
  shared_bytes_put(bytes);
  return err->code;
}
