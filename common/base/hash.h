/* A fast 64-bit hash, for telling whether bytes are the same again: XXH3 (xxHash 0.8, seed 0). It is no
   proof against whoever wants two contents to collide: sha256.h is. */
#ifndef WEIR_COMMON_BASE_HASH_H
#define WEIR_COMMON_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t hash_bytes(const void *data, size_t size_bytes);

#endif
