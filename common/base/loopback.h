/* Hosts that are this machine. */
#ifndef WEIR_COMMON_BASE_LOOPBACK_H
#define WEIR_COMMON_BASE_LOOPBACK_H

#include <stdbool.h>

/* localhost, or a literal of 127.0.0.0/8 or ::1. No other name is this machine, whatever it resolves to: it
   may resolve to something else the next time. */
bool host_is_loopback(const char *host);

#endif
