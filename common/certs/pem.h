/* Certificates and keys as text: what the files of this folder share of OpenSSL. */
#ifndef WEIR_COMMON_CERTS_PEM_H
#define WEIR_COMMON_CERTS_PEM_H

#include <openssl/x509.h>

#include "common/base/err.h"

/* Why OpenSSL's last call failed, in its words; clears its errors. Good until this thread's next call. */
const char *pem_reason(void);

/* The file `name` of the folder whose descriptor that is, as text to be freed. file: its whole name, for
   errors. Errors: NOT_FOUND, IO; INVALID for what is larger than any of ours. */
int pem_read(int folder, const char *name, const char *file, char **text, struct err *err);

/* Never asks for a passphrase. Errors: INVALID with the file's name. */
int pem_certificate(const char *text, const char *file, X509 **out, struct err *err);
int pem_certificates(const char *text, const char *file, STACK_OF(X509) * *out,
                     struct err *err); /* one at least */
int pem_key(const char *text, const char *file, EVP_PKEY **out, struct err *err);

/* Whether the list has the certificate, bit for bit. */
bool pem_has_certificate(const STACK_OF(X509) * list, const X509 *certificate);

/* Each writes a new file, to the disk. Errors: EXISTS, IO. */
int pem_write_certificate(const char *file, X509 *certificate, struct err *err);
int pem_write_text(const char *file, const char *text, struct err *err);
int pem_write_key(const char *file, EVP_PKEY *key, struct err *err); /* mode 0600 */

#endif
