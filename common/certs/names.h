/* What a certificate says of its holder: one URI, spiffe://weir/ROLE/NAME, of a client
   spiffe://weir/client/TENANT/ACCESS/NAME, of a worker that is one tenant's alone
   spiffe://weir/worker/TENANT/NAME. */
#ifndef WEIR_COMMON_CERTS_NAMES_H
#define WEIR_COMMON_CERTS_NAMES_H

#include "common/base/err.h"

/* In the order of roles[] in names.c. CERT_ALL: a process that may be any of those before it. CERT_STORE: no
   process of Weir's, but a Redis that is the store; it may call nothing that is not for everybody. */
enum cert_role { CERT_COORDINATOR, CERT_SERVER, CERT_WORKER, CERT_ALL, CERT_CLIENT, CERT_STORE, CERT_ROLES };

/* What a client may do, each also what those before it may. */
enum cert_access { CERT_VIEWER, CERT_SUBMITTER, CERT_OPERATOR, CERT_ACCESSES };

/* Of clients that name no other, and of what was submitted before there were tenants, or without TLS. */
#define CERT_TENANT_DEFAULT "default"

enum { CERT_WORD_MAX = 63, CERT_WORD_SIZE = CERT_WORD_MAX + 1, CERT_TEXT_SIZE = 320 };

struct cert_holder {
  enum cert_role role;
  char name[CERT_WORD_SIZE];
  char tenant[CERT_WORD_SIZE]; /* of a client; of a worker, or "": it is for all; else "" */
  enum cert_access access;     /* of a client */
};

const char *cert_role_name(enum cert_role role);       /* "coordinator" */
const char *cert_access_name(enum cert_access access); /* "viewer" */

/* Errors: INVALID with the words that there are. */
int cert_role_find(const char *text, enum cert_role *role, struct err *err);
int cert_access_find(const char *text, enum cert_access *access, struct err *err);

/* A name or a tenant: 1 to 63 letters, digits, '.', '_' and '-', of which the first is a letter or a digit.
   what: "--name". Errors: INVALID. */
int cert_word_set(char word[CERT_WORD_SIZE], const char *text, const char *what, struct err *err);

/* The URI of the holder. */
void cert_holder_uri(const struct cert_holder *holder, char uri[CERT_TEXT_SIZE]);
/* What a URI says. Errors: INVALID for one that cert_holder_uri does not write. */
int cert_holder_read(const char *uri, struct cert_holder *holder, struct err *err);

/* The subject alternative names of the holder's certificate, as OpenSSL's configuration writes them: its URI,
   and the DNS names by which others ask for it. A connection asks for ROLE.weir; who asks for any member at
   all, as a probe of health does, for member.weir. */
void cert_holder_names(const struct cert_holder *holder, char names[CERT_TEXT_SIZE]);

/* Whether a process with this certificate may be that. */
bool cert_role_covers(enum cert_role own, enum cert_role wanted);

#endif
