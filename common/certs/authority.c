/* A private authority. */
#include "common/certs/authority.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <openssl/bn.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/base/memory.h"
#include "common/certs/pem.h"

enum { DAY_S = 86400, SERIAL_BITS = 127 };

struct authority {
  X509 *certificate;
  EVP_PKEY *key;
};

/* A certificate that is to be. names: NULL for an authority. */
struct request {
  const char *common_name, *names;
  EVP_PKEY *key;
  time_t begins, ends;
};

struct extension {
  int id;
  const char *value;
};

static const struct extension ca_extensions[] = {{NID_basic_constraints, "critical,CA:TRUE,pathlen:0"},
                                                 {NID_key_usage, "critical,keyCertSign,cRLSign"},
                                                 {NID_subject_key_identifier, "hash"},
                                                 {0}};
/* Every member is both ends of connections. */
static const struct extension leaf_extensions[] = {
    {NID_basic_constraints, "critical,CA:FALSE"},   {NID_key_usage, "critical,digitalSignature"},
    {NID_ext_key_usage, "serverAuth,clientAuth"},   {NID_subject_key_identifier, "hash"},
    {NID_authority_key_identifier, "keyid:always"}, {0}};

static int authority_create(const char *folder, struct authority *authority, struct err *err);
static int authority_open(const char *folder, struct authority *authority, struct err *err);
static void authority_close(struct authority *authority);
static int write_folder(const struct authority *authority, const struct cert_order *order, const char *folder,
                        struct err *err);
static int write_pair(const struct authority *authority, const struct cert_order *order, const char *folder,
                      struct err *err);
static X509 *sign(const struct authority *authority, const struct request *request);
static int folder_begin(const char *folder, char **unfinished, struct err *err);
static int folder_finish(char *unfinished, const char *folder, struct err *err);

int authority_make(const char *folder, struct err *err) {
  struct authority authority = {0};
  char *unfinished;
  if (folder_begin(folder, &unfinished, err))
    return err->code;
  authority_create(unfinished, &authority, err);
  for (int role = 0; role < CERT_ROLES && !err->code; role++) {
    struct cert_order order = {.holder = {.role = (enum cert_role)role, .access = CERT_OPERATOR},
                               .days = CERT_DAYS};
    char *below = mem_printf("%s/%s", unfinished, cert_role_name((enum cert_role)role));
    snprintf(order.holder.name, sizeof order.holder.name, "%s", cert_role_name((enum cert_role)role));
    if (role == CERT_CLIENT)
      snprintf(order.holder.tenant, sizeof order.holder.tenant, "%s", CERT_TENANT_DEFAULT);
    if (mkdir(below, 0700))
      err_errno(err, errno, "cannot make the folder '%s'", below);
    else
      write_folder(&authority, &order, below, err);
    free(below);
  }
  authority_close(&authority);
  return folder_finish(unfinished, folder, err);
}

int authority_issue(const char *ca, const struct cert_order *order, const char *out, struct err *err) {
  struct authority authority = {0};
  char *unfinished;
  if (authority_open(ca, &authority, err) == 0 && folder_begin(out, &unfinished, err) == 0) {
    write_folder(&authority, order, unfinished, err);
    folder_finish(unfinished, out, err);
  }
  authority_close(&authority);
  return err->code;
}

int authority_write_pair(const char *ca, const struct cert_order *order, const char *folder,
                         struct err *err) {
  struct authority authority = {0};
  if (authority_open(ca, &authority, err) == 0)
    write_pair(&authority, order, folder, err);
  authority_close(&authority);
  return err->code;
}

/* Two authorities never have one name: openssl finds an issuer by it. */
static int authority_create(const char *folder, struct authority *authority, struct err *err) {
  char *file = mem_printf("%s/ca.pem", folder), *key_file = mem_printf("%s/ca-key.pem", folder), name[64];
  time_t now = time(NULL);
  uint32_t draw = 0;
  CHECK(getentropy(&draw, sizeof draw) == 0);
  snprintf(name, sizeof name, "Weir CA %08x", draw);
  CHECK(authority->key = EVP_EC_gen("P-256"));
  authority->certificate = sign(authority, &(struct request){.common_name = name,
                                                             .key = authority->key,
                                                             .begins = now - DAY_S,
                                                             .ends = now + (time_t)CERT_DAYS_MAX * DAY_S});
  if (pem_write_key(key_file, authority->key, err) == 0)
    pem_write_certificate(file, authority->certificate, err);
  free(key_file);
  free(file);
  return err->code;
}

static int authority_open(const char *folder, struct authority *authority, struct err *err) {
  char *file = mem_printf("%s/ca.pem", folder), *key_file = mem_printf("%s/ca-key.pem", folder);
  char *text = NULL, *key_text = NULL;
  if (pem_read(AT_FDCWD, file, file, &text, err) == 0 &&
      pem_read(AT_FDCWD, key_file, key_file, &key_text, err) == 0 &&
      pem_certificate(text, file, &authority->certificate, err) == 0 &&
      pem_key(key_text, key_file, &authority->key, err) == 0) {
    if (X509_check_private_key(authority->certificate, authority->key) != 1)
      err_set(err, ERR_INVALID, "%s: this key is not that of %s", key_file, file);
    else if (X509_check_ca(authority->certificate) != 1)
      err_set(err, ERR_INVALID, "%s: this certificate is not an authority's", file);
    else if (X509_cmp_current_time(X509_get0_notAfter(authority->certificate)) <= 0)
      err_set(err, ERR_INVALID, "%s: this authority has expired: make another by `weir certs init`", file);
    ERR_clear_error();
  } else if (err->code == ERR_NOT_FOUND)
    err_append(err, "; `weir certs init` makes a folder of an authority");
  if (key_text)
    explicit_bzero(key_text, strlen(key_text));
  free(key_text);
  free(text);
  free(key_file);
  free(file);
  return err->code;
}

