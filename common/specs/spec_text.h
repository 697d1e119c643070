/* A spec as text. */
#ifndef WEIR_COMMON_SPECS_SPEC_TEXT_H
#define WEIR_COMMON_SPECS_SPEC_TEXT_H

#include "spec.pb-c.h"

/* YAML in one line, which spec_read reads as the same spec: all that is given, nothing that is a default.
   Freed by the caller. */
char *spec_text(const Weir__RunSpec *spec);

#endif
