/* Parameter groups of an optimizer's spec: entries of train.optimizer.groups. A group holds the options in
   which some tensors differ from the others. model/model.h says which tensors these are. */
#ifndef WEIR_COMMON_AGREE_PARAM_GROUPS_H
#define WEIR_COMMON_AGREE_PARAM_GROUPS_H

#include "common/base/err.h"
#include "spec.pb-c.h"

/* Every group has its patterns, the optimizer none; groups have neither a name nor groups. Errors: INVALID
   naming the key by its path ("train.optimizer.groups[1].params"). */
int param_groups_check(const Weir__OptimizerSpec *optimizer, struct err *err);

/* The path of an entry, for messages: "train.optimizer.groups[1]". */
enum { PARAM_GROUP_PATH_SIZE = 40 };
const char *param_group_path(uint32_t index, char path[PARAM_GROUP_PATH_SIZE]);

#endif
