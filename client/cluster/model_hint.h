/* How to make a model that is missing. */
#ifndef WEIR_CLIENT_CLUSTER_MODEL_HINT_H
#define WEIR_CLIENT_CLUSTER_MODEL_HINT_H

#include "common/base/err.h"

/* To an error about the model's file, which is not there: the command that makes it, where the comments at
   the top of the spec have one, as those of our examples do. That is a line which names the file, without its
   folder; what follows "  #" in it is not part of the command. */
void model_hint_add(const char *spec_path, const char *model_path, struct err *err);

#endif
