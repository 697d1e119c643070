/* Pieces of a new run's model: those that the store does not have are asked for, a few at a time. */
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "server/coordinator/shell/piece_hold.h"
#include "server/coordinator/shell/submit.h"

static void pieces_find(struct task *task);
static int find_missing(struct upload *upload);
static void pieces_ask(struct upload *upload);
static void pieces_take(struct task *task);
static void pieces_end(struct upload *upload);

void upload_pieces_begin(struct upload *upload) {
  upload->refs = 2;
  pthread_mutex_init(&upload->lock, NULL);
}

void upload_pieces_put(struct upload *upload) {
  if (__atomic_sub_fetch(&upload->refs, 1, __ATOMIC_ACQ_REL))
    return;
  pthread_mutex_destroy(&upload->lock);
  free(upload->missing);
  free(upload->batch);
  upload_free(upload);
}

void upload_pieces_want(struct upload *upload) {
  upload->task.run = pieces_find;
  task_post(upload->shell->jobs, &upload->task); /* bounded as uploads are */
}

/* From here on no sweep takes a piece away. */
static void pieces_find(struct task *task) {
  struct upload *upload = TASK_OWNER(task, struct upload, task);
  struct coordinator_service *shell = upload->shell;
  if (shell_is_ending(shell))
    err_set(&upload->err, ERR_UNAVAILABLE, "the coordinator is stopping");
  else if (shell_has_refs(shell, &upload->err)) {
    upload->hold = piece_hold_new(shell, upload->models->model);
    find_missing(upload);
  }
  pieces_ask(upload);
}

/* What another tenant alone has brought is asked for: nobody learns that it is there, or gets at it by its
   name. */
static bool is_own(const struct upload *upload, const char *key) {
  struct block_refs *refs = upload->shell->refs;
  return upload->submitter.sees_all || !block_refs_are_shared(refs) ||
         block_refs_has(refs, upload->submitter.tenant, key);
}

static int find_missing(struct upload *upload) {
  const struct onnx_outline *pieces = &upload->models->model->pieces;
  upload->missing = mem_new(pieces->n_named * sizeof *upload->missing);
  for (size_t begin = 0; begin < pieces->n_named;) {
    const char *keys[STORE_BATCH_MAX];
    bool has[STORE_BATCH_MAX];
    size_t at[STORE_BATCH_MAX];
    int n = 0;
    for (; begin < pieces->n_named && n < STORE_BATCH_MAX; begin++) {
      bool is_same = begin > 0 && strcmp(pieces->named[begin].key, pieces->named[begin - 1].key) == 0;
      at[n] = begin;
      keys[n] = pieces->named[begin].key;
      n += !is_same;
    }
    if (store_has_blocks(upload->shell->store, keys, n, has, &upload->err))
      return upload->err.code;
    for (int i = 0; i < n; i++)
      if (!has[i] || !is_own(upload, keys[i]))
        upload->missing[upload->n_missing++] = pieces->named[at[i]];
  }
  return 0;
}

/* A struct piece_source's read, from the store. */
static int read_stored(void *user, const struct piece_read *reads, int n, struct err *err) {
  for (int i = 0; i < n; i++) {
    void *data;
    size_t size;
    if (store_get(user, reads[i].key, &data, &size, err))
      return err->code;
    if (size == reads[i].size_bytes)
      memcpy(reads[i].to, data, size);
    else
      err_set(err, ERR_CORRUPT, "piece %s has %zu bytes, not %zu", reads[i].key, size, reads[i].size_bytes);
    free(data);
    if (err->code)
      return err->code;
  }
  return 0;
}

/* Of a run that only evaluates: it never gets another version. */
static int hash_weights(struct upload *upload) {
  const Weir__TrainSpec *train = upload->spec->train;
  struct piece_source source = {read_stored, upload->shell->store};
  struct model *model;
  if (!train->has_steps || train->steps > 0)
    return 0;
  if (model_open(&(struct model_source){.onnx = upload->models->model->file->data,
                                        .size_bytes = upload->models->model->file->size_bytes,
                                        .spec = upload->spec,
                                        .samples = train->batch / train->microbatches},
                 &model, &upload->err))
    return upload->err.code;
  model_initial_sha256(model, &source, upload->weights_sha256, &upload->err);
  model_close(model);
  return upload->err.code;
}

