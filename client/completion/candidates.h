/* Candidates for the last word of a command line, from the commands' tables and the cluster. */
#ifndef WEIR_CLIENT_COMPLETION_CANDIDATES_H
#define WEIR_CLIENT_COMPLETION_CANDIDATES_H

#include <stdio.h>

/* words[0..n): what is on the line behind `weir`, up to the cursor; the last one, which may be empty, is to
   be completed. Prints "CANDIDATE\tWHAT IT IS" lines, and ":files" where a file may stand. Where runs,
   sweeps, workers or servers may stand, the coordinator of --coordinator or WEIR_COORDINATOR is asked, for at
   most a second. Errors: none are told. */
void candidates_print(FILE *file, const char *const *words, int n);

#endif
