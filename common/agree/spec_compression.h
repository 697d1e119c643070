/* train.compression of a spec. */
#ifndef WEIR_COMMON_AGREE_SPEC_COMPRESSION_H
#define WEIR_COMMON_AGREE_SPEC_COMPRESSION_H

#include "common/base/err.h"
#include "spec.pb-c.h"

/* Of a spec that has it, with what it cannot be together with. Which names there are, common/compress knows.
   Errors: INVALID, naming the key. */
int spec_compression_check(const Weir__RunSpec *spec, struct err *err);

#endif
