/* Gradients on their way up from device to device: a bucket travels as one array a part, is added where it
   is, and what is left of it is copied down to be pushed. */
#include "common/agree/sum.h"
#include "worker/train/group/relay_gather.h"

/* A bucket that is gathered. */
struct device_bucket {
  struct gatherer *gatherer;
  const struct bucket *bucket;
  uint32_t n;     /* blocks */
  size_t elems;   /* of all blocks together: an array's */
  int own_first;  /* our parts are [own_first, own_first + own parts) of the relay's */
  bool is_packed; /* our parts are in arrays, too */
  /* Where the sum that is named after a part is: an array's number, or, of a part of ours that is not packed,
     its buffers. */
  int places[COLLECTIVE_SIZE_MAX * TREE_COVER_MAX];
  struct err *err;
};

static float *array_of(const struct relay *relay, int part) {
  return relay->arrays + (size_t)part * relay->bucket_elems;
}

static uint32_t block_of(const struct device_bucket *it, uint32_t i) {
  return it->gatherer->relay->plan.order[it->bucket->begin + i];
}

/* The own part's buffer of block i of the bucket. */
static struct buffer **own_of(const struct device_bucket *it, int part, uint32_t i) {
  int own_parts = relay_own(it->gatherer->relay)->n;
  return &it->gatherer->own[(int)i * own_parts + part - it->own_first];
}

static bool is_own(const struct device_bucket *it, int part) {
  return part >= it->own_first && part < it->own_first + relay_own(it->gatherer->relay)->n;
}

static bool is_in_buffers(const struct device_bucket *it, int place) {
  return is_own(it, place) && !it->is_packed;
}

/* An error of the device's is the run's. */
static int device_failed(const struct device_bucket *it) {
  if (it->err->code)
    run_fail(it->gatherer->relay->run, it->err, false);
  return it->err->code;
}

static int bucket_sync(const struct device_bucket *it, bool *is_finite) {
  struct relay *relay = it->gatherer->relay;
  struct err one = ERR_NONE; /* whatever has failed: memory is in use until then */
  if (relay->memory->wait(relay->stream, is_finite, &one) && !it->err->code)
    *it->err = one;
  return device_failed(it);
}

/* Adds the own part to an array, or puts it there. */
static int add_own(const struct device_bucket *it, float *array, int part, bool is_put) {
  const struct relay *relay = it->gatherer->relay;
  struct device_sum sums[BUCKET_BLOCKS_MAX];
  size_t at = 0;
  for (uint32_t i = 0; i < it->n; i++) {
    const struct buffer *own = *own_of(it, part, i);
    size_t elems = own->size_bytes / sizeof(float);
    sums[i] = (struct device_sum){array + at, (const float *)own->data, elems};
    if (is_put && relay->memory->copy(relay->stream, array + at, own->data, own->size_bytes, it->err))
      return it->err->code;
    at += elems;
  }
  return is_put ? 0 : relay->memory->add(relay->stream, sums, (int)it->n, it->err);
}

/* The sum of two is in an array that came: our own parts are no siblings of each other. */
static void on_add_on_device(void *user, int to, int from) {
  struct device_bucket *it = user;
  const struct relay *relay = it->gatherer->relay;
  if (is_in_buffers(it, it->places[to])) {
    int place = it->places[to];
    it->places[to] = it->places[from];
    it->places[from] = place;
  }
  CHECK(!is_in_buffers(it, it->places[to]));
  float *array = array_of(relay, it->places[to]);
  struct device_sum sum = {array, array_of(relay, it->places[from]), it->elems};
  it->gatherer->are_summed[to] = true;
  if (it->err->code)
    return;
  if (is_in_buffers(it, it->places[from]))
    add_own(it, array, it->places[from], false);
  else
    relay->memory->add(relay->stream, &sum, 1, it->err);
}

/* One array a part goes to the owner, or comes from the others. */
static int exchange_arrays(struct device_bucket *it, bool is_owner) {
  struct gatherer *gatherer = it->gatherer;
  struct relay *relay = gatherer->relay;
  int part = 0;
  for (int rank = 0; rank < relay->group.size; rank++)
    for (int p = 0; p < relay->parts[rank].n && !it->err->code; p++, part++) {
      struct collective_call call = {.kind = is_owner ? COLLECTIVE_RECEIVE : COLLECTIVE_SEND,
                                     .root = is_owner ? rank : (int)it->bucket->owner,
                                     .in = is_owner ? NULL : array_of(relay, part),
                                     .out = is_owner ? array_of(relay, part) : NULL,
                                     .elems = it->elems};
      if (is_own(it, part) != is_owner)
        gather_start_work(gatherer, &call, it->err);
    }
  return gather_finish_works(gatherer, it->err);
}

static struct buffer **landed_of(const struct device_bucket *it, int k, uint32_t i) {
  return &it->gatherer->landed[(uint32_t)k * BUCKET_BLOCKS_MAX + i];
}

