/* Certificate folders, read and checked. */
#include "common/certs/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/bn.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/base/memory.h"
#include "common/base/text.h"
#include "common/certs/pem.h"

static int key_is_private(int folder, const char *file, struct err *err);
static void facts_of(X509 *certificate, struct cert_facts *facts);
static int holder_of(X509 *certificate, const char *file, struct cert_facts *facts, struct err *err);
static int key_check(X509 *certificate, const char *text, const char *folder, struct err *err);
static int chain_check(X509 *certificate, const char *ca_text, const char *folder, struct err *err);
static int refusal(X509_STORE_CTX *context, const char *folder, struct err *err);

int cert_files_read(const char *folder, struct cert_files *files, struct err *err) {
  static const char *const names[] = {"ca.pem", "cert.pem", "key.pem"};
  char **texts[] = {&files->ca, &files->cert, &files->key};
  int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  *files = (struct cert_files){0};
  if (fd < 0)
    return err_open(err, errno, "the folder of certificates '%s'", folder);
  for (int i = 0; i < 3 && !err->code; i++) {
    char *file = mem_printf("%s/%s", folder, names[i]);
    if (pem_read(fd, names[i], file, texts[i], err) == 0 && i == 2)
      key_is_private(fd, file, err);
    free(file);
  }
  close(fd);
  if (err->code)
    cert_files_free(files);
  return err->code;
}

static int key_is_private(int folder, const char *file, struct err *err) {
  struct stat status;
  if (fstatat(folder, "key.pem", &status, 0) == 0 && (status.st_mode & S_IRWXO))
    return err_set(err, ERR_INVALID,
                   "%s: all users of this machine may read or write it (mode %04o): chmod 600 it", file,
                   status.st_mode & 07777);
  return 0;
}

void cert_files_free(struct cert_files *files) {
  if (files->key)
    explicit_bzero(files->key, strlen(files->key));
  free(files->ca);
  free(files->cert);
  free(files->key);
  *files = (struct cert_files){0};
}

bool cert_files_same(const struct cert_files *a, const struct cert_files *b) {
  return strcmp(a->ca, b->ca) == 0 && strcmp(a->cert, b->cert) == 0 && strcmp(a->key, b->key) == 0;
}

int cert_files_check(const struct cert_files *files, const char *folder, struct cert_facts *facts,
                     struct err *err) {
  char *file = mem_printf("%s/cert.pem", folder);
  X509 *certificate = NULL;
  *facts = (struct cert_facts){0};
  if (pem_certificate(files->cert, file, &certificate, err) == 0) {
    facts_of(certificate, facts);
    if (holder_of(certificate, file, facts, err) == 0 && key_check(certificate, files->key, folder, err) == 0)
      chain_check(certificate, files->ca, folder, err);
  }
  X509_free(certificate);
  free(file);
  return err->code;
}

int cert_facts_read(const char *file, struct cert_facts *facts, struct err *err) {
  X509 *certificate = NULL;
  char *text = NULL;
  *facts = (struct cert_facts){0};
  if (pem_read(AT_FDCWD, file, file, &text, err) == 0 && pem_certificate(text, file, &certificate, err) == 0)
    facts_of(certificate, facts);
  X509_free(certificate);
  free(text);
  return err->code;
}

int cert_facts_parse(const char *text, const char *file, struct cert_facts *facts, struct err *err) {
  X509 *certificate = NULL;
  *facts = (struct cert_facts){0};
  if (pem_certificate(text, file, &certificate, err) == 0) {
    facts_of(certificate, facts);
    holder_of(certificate, file, facts, err);
  }
  X509_free(certificate);
  return err->code;
}

const char *cert_date(int64_t seconds, char text[CERT_DATE_SIZE]) {
  time_t time = (time_t)seconds;
  struct tm parts;
  if (!gmtime_r(&time, &parts) || !strftime(text, CERT_DATE_SIZE, "%Y-%m-%d %H:%M:%S UTC", &parts))
    snprintf(text, CERT_DATE_SIZE, "%lld", (long long)seconds);
  return text;
}

static int64_t seconds_of(const ASN1_TIME *time) {
  struct tm parts;
  return time && ASN1_TIME_to_tm(time, &parts) ? (int64_t)timegm(&parts) : 0;
}

/* The last common name, cleaned: others wrote it. */
static void common_name(const X509_NAME *name, char *out, size_t size) {
  int at = X509_NAME_get_index_by_NID((X509_NAME *)name, NID_commonName, -1);
  const ASN1_STRING *value = at < 0 ? NULL : X509_NAME_ENTRY_get_data(X509_NAME_get_entry(name, at));
  char *raw = mem_printf("%.*s", value ? ASN1_STRING_length(value) : 0,
                         value ? (const char *)ASN1_STRING_get0_data(value) : "");
  char *clean = text_copy_clean(raw, size - 1);
  snprintf(out, size, "%s", clean);
  free(clean);
  free(raw);
}

