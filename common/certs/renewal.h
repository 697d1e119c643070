/* What changes in a folder of certificates that is in use. The folder changes at once: who reads it finds
   either all that was there or all that is there now. What else it holds, such as denied.txt, stays, as do
   owners and modes; but a key that all users may read gives way to one of mode 0600. */
#ifndef WEIR_COMMON_CERTS_RENEWAL_H
#define WEIR_COMMON_CERTS_RENEWAL_H

#include "common/certs/folder.h"

/* A new certificate and key for the same holder, signed by the authority in the folder `ca`; facts are the
   new one's. Errors: INVALID if the folder's ca.pem does not have that authority, which its peers might not
   trust either, or if it has no holder's certificate; NOT_FOUND, IO. The folder is as it was then. */
int renewal_renew(const char *ca, const char *folder, int days, struct cert_facts *facts, struct err *err);

/* The authority in `ca`/ca.pem is trusted as well, or with is_alone no other is. *has_changed: false if it
   was so already. Errors: INVALID if the folder's own certificate would be trusted by none that is left;
   NOT_FOUND, IO. Likewise. */
int renewal_trust(const char *ca, const char *folder, bool is_alone, bool *has_changed, struct err *err);

#endif
