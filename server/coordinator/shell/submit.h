/* Uploads under way. Private to submit.c and submit_pieces.c. */
#ifndef WEIR_SERVER_COORDINATOR_SHELL_SUBMIT_H
#define WEIR_SERVER_COORDINATOR_SHELL_SUBMIT_H

#include "server/coordinator/shell/shell.h"

enum { UPLOAD_BATCH = 16 };

/* Who has an upload whose file names pieces, once the file is there. */
enum upload_state { UPLOAD_BUSY, UPLOAD_ASKED, UPLOAD_OVER };

/* A model that is uploaded, and what `slow` finds of it. */
struct upload_model {
  const char *name;    /* as the spec has it; the upload's */
  struct buffer *onnx; /* until the model is made of it; NULL: the file is that of the first model */
  struct run_model *model;
  char sha256[65];
  uint64_t parameters, multiply_adds;
  uint32_t *block_elems;
  uint32_t n_blocks;
};

/* Belongs to gRPC's thread until the client has sent the file, then to `slow`, then to the event loop. One
   whose file names pieces goes from `slow` to the jobs, which ask gRPC's thread for pieces until all are in
   the store, and from there to the event loop. */
struct upload {
  struct task task;
  struct coordinator_service *shell;
  struct rpc_call *call;
  struct viewer submitter;
  struct upload *next; /* in shell->uploads_list */
  Weir__RunSpec *spec;
  Weir__SweepSpec *sweep;      /* NULL: a run is submitted */
  struct upload_model *models; /* [n_models] that of the spec, then those of the sweep's files */
  uint32_t n_models;
  uint64_t bytes, received_bytes, begin_ns; /* bytes: of all models */
  bool has_pieces;
  /* what `slow` finds */
  char weights_sha256[65]; /* of a run that only evaluates */
  char id[RUN_ID_SIZE];
  struct err err;

  /* of one with pieces, from when its file is there */
  uint32_t refs; /* atomic: of the call, until it is closed, and of who works on it */
  struct piece_hold *hold;
  struct piece_place *missing; /* [n_missing] that the store did not have; those before `at` have come */
  size_t n_missing, at;
  char *batch;          /* [UPLOAD_BATCH][PIECE_BYTES_MAX] that come */
  pthread_mutex_t lock; /* what follows */
  enum upload_state state;
  int n_asked, n_came; /* from `at` on */
  bool is_ended;       /* the client has half-closed, or is gone */
  struct err client_err;
};

/* Bytes a second that an upload has to have on average, after a time in which it may be slow. Errors:
 * CANCELLED. */
int upload_check_rate(const struct upload *upload, struct err *err);
/* On the event loop: answers the call, and lets go of the upload. */
void upload_accept(struct task *task);
/* Puts the models' files and outlines into the store. */
int upload_store(struct upload *upload);
void upload_free(struct upload *upload);

/* submit_pieces.c */
void upload_pieces_begin(struct upload *upload); /* gRPC's thread: the file is there */
void upload_pieces_want(struct upload *upload);  /* `slow`: it was checked */
void upload_pieces_put(struct upload *upload);   /* lets go of one reference */
void upload_pieces_on_message(struct upload *upload, const Weir__SubmitRequest *request);
void upload_pieces_on_end(struct upload *upload, bool is_closed);

#endif
