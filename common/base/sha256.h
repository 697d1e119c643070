/* SHA-256 (FIPS 180-4) through OpenSSL. */
#ifndef WEIR_COMMON_BASE_SHA256_H
#define WEIR_COMMON_BASE_SHA256_H

#include <stddef.h>

enum { SHA256_HEX_SIZE = 65 };

struct sha256;

struct sha256 *sha256_new(void);
void sha256_update(struct sha256 *sha, const void *data, size_t size);
void sha256_finish(struct sha256 *sha, char hex[SHA256_HEX_SIZE]); /* and frees it */
void sha256_hex(const void *data, size_t size, char hex[SHA256_HEX_SIZE]);

const char *sha256_library_version(void); /* OpenSSL's, as linked */

#endif
