/* A run's events as TensorBoard reads them: FOLDER/RUN/train and FOLDER/RUN/eval have the scalars of steps
   and of evaluations, so that one chart shows both losses. Of a sweep's trial FOLDER/RUN has its values, for
   the table of hyperparameters. What the files have is read when they are opened: no point is written twice.
 */
#ifndef WEIR_CLIENT_FILES_TENSORBOARD_H
#define WEIR_CLIENT_FILES_TENSORBOARD_H

#include "client/files/event_sink.h"

struct tensorboard;

/* Opens what the folder has of the run, or makes it. info: of the run, of which the id and the time of
   submission count. trial: that the run is of; NULL: of none. Neither is kept. Errors: IO; EXISTS where
   another process writes it; INVALID for files of another program. */
int tensorboard_open(const char *folder, const Weir__RunInfo *info, const Weir__SweepTrial *trial,
                     struct tensorboard **out, struct err *err);
/* Takes the run's events, from the first one or from where the files were left. Errors of it: IO. */
struct event_sink *tensorboard_sink(struct tensorboard *tensorboard);
/* Where the run has ended: so says the table of hyperparameters. Errors: IO. */
int tensorboard_end(struct tensorboard *tensorboard, Weir__RunState state, struct err *err);
void tensorboard_close(struct tensorboard *tensorboard); /* NULL is ignored */

#endif
