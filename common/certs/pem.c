/* PEM files, read and written. */
#include "common/certs/pem.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/memory.h"

enum { FILE_BYTES_MAX = 1 << 20 };

const char *pem_reason(void) {
  unsigned long code = ERR_peek_last_error();
  const char *reason = code ? ERR_reason_error_string(code) : NULL;
  ERR_clear_error();
  return reason ? reason : "no reason is given";
}

int pem_read(int folder, const char *name, const char *file, char **text, struct err *err) {
  int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat status;
  size_t size = 0;
  ssize_t n = 1;
  if (fd < 0)
    return err_open(err, errno, "%s", file);
  if (fstat(fd, &status) == 0 && !S_ISREG(status.st_mode))
    err_set(err, ERR_INVALID, "%s: not a file", file);
  *text = mem_new(FILE_BYTES_MAX + 1);
  while (!err->code && size <= FILE_BYTES_MAX && (n = read(fd, *text + size, FILE_BYTES_MAX + 1 - size)) > 0)
    size += (size_t)n;
  if (n < 0)
    err_errno(err, errno, "%s", file);
  else if (size > FILE_BYTES_MAX || (!err->code && memchr(*text, 0, size)))
    err_set(err, ERR_INVALID, "%s: not a PEM file", file);
  close(fd);
  if (!err->code) {
    (*text)[size] = 0;
    return 0;
  }
  free(*text);
  *text = NULL;
  return err->code;
}

/* Instead of OpenSSL's own, which asks the terminal. */
static int no_passphrase(char *text, int size, int is_writing, void *user) {
  (void)text, (void)size, (void)is_writing, (void)user;
  return -1;
}

int pem_certificate(const char *text, const char *file, X509 **out, struct err *err) {
  BIO *bio = BIO_new_mem_buf(text, -1);
  *out = bio ? PEM_read_bio_X509(bio, NULL, no_passphrase, NULL) : NULL;
  BIO_free(bio);
  if (*out)
    return 0;
  return err_set(err, ERR_INVALID, "%s: not a certificate in PEM: %s", file, pem_reason());
}

int pem_certificates(const char *text, const char *file, STACK_OF(X509) * *out, struct err *err) {
  BIO *bio = BIO_new_mem_buf(text, -1);
  STACK_OF(X509) *list = sk_X509_new_null();
  X509 *certificate;
  while (bio && list && (certificate = PEM_read_bio_X509(bio, NULL, no_passphrase, NULL)))
    sk_X509_push(list, certificate);
  BIO_free(bio);
  if (list && sk_X509_num(list) > 0 && ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE) {
    ERR_clear_error();
    *out = list;
    return 0;
  }
  sk_X509_pop_free(list, X509_free);
  return err_set(err, ERR_INVALID, "%s: not a list of certificates in PEM: %s", file, pem_reason());
}

int pem_key(const char *text, const char *file, EVP_PKEY **out, struct err *err) {
  BIO *bio = BIO_new_mem_buf(text, -1);
  *out = bio ? PEM_read_bio_PrivateKey(bio, NULL, no_passphrase, NULL) : NULL;
  BIO_free(bio);
  if (*out)
    return 0;
  return err_set(err, ERR_INVALID, "%s: not a private key in PEM without a passphrase: %s", file,
                 pem_reason());
}

/* Writes what the memory of the BIO has into a new file. */
static int write_new(const char *file, mode_t mode, BIO *bio, struct err *err) {
  char *bytes = NULL;
  long size = bio ? BIO_get_mem_data(bio, &bytes) : 0;
  int fd = open(file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (fd < 0)
    err_errno(err, errno, "cannot write '%s'", file);
  else if (fchmod(fd, mode) || write(fd, bytes, (size_t)size) != size || fsync(fd))
    err_errno(err, errno, "cannot write '%s'", file);
  if (fd >= 0)
    close(fd);
  BIO_free(bio);
  return err->code;
}

bool pem_has_certificate(const STACK_OF(X509) * list, const X509 *certificate) {
  for (int i = 0; i < sk_X509_num(list); i++)
    if (X509_cmp(sk_X509_value(list, i), certificate) == 0)
      return true;
  return false;
}

int pem_write_text(const char *file, const char *text, struct err *err) {
  BIO *bio = BIO_new_mem_buf(text, -1);
  CHECK(bio);
  return write_new(file, 0644, bio, err);
}

int pem_write_certificate(const char *file, X509 *certificate, struct err *err) {
  BIO *bio = BIO_new(BIO_s_mem());
  CHECK(bio && PEM_write_bio_X509(bio, certificate));
  return write_new(file, 0644, bio, err);
}

int pem_write_key(const char *file, EVP_PKEY *key, struct err *err) {
  BIO *bio = BIO_new(BIO_s_secmem());
  CHECK(bio && PEM_write_bio_PKCS8PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL));
  return write_new(file, 0600, bio, err);
}
