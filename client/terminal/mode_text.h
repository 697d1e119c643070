/* What a run's consistency mode is and takes, for people. */
#ifndef WEIR_CLIENT_TERMINAL_MODE_TEXT_H
#define WEIR_CLIENT_TERMINAL_MODE_TEXT_H

#include <stdio.h>

#include "spec.pb-c.h"

/* A line on the mode, and on what its bounds come to in memory for so many trained weights. Nothing for a
   spec whose mode this program does not know. */
void mode_print(FILE *file, const char *prefix, const Weir__RunSpec *spec, uint64_t weights);

/* A line on what the mode means for the spec's optimizer; nothing where that is nothing special. */
void mode_print_note(FILE *file, const char *prefix, const Weir__RunSpec *spec);

#endif