static void facts_of(X509 *certificate, struct cert_facts *facts) {
  unsigned char hash[EVP_MAX_MD_SIZE];
  unsigned int length = 0;
  BIGNUM *serial = ASN1_INTEGER_to_BN(X509_get0_serialNumber(certificate), NULL);
  char *hex = serial ? BN_bn2hex(serial) : NULL;
  facts->begins = seconds_of(X509_get0_notBefore(certificate));
  facts->ends = seconds_of(X509_get0_notAfter(certificate));
  common_name(X509_get_issuer_name(certificate), facts->ca, sizeof facts->ca);
  snprintf(facts->serial, sizeof facts->serial, "%s", hex ? hex : "?");
  CHECK(X509_digest(certificate, EVP_sha256(), hash, &length));
  for (unsigned int i = 0; i < length && 3 * i + 3 <= sizeof facts->fingerprint; i++)
    snprintf(facts->fingerprint + 3 * i, 4, "%02X%s", hash[i], i + 1 < length ? ":" : "");
  OPENSSL_free(hex);
  BN_free(serial);
}

static int holder_of(X509 *certificate, const char *file, struct cert_facts *facts, struct err *err) {
  GENERAL_NAMES *names = X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
  const ASN1_STRING *uri = NULL;
  int n_uris = 0;
  for (int i = 0; i < sk_GENERAL_NAME_num(names); i++) {
    const GENERAL_NAME *name = sk_GENERAL_NAME_value(names, i);
    if (name->type == GEN_URI && ++n_uris)
      uri = name->d.uniformResourceIdentifier;
  }
  if (n_uris == 1) {
    char *text = mem_printf("%.*s", ASN1_STRING_length(uri), (const char *)ASN1_STRING_get0_data(uri));
    char *clean = text_copy_clean(text, CERT_TEXT_SIZE - 1);
    if (cert_holder_read(clean, &facts->holder, err))
      err_prefix(err, "%s", file);
    free(clean);
    free(text);
  } else
    err_set(err, ERR_INVALID, "%s: it has %d URIs where one names its holder: make it by `weir certs issue`",
            file, n_uris);
  GENERAL_NAMES_free(names);
  return err->code;
}

static int key_check(X509 *certificate, const char *text, const char *folder, struct err *err) {
  char *file = mem_printf("%s/key.pem", folder);
  EVP_PKEY *key = NULL;
  if (pem_key(text, file, &key, err) == 0 && X509_check_private_key(certificate, key) != 1) {
    ERR_clear_error();
    err_set(err, ERR_INVALID, "%s: this key is not that of %s/cert.pem", file, folder);
  }
  EVP_PKEY_free(key);
  free(file);
  return err->code;
}

static int chain_check(X509 *certificate, const char *ca_text, const char *folder, struct err *err) {
  char *file = mem_printf("%s/ca.pem", folder);
  STACK_OF(X509) *trusted = NULL;
  X509_STORE *store = X509_STORE_new();
  X509_STORE_CTX *context = X509_STORE_CTX_new();
  CHECK(store && context);
  if (pem_certificates(ca_text, file, &trusted, err) == 0) {
    for (int i = 0; i < sk_X509_num(trusted); i++)
      X509_STORE_add_cert(store, sk_X509_value(trusted, i));
    CHECK(X509_STORE_CTX_init(context, store, certificate, NULL));
    X509_STORE_CTX_set_purpose(context, X509_PURPOSE_SSL_SERVER);
    if (X509_verify_cert(context) != 1)
      refusal(context, folder, err);
    else if (X509_check_purpose(certificate, X509_PURPOSE_SSL_CLIENT, 0) != 1)
      err_set(err, ERR_INVALID, "%s/cert.pem: it is not for both ends of TLS: make it by `weir certs issue`",
              folder);
  }
  ERR_clear_error();
  sk_X509_pop_free(trusted, X509_free);
  X509_STORE_CTX_free(context);
  X509_STORE_free(store);
  free(file);
  return err->code;
}

static int refusal(X509_STORE_CTX *context, const char *folder, struct err *err) {
  int why = X509_STORE_CTX_get_error(context), depth = X509_STORE_CTX_get_error_depth(context);
  const X509 *blamed = X509_STORE_CTX_get_current_cert(context);
  const char *file = depth == 0 ? "cert.pem" : "ca.pem";
  const char *remedy = depth == 0 ? "renew it by `weir certs renew`" : "a new authority is needed";
  char date[CERT_DATE_SIZE];
  if (why == X509_V_ERR_CERT_HAS_EXPIRED && blamed)
    return err_set(err, ERR_INVALID, "%s/%s: it was valid until %s: %s", folder, file,
                   cert_date(seconds_of(X509_get0_notAfter(blamed)), date), remedy);
  if (why == X509_V_ERR_CERT_NOT_YET_VALID && blamed)
    return err_set(err, ERR_INVALID, "%s/%s: it is valid from %s on: look at this machine's clock", folder,
                   file, cert_date(seconds_of(X509_get0_notBefore(blamed)), date));
  if (why == X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY || why == X509_V_ERR_CERT_SIGNATURE_FAILURE ||
      why == X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT)
    return err_set(err, ERR_INVALID, "%s/cert.pem: no authority of %s/ca.pem has signed it", folder, folder);
  return err_set(err, ERR_INVALID, "%s/%s: it is refused: %s", folder, file,
                 X509_verify_cert_error_string(why));
}
