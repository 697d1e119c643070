/* An event file of TensorBoard: its records say themselves which of a run's events they have, so that a run
   can be written on later. Where a run was rolled back, the file takes back what it had from that step on. */
#ifndef WEIR_CLIENT_FILES_EVENT_FILE_H
#define WEIR_CLIENT_FILES_EVENT_FILE_H

#include <stdbool.h>

#include "client/files/event_filter.h"
#include "client/files/tfrecord.h"
#include "tensorboard.pb-c.h"

#define EVENT_FILE_SESSION_START "_hparams_/session_start_info"
#define EVENT_FILE_SESSION_END "_hparams_/session_end_info"

struct event_file {
  struct tfrecord_file file;
  struct event_mark mark; /* of the newest scalars */
  uint64_t incarnation;   /* of what is written next */
  double seconds;         /* wall time of the newest record and of the next; the caller moves it on */
  bool is_started;        /* it has a START */
  bool is_begun, is_over; /* it has EVENT_FILE_SESSION_START; EVENT_FILE_SESSION_END or a STOP */
};

/* Opens or makes the file in the folder, which is made, too. begun_seconds: since 1970, when the run was
   submitted. Errors: those of tfrecord_open; INVALID for records that are no events. close is due after an
   error, too. */
int event_file_open(struct event_file *file, const char *folder, double begun_seconds, struct err *err);
/* Sets the event's wall time. Errors: IO. */
int event_file_append(struct event_file *file, Weir__Tensorboard__Event *event, struct err *err);
/* Appends scalars of a step of an incarnation. Errors: IO. */
int event_file_scalars(struct event_file *file, const struct event_mark *at,
                       Weir__Tensorboard__Summary *scalars, struct err *err);
/* The end of what the file has. Errors: IO. */
int event_file_stop(struct event_file *file, uint64_t step, struct err *err);
void event_file_close(struct event_file *file); /* safe on a zeroed one */

#endif
