/* The values of a sweep's trial in an event file, as TensorBoard's table of hyperparameters reads them. */
#ifndef WEIR_CLIENT_FILES_HPARAMS_H
#define WEIR_CLIENT_FILES_HPARAMS_H

#include "client/files/event_file.h"
#include "training.pb-c.h"

/* A number, true or false as such, else a text, by their paths in the spec. Runs of one trial are shown
 * together. Errors: IO. */
int hparams_begin(struct event_file *file, const Weir__SweepTrial *trial, const char *group, struct err *err);
/* The trial's run has ended, with a result or without. Errors: IO. */
int hparams_end(struct event_file *file, bool is_good, struct err *err);

#endif
