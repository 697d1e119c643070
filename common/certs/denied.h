/* The file denied.txt of a certificate folder: whose certificates are not to be accepted any more. A line has
   a holder's URI, with or without its "spiffe://weir/"; empty lines, and what follows '#', say nothing. */
#ifndef WEIR_COMMON_CERTS_DENIED_H
#define WEIR_COMMON_CERTS_DENIED_H

#include "common/certs/names.h"

struct cert_denied {
  char *text; /* the file's; NULL: there is none */
  char (*uris)[CERT_TEXT_SIZE];
  int count, capacity;
};

/* A folder without the file denies nobody. Errors: NOT_FOUND or IO with the name of the folder or file;
   INVALID with the file's name and the line. Nothing is kept then. */
int cert_denied_read(const char *folder, struct cert_denied *denied, struct err *err);
void cert_denied_free(struct cert_denied *denied); /* safe on a zeroed one */
bool cert_denied_same(const struct cert_denied *a, const struct cert_denied *b);
bool cert_denied_has(const struct cert_denied *denied, const struct cert_holder *holder);

#endif
