/* A private authority: a folder with ca.pem and ca-key.pem, and the certificates that it signs. Nothing is
   ever overwritten: a folder appears whole, under a name that was free, or not at all. */
#ifndef WEIR_COMMON_CERTS_AUTHORITY_H
#define WEIR_COMMON_CERTS_AUTHORITY_H

#include "common/certs/names.h"

enum { CERT_DAYS = 365, CERT_DAYS_MAX = 3650 };

/* Makes the folder: an authority that is valid for ten years and, below it, a folder of a certificate for
   each role, which has its role's name; the client is an operator of the tenant "default". Errors: EXISTS,
   NOT_FOUND, IO, INVALID, with the folder's name. */
int authority_make(const char *folder, struct err *err);

struct cert_order {
  struct cert_holder holder;
  int days; /* from now on; it ends no later than the authority */
};

/* Makes the folder `out` with ca.pem, cert.pem and key.pem. Errors: likewise; INVALID if `ca` is no
 * authority's folder. */
int authority_issue(const char *ca, const struct cert_order *order, const char *out, struct err *err);

/* Makes cert.pem and key.pem in a folder that has neither. Errors: likewise. */
int authority_write_pair(const char *ca, const struct cert_order *order, const char *folder, struct err *err);

#endif