static void authority_close(struct authority *authority) {
  X509_free(authority->certificate);
  EVP_PKEY_free(authority->key);
}

static int write_folder(const struct authority *authority, const struct cert_order *order, const char *folder,
                        struct err *err) {
  char *file = mem_printf("%s/ca.pem", folder);
  if (pem_write_certificate(file, authority->certificate, err) == 0)
    write_pair(authority, order, folder, err);
  free(file);
  return err->code;
}

static int write_pair(const struct authority *authority, const struct cert_order *order, const char *folder,
                      struct err *err) {
  char *file = mem_printf("%s/cert.pem", folder), *key_file = mem_printf("%s/key.pem", folder);
  char names[CERT_TEXT_SIZE];
  EVP_PKEY *key = EVP_EC_gen("P-256");
  time_t now = time(NULL);
  X509 *leaf;
  CHECK(key);
  cert_holder_names(&order->holder, names);
  leaf = sign(authority, &(struct request){.common_name = order->holder.name,
                                           .names = names,
                                           .key = key,
                                           .begins = now - DAY_S,
                                           .ends = now + (time_t)order->days * DAY_S});
  if (pem_write_certificate(file, leaf, err) == 0)
    pem_write_key(key_file, key, err);
  X509_free(leaf);
  EVP_PKEY_free(key);
  free(key_file);
  free(file);
  return err->code;
}

static void add_extension(X509 *certificate, X509V3_CTX *context, int id, const char *value) {
  X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, context, id, value);
  CHECK(extension && X509_add_ext(certificate, extension, -1));
  X509_EXTENSION_free(extension);
}

static void set_serial(X509 *certificate) {
  BIGNUM *serial = BN_new();
  CHECK(serial && BN_rand(serial, SERIAL_BITS, BN_RAND_TOP_ONE, BN_RAND_BOTTOM_ANY));
  CHECK(BN_to_ASN1_INTEGER(serial, X509_get_serialNumber(certificate)));
  BN_free(serial);
}

/* A leaf ends no later than its authority. */
static void set_times(X509 *certificate, const struct request *request, const X509 *issuer) {
  CHECK(ASN1_TIME_set(X509_getm_notBefore(certificate), request->begins) &&
        ASN1_TIME_set(X509_getm_notAfter(certificate), request->ends));
  if (issuer && ASN1_TIME_compare(X509_get0_notAfter(certificate), X509_get0_notAfter(issuer)) > 0)
    CHECK(X509_set1_notAfter(certificate, X509_get0_notAfter(issuer)));
}

/* Nothing of it depends on outside input but texts that were checked: what fails is memory. An authority
   without a certificate signs itself. */
static X509 *sign(const struct authority *authority, const struct request *request) {
  X509 *certificate = X509_new();
  X509_NAME *name = certificate ? X509_get_subject_name(certificate) : NULL;
  X509 *issuer = authority->certificate ? authority->certificate : certificate;
  X509V3_CTX context;
  CHECK(name && X509_set_version(certificate, 2) && X509_set_pubkey(certificate, request->key));
  CHECK(X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)request->common_name, -1,
                                   -1, 0));
  CHECK(X509_set_issuer_name(certificate, X509_get_subject_name(issuer)));
  set_serial(certificate);
  set_times(certificate, request, authority->certificate);
  X509V3_set_ctx(&context, issuer, certificate, NULL, NULL, 0);
  for (const struct extension *e = request->names ? leaf_extensions : ca_extensions; e->id; e++)
    add_extension(certificate, &context, e->id, e->value);
  if (request->names)
    add_extension(certificate, &context, NID_subject_alt_name, request->names);
  CHECK(X509_sign(certificate, authority->key, EVP_sha256()));
  return certificate;
}

/* Beside the folder that is to be, so that it can be renamed. */
static int folder_begin(const char *folder, char **unfinished, struct err *err) {
  size_t length = strlen(folder);
  while (length > 1 && folder[length - 1] == '/')
    length--;
  *unfinished = mem_printf("%.*s.XXXXXX", (int)length, folder);
  if (mkdtemp(*unfinished))
    return 0;
  err_open(err, errno, "cannot make the folder '%s'", folder);
  free(*unfinished);
  return err->code;
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *place) {
  (void)status, (void)kind, (void)place;
  return remove(path);
}

/* Renames it, which fails if there is anything but an empty folder. Frees its name. */
static int folder_finish(char *unfinished, const char *folder, struct err *err) {
  if (!err->code && rename(unfinished, folder)) {
    if (errno == ENOTEMPTY || errno == EEXIST || errno == ENOTDIR)
      err_set(err, ERR_EXISTS,
              "'%s' is there already, and no certificate or key is overwritten: name a new folder", folder);
    else
      err_errno(err, errno, "cannot make the folder '%s'", folder);
  }
  if (err->code)
    nftw(unfinished, remove_one, 8, FTW_DEPTH | FTW_PHYS);
  free(unfinished);
  return err->code;
}
