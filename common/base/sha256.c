/* SHA-256 through OpenSSL. */
#include "common/base/sha256.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include "common/base/err.h"

struct sha256 *sha256_new(void) {
  EVP_MD_CTX *context = EVP_MD_CTX_new();
  CHECK(context && EVP_DigestInit_ex(context, EVP_sha256(), NULL));
  return (struct sha256 *)context;
}

void sha256_update(struct sha256 *sha, const void *data, size_t size) {
  CHECK(EVP_DigestUpdate((EVP_MD_CTX *)sha, data, size));
}

void sha256_finish(struct sha256 *sha, char hex[SHA256_HEX_SIZE]) {
  static const char digits[] = "0123456789abcdef";
  unsigned char digest[32];
  CHECK(EVP_DigestFinal_ex((EVP_MD_CTX *)sha, digest, NULL));
  EVP_MD_CTX_free((EVP_MD_CTX *)sha);
  for (int i = 0; i < 32; i++) {
    hex[2 * i] = digits[digest[i] >> 4];
    hex[2 * i + 1] = digits[digest[i] & 15];
  }
  hex[64] = 0;
}

void sha256_hex(const void *data, size_t size, char hex[SHA256_HEX_SIZE]) {
  struct sha256 *sha = sha256_new();
  sha256_update(sha, data, size);
  sha256_finish(sha, hex);
}

const char *sha256_library_version(void) {
  return OpenSSL_version(OPENSSL_VERSION_STRING);
}
