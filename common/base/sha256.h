/* SHA-256 (FIPS 180-4). */
#ifndef WEIR_COMMON_BASE_SHA256_H
#define WEIR_COMMON_BASE_SHA256_H

#include <stddef.h>
#include <sys/uio.h>

enum { SHA256_SIZE = 32, SHA256_HEX_SIZE = 65 };

struct sha256;

struct sha256 *sha256_new(void);
void sha256_update(struct sha256 *sha, const void *data, size_t size);
void sha256_finish(struct sha256 *sha, char hex[SHA256_HEX_SIZE]); /* and frees it */
void sha256_hex(const void *data, size_t size, char hex[SHA256_HEX_SIZE]);

/* One of several messages: its parts, one after the other, and where its hash goes. */
struct sha256_message {
  const struct iovec *parts;
  int n_parts;
  char *hex; /* [SHA256_HEX_SIZE] */
};

/* The hashes of n messages, in less time than one after the other where the CPU has instructions for it. */
void sha256_many(const struct sha256_message *messages, int n);

void sha256_to_hex(const unsigned char digest[SHA256_SIZE], char hex[SHA256_HEX_SIZE]);
const char *sha256_library_version(void); /* OpenSSL's, as linked */

#endif
