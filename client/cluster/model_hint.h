/* How to make a model that is missing. */
#ifndef WEIR_CLIENT_CLUSTER_MODEL_HINT_H
#define WEIR_CLIENT_CLUSTER_MODEL_HINT_H

#include "common/base/err.h"

/* Adds to an error about a missing model file the command that makes it, if the comments at the top of the
   spec have one, as those of our examples do. The command is on the line that names the file without its
   folder; what follows "  #" there is not part of it. */
void model_hint_add(const char *spec_path, const char *model_path, struct err *err);

#endif