/* Asks for the next pieces, or goes on with the run when all are there. */
static void pieces_ask(struct upload *upload) {
  Weir__SubmitReply reply = WEIR__SUBMIT_REPLY__INIT;
  char *keys[UPLOAD_BATCH];
  size_t left = upload->n_missing - upload->at;
  int n = left < UPLOAD_BATCH ? (int)left : UPLOAD_BATCH;
  bool is_asking;
  pthread_mutex_lock(&upload->lock);
  if (!upload->err.code)
    upload->err = upload->client_err;
  pthread_mutex_unlock(&upload->lock);
  for (int i = 0; i < n; i++)
    keys[i] = upload->missing[upload->at + (size_t)i].key;
  reply.wanted = keys;
  reply.n_wanted = (size_t)n;
  reply.missing = left;
  if (!upload->err.code && left == 0 && hash_weights(upload) == 0 && upload_store(upload) == 0)
    run_id_draw(upload->shell->store, upload->spec->name, upload->id, &upload->err);
  if (left > 0 && !upload->batch)
    upload->batch = mem_new((size_t)UPLOAD_BATCH * PIECE_BYTES_MAX);
  pthread_mutex_lock(&upload->lock);
  if (!upload->err.code && left > 0)
    upload->err = upload->client_err;
  if (!upload->err.code && left > 0 && upload->is_ended)
    err_set(&upload->err, ERR_INVALID, "submit: the client ended, and %zu pieces are missing", left);
  is_asking = !upload->err.code && left > 0;
  upload->state = is_asking ? UPLOAD_ASKED : UPLOAD_OVER;
  upload->n_asked = n;
  upload->n_came = 0;
  pthread_mutex_unlock(&upload->lock);
  if (is_asking)
    rpc_call_send(upload->call, &reply, NULL); /* of one that is gone on_closed knows */
  else
    pieces_end(upload);
}

static void pieces_end(struct upload *upload) {
  upload->task.run = upload_accept;
  task_post(upload->shell->event_loop, &upload->task);
}

/* The pieces that were asked for have come. */
static void pieces_take(struct task *task) {
  struct upload *upload = TASK_OWNER(task, struct upload, task);
  struct store_block blocks[UPLOAD_BATCH] = {{.n_parts = 1}};
  int n = upload->n_came;
  for (int i = 0; i < n && !upload->err.code; i++) {
    const struct piece_place *place = &upload->missing[upload->at + (size_t)i];
    char sha256[SHA256_HEX_SIZE];
    blocks[i].n_parts = 1;
    blocks[i].parts[0] = (struct iovec){upload->batch + (size_t)i * PIECE_BYTES_MAX, place->size_bytes};
    sha256_hex(blocks[i].parts[0].iov_base, place->size_bytes, sha256);
    if (strcmp(sha256, place->key) != 0)
      err_set(&upload->err, ERR_INVALID, "submit: piece %s came with the sha256 %s", place->key, sha256);
  }
  if (!upload->err.code && shell_is_ending(upload->shell))
    err_set(&upload->err, ERR_UNAVAILABLE, "the coordinator is stopping");
  if (!upload->err.code)
    store_put_blocks(upload->shell->store, blocks, n, NULL, &upload->err);
  upload->at += (size_t)n;
  pieces_ask(upload);
}

/* Lock held. Why the message is not the next piece that was asked for; NULL: it is. */
static const char *refuse_piece(const struct upload *upload, const Weir__SubmitRequest *request) {
  if (request->spec || request->chunk.len > 0)
    return "submit: more came than the file that was announced";
  if (upload->state != UPLOAD_ASKED)
    return "submit: a piece came that was not asked for";
  if (request->piece.len != upload->missing[upload->at + (size_t)upload->n_came].size_bytes)
    return "submit: a piece has not the size that the file says";
  return NULL;
}

/* Lock held: what the client did wrong ends the upload, now or when whoever works on it is done. */
static void client_fail(struct upload *upload, const struct err *err) {
  if (upload->state == UPLOAD_ASKED) {
    upload->state = UPLOAD_OVER;
    upload->err = *err;
    pieces_end(upload);
  } else if (!upload->client_err.code) {
    upload->client_err = *err;
  }
}

void upload_pieces_on_message(struct upload *upload, const Weir__SubmitRequest *request) {
  struct err err = ERR_NONE;
  const char *why;
  pthread_mutex_lock(&upload->lock);
  why = upload->state == UPLOAD_OVER ? NULL : refuse_piece(upload, request);
  if (why)
    err_set(&err, ERR_INVALID, "%s", why);
  upload->received_bytes += request->piece.len;
  if (upload->state != UPLOAD_OVER && !err.code)
    upload_check_rate(upload, &err);
  if (err.code)
    client_fail(upload, &err);
  else if (upload->state == UPLOAD_ASKED) {
    memcpy(upload->batch + (size_t)upload->n_came * PIECE_BYTES_MAX, request->piece.data, request->piece.len);
    if (++upload->n_came == upload->n_asked) {
      upload->state = UPLOAD_BUSY;
      upload->task.run = pieces_take;
      task_post(upload->shell->jobs, &upload->task);
    }
  }
  pthread_mutex_unlock(&upload->lock);
}

void upload_pieces_on_end(struct upload *upload, bool is_closed) {
  struct err err;
  pthread_mutex_lock(&upload->lock);
  upload->is_ended = true;
  if (upload->state == UPLOAD_ASKED) {
    err_set(&err, is_closed ? ERR_CANCELLED : ERR_INVALID,
            "submit: the client ended, and %zu pieces are missing", upload->n_missing - upload->at);
    client_fail(upload, &err);
  }
  pthread_mutex_unlock(&upload->lock);
  if (is_closed)
    upload_pieces_put(upload);
}
