/* The folder that --tls names: ca.pem, whom to trust (one authority or several); cert.pem, what this process
   is; key.pem, its key. */
#ifndef WEIR_COMMON_CERTS_FOLDER_H
#define WEIR_COMMON_CERTS_FOLDER_H

#include <stdint.h>

#include "common/certs/names.h"

/* The files' texts, all of one folder even if a link is switched to another meanwhile. */
struct cert_files {
  char *ca, *cert, *key;
};

/* Errors: NOT_FOUND or IO with the file's name; INVALID for what is no PEM file. Nothing is kept then. */
int cert_files_read(const char *folder, struct cert_files *files, struct err *err);
void cert_files_free(struct cert_files *files); /* safe on a zeroed one */
bool cert_files_same(const struct cert_files *a, const struct cert_files *b);

/* What a certificate says, for people and for checks. Times are Unix seconds. */
struct cert_facts {
  struct cert_holder holder;
  int64_t begins, ends, ca_ends;
  char serial[64], fingerprint[96]; /* SHA-256 of the certificate, as openssl prints it */
  char ca[128];                     /* the common name of whoever signed it */
};

/* Whether a process can use them: the key is the certificate's, the certificate is for TLS on both ends and
   has one URI, that of a holder, and leads to an authority of ca.pem, all of them valid now. The facts are
   set as far as they were read, also on an error. Errors: INVALID, naming the file, the date, and what to do.
 */
int cert_files_check(const struct cert_files *files, const char *folder, struct cert_facts *facts,
                     struct err *err);

/* The facts of one file's certificate, but its holder, without any check. Errors: as cert_files_read. */
int cert_facts_read(const char *file, struct cert_facts *facts, struct err *err);

/* The facts of a certificate as PEM text, its holder among them; they are set as far as they were read. file:
   what errors call it. Errors: INVALID. */
int cert_facts_parse(const char *text, const char *file, struct cert_facts *facts, struct err *err);

enum { CERT_WARN_S = 7 * 24 * 3600 }; /* how long before its end a certificate is warned of */

enum { CERT_DATE_SIZE = 32 };
const char *cert_date(int64_t seconds, char text[CERT_DATE_SIZE]); /* "2027-11-24 14:21:48 UTC" */

#endif
