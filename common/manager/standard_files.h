/* The standard input, output and error of a process, as whoever started it left them. */
#ifndef WEIR_COMMON_MANAGER_STANDARD_FILES_H
#define WEIR_COMMON_MANAGER_STANDARD_FILES_H

#include "common/base/err.h"

/* Those that are closed become /dev/null. Otherwise a file or a socket that is opened later takes their
   number, and what is printed or logged goes into it. */
void standard_files_open(void);

/* Beside main(): does so before the constructors of shared libraries. gRPC's opens a file. */
#define STANDARD_FILES_OPEN_FIRST                                                                            \
  __attribute__((section(".preinit_array"), used)) static void (*standard_files_first)(void) =               \
      standard_files_open

/* At the end of a program that prints. Errors: IO, where not all of what was printed could be written. A
   reader that has left, as that of `weir runs | head -1` may, is no error. */
int standard_output_finish(struct err *err);

#endif
