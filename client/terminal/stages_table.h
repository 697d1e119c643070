/* The stages of workers as `weir workers` and `weir status` show them. */
#ifndef WEIR_CLIENT_TERMINAL_STAGES_TABLE_H
#define WEIR_CLIENT_TERMINAL_STAGES_TABLE_H

#include <stdio.h>

#include "training.pb-c.h"

/* An empty line and a table with a row for each stage; nothing where no worker has stages. */
void stages_table_print(FILE *file, Weir__WorkerInfo *const *workers, size_t n);

#endif
