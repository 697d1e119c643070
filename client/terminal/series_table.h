/* The curves of a run as tables. */
#ifndef WEIR_CLIENT_TERMINAL_SERIES_TABLE_H
#define WEIR_CLIENT_TERMINAL_SERIES_TABLE_H

#include <stdio.h>

#include "overview.pb-c.h"

/* A table of the curves by step, one of those by evaluated version, and one of the events; what there is
   nothing of is left out. Where points stand for several steps, a column has the range of the losses. */
void series_print(FILE *file, const Weir__Series *series);

#endif
