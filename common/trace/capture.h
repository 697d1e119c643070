/* The timeline of one run for a while, in memory, beside a file or without one. */
#ifndef WEIR_COMMON_TRACE_CAPTURE_H
#define WEIR_COMMON_TRACE_CAPTURE_H

#include <stddef.h>

/* What threads of the run do from now on is captured, in the place of a capture before. One thread at a time
   calls this and the following. */
void trace_capture_begin(const char *run);

/* Which start of which machine this is: processes of one have one clock. Empty where it is not known. */
enum { TRACE_BOOT_SIZE = 64 };
void trace_boot(char boot[TRACE_BOOT_SIZE]);

/* The events of Chrome's trace format, one a line with a comma behind it, at most 32 MiB; freed by the
   caller. NULL: there is no capture. */
char *trace_capture_end(size_t *size);

#endif
