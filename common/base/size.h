/* Amounts of memory as people write them. */
#ifndef WEIR_COMMON_BASE_SIZE_H
#define WEIR_COMMON_BASE_SIZE_H

#include <stdbool.h>
#include <stdint.h>

/* Bytes: "4096", "2GB" (units of 1000: KB, MB, GB, TB) or "1.5GiB" (of 1024: KiB, MiB, GiB, TiB); a unit may
   stand behind a space. False for anything else, 0, or what 64 bits do not hold. */
bool size_parse(const char *text, uint64_t *bytes);

#endif