/* The k-th sum that is left, block by block, in host memory once the stream was waited for. */
static int land_sum(const struct device_bucket *it, int k) {
  struct relay *relay = it->gatherer->relay;
  int place = it->places[it->gatherer->merged[k].index];
  const float *array = array_of(relay, place);
  for (uint32_t i = 0; i < it->n && !it->err->code; i++) {
    struct buffer *landed = *landed_of(it, k, i) = block_pool_take(relay->run->pool, block_of(it, i));
    if (!landed)
      return err_set(it->err, ERR_NO_MEMORY, "no memory for the gradient of block %u", block_of(it, i));
    relay->memory->copy(relay->stream, landed->data,
                        is_in_buffers(it, place) ? (*own_of(it, place, i))->data : (const void *)array,
                        landed->size_bytes, it->err);
    array += landed->size_bytes / sizeof(float);
  }
  return it->err->code;
}

/* What the device has not added it has not looked at: a part of a member's that nothing is added to, which
   may be a sum that overflowed there, and what a collective has added. */
static bool is_looked_at(const struct device_bucket *it, int k) {
  return it->gatherer->are_summed[it->gatherer->merged[k].index] && !it->gatherer->relay->is_reduced;
}

/* What is left, n sums of each block, goes to the servers. */
static int push_sums(const struct device_bucket *it, int n) {
  struct gatherer *gatherer = it->gatherer;
  struct buffer **sums[COLLECTIVE_SIZE_MAX * TREE_COVER_MAX];
  bool is_finite = true;
  for (int k = 0; k < n && !it->err->code; k++)
    land_sum(it, k);
  bucket_sync(it, &is_finite);
  for (uint32_t i = 0; i < it->n; i++) {
    gatherer->block = block_of(it, i);
    for (int k = 0; k < n && !it->err->code; k++) {
      const struct buffer *landed = *(sums[k] = landed_of(it, k, i));
      gatherer->are_unsound[gatherer->merged[k].index] =
          (!is_finite || !is_looked_at(it, k)) &&
          !sum_is_finite((const float *)landed->data, landed->size_bytes / sizeof(float));
    }
    if (!it->err->code)
      gather_push(gatherer, sums, n);
    for (int k = 0; k < n; k++) {
      block_pool_give(gatherer->relay->run->pool, gatherer->block, *landed_of(it, k, i));
      *landed_of(it, k, i) = NULL;
    }
  }
  return it->err->code;
}

static int add_and_push(struct device_bucket *it) {
  struct gatherer *gatherer = it->gatherer;
  const struct relay *relay = gatherer->relay;
  int part = 0, n;
  for (int rank = 0; rank < relay->group.size; rank++)
    for (int p = 0; p < relay->parts[rank].n; p++, part++) {
      gatherer->merged[part] = (struct group_part){relay->parts[rank].nodes[p], part};
      it->places[part] = part;
      gatherer->are_summed[part] = false;
    }
  if (exchange_arrays(it, true))
    return it->err->code;
  n = group_merge(gatherer->merged, part, relay->run->loaded.plan.microbatches, on_add_on_device, it);
  return push_sums(it, n);
}

static int send_own(struct device_bucket *it) {
  const struct relay *relay = it->gatherer->relay;
  bool is_finite; /* nothing is added */
  it->is_packed = true;
  for (int p = it->own_first; p < it->own_first + relay_own(relay)->n && !it->err->code; p++)
    add_own(it, array_of(relay, p), p, true);
  if (!bucket_sync(it, &is_finite))
    exchange_arrays(it, false);
  return it->err->code;
}

/* The collective adds the members' sums. */
static int reduce_and_push(struct device_bucket *it, bool is_owner) {
  struct gatherer *gatherer = it->gatherer;
  struct relay *relay = gatherer->relay;
  float *array = array_of(relay, it->own_first);
  struct collective_call call = {.kind = COLLECTIVE_REDUCE,
                                 .reduction = COLLECTIVE_SUM,
                                 .root = (int)it->bucket->owner,
                                 .in = array,
                                 .out = is_owner ? array : NULL,
                                 .elems = it->elems};
  bool is_finite;
  it->is_packed = true;
  for (int p = 0; p < relay_own(relay)->n && !it->err->code; p++)
    add_own(it, array, it->own_first + p, p == 0);
  if (bucket_sync(it, &is_finite))
    return it->err->code;
  gather_start_work(gatherer, &call, it->err);
  if (gather_finish_works(gatherer, it->err) || !is_owner)
    return it->err->code;
  gatherer->merged[0] = (struct group_part){relay->whole, 0};
  it->places[0] = it->own_first;
  return push_sums(it, 1);
}

int gather_on_device(struct gatherer *gatherer, const struct bucket *bucket, struct err *err) {
  const struct relay *relay = gatherer->relay;
  struct device_bucket it = {.gatherer = gatherer,
                             .bucket = bucket,
                             .n = bucket->end - bucket->begin,
                             .elems = relay_bucket_elems(relay, bucket),
                             .err = err};
  bool is_owner = (int)bucket->owner == relay->group.rank;
  for (int rank = 0; rank < relay->group.rank; rank++)
    it.own_first += relay->parts[rank].n;
  if (relay->is_reduced)
    return reduce_and_push(&it, is_owner);
  return is_owner ? add_and_push(&it) : send_own(&it);
}
