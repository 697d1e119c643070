/* The fleet, as `weir top` shows it: what there is, and which runs have it or wait for it. */
#ifndef WEIR_CLIENT_TERMINAL_FLEET_TABLE_H
#define WEIR_CLIENT_TERMINAL_FLEET_TABLE_H

#include <stdio.h>

#include "training.pb-c.h"

/* What a coordinator answered within the same moment. */
struct fleet {
  const Weir__ListRunsReply *runs;
  const Weir__ListWorkersReply *workers;
  const Weir__ListServersReply *servers;
  int columns; /* of a terminal: messages have lines of their own, no longer than that. 0: a line has all of a
                  run */
};

/* Two lines of sums, and a row for each run that is not over: those that have begun, by priority, then the
   queue in the order in which its runs are served, then those that are held. */
void fleet_print(FILE *file, const struct fleet *fleet);

#endif
