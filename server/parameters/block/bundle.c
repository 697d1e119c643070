/* Pushes that came together. */
#include "server/parameters/block/bundle.h"

#include <pthread.h>
#include <stdlib.h>

#include "common/base/text.h"

enum part_state { PART_ON_ITS_WAY, PART_WAITS, PART_ANSWERED };

struct bundle_part {
  struct parameters_call *call; /* the service's */
  enum part_state state;
  Weir__PartAnswer answer;
  Weir__SharedBytes name;
  char *error; /* NULL: none */
};

struct bundle {
  struct rpc_call *rpc; /* of whoever replies */
  uint32_t n;
  uint32_t refs;        /* atomic */
  pthread_mutex_t lock; /* what follows */
  bool has_refused, has_replied;
  struct bundle_part parts[SHARE_PARTS_MAX];
};

struct bundle *bundle_new(struct rpc_call *rpc, uint32_t n) {
  struct bundle *bundle = mem_new(sizeof *bundle);
  CHECK(n <= SHARE_PARTS_MAX);
  bundle->rpc = rpc;
  bundle->n = n;
  bundle->refs = 1;
  pthread_mutex_init(&bundle->lock, NULL);
  for (uint32_t i = 0; i < n; i++) {
    weir__part_answer__init(&bundle->parts[i].answer);
    weir__shared_bytes__init(&bundle->parts[i].name);
  }
  return bundle;
}

struct bundle *bundle_get(struct bundle *bundle) {
  __atomic_fetch_add(&bundle->refs, 1, __ATOMIC_RELAXED);
  return bundle;
}

void bundle_put(struct bundle *bundle) {
  if (!bundle || __atomic_sub_fetch(&bundle->refs, 1, __ATOMIC_ACQ_REL) > 0)
    return;
  for (uint32_t i = 0; i < bundle->n; i++)
    free(bundle->parts[i].error);
  pthread_mutex_destroy(&bundle->lock);
  free(bundle);
}

void bundle_set_call(struct bundle *bundle, uint32_t part, struct parameters_call *call) {
  bundle->parts[part].call = call;
}

struct parameters_call *bundle_call(const struct bundle *bundle, uint32_t part) {
  return bundle->parts[part].call;
}

uint32_t bundle_parts(const struct bundle *bundle) {
  return bundle->n;
}

static bool is_due_locked(const struct bundle *bundle) {
  enum part_state least = PART_ANSWERED;
  for (uint32_t i = 0; i < bundle->n; i++)
    least = bundle->parts[i].state < least ? bundle->parts[i].state : least;
  return least == PART_ANSWERED || (least == PART_WAITS && bundle->has_refused);
}

static void reply_if_due_locked(struct bundle *bundle) {
  Weir__PartAnswer *answers[SHARE_PARTS_MAX];
  Weir__PushReply reply = WEIR__PUSH_REPLY__INIT;
  if (bundle->has_replied || !is_due_locked(bundle))
    return;
  bundle->has_replied = true;
  for (uint32_t i = 0; i < bundle->n; i++)
    answers[i] = &bundle->parts[i].answer;
  reply.answers = answers;
  reply.n_answers = bundle->n;
  rpc_call_reply(bundle->rpc, &reply, NULL);
}

void bundle_wait(struct bundle *bundle, uint32_t part, uint64_t version) {
  struct bundle_part *own = &bundle->parts[part];
  pthread_mutex_lock(&bundle->lock);
  if (own->state == PART_ON_ITS_WAY) {
    own->state = PART_WAITS;
    own->answer.version = version;
    reply_if_due_locked(bundle);
  }
  pthread_mutex_unlock(&bundle->lock);
}

bool bundle_answer(struct bundle *bundle, uint32_t part, uint64_t version, struct share *share,
                   const struct buffer *data) {
  struct bundle_part *own = &bundle->parts[part];
  pthread_mutex_lock(&bundle->lock);
  own->state = PART_ANSWERED;
  if (!bundle->has_replied) {
    own->answer.version = version;
    own->answer.shared = data && share_name(share, data, &own->name) ? &own->name : NULL;
    reply_if_due_locked(bundle);
  }
  pthread_mutex_unlock(&bundle->lock);
  return own->answer.shared;
}

void bundle_refuse(struct bundle *bundle, uint32_t part, const struct err *err) {
  struct bundle_part *own = &bundle->parts[part];
  pthread_mutex_lock(&bundle->lock);
  own->state = PART_ANSWERED;
  if (!bundle->has_replied) {
    bundle->has_refused = true;
    own->error = text_copy_clean(err->text, sizeof err->text);
    own->answer.status = (uint32_t)err_grpc_status(err->code);
    own->answer.error = own->error;
    reply_if_due_locked(bundle);
  }
  pthread_mutex_unlock(&bundle->lock);
}
