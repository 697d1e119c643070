/* The certificate that a port shows. */
#include "common/certs/peer.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/memory.h"
#include "common/certs/denied.h"
#include "common/certs/folder.h"
#include "common/certs/pem.h"

enum { LOOK_MS = 2000, HOST_MAX = 256 };

static int connect_to(const char *address, uint64_t deadline_ns);
static X509 *shown_by(int fd, uint64_t deadline_ns);
static bool is_denied(const struct cert_holder *holder, const char *folder);
static char *certificate_text(X509 *certificate);
static void judge(X509 *certificate, const struct cert_facts *facts, const char *folder, struct err *err);

void cert_peer_explain(const char *address, const char *folder, int wanted, struct err *err) {
  uint64_t deadline_ns = clock_now_ns() + LOOK_MS * UINT64_C(1000000);
  int fd = connect_to(address, deadline_ns);
  X509 *certificate = fd < 0 ? NULL : shown_by(fd, deadline_ns);
  char *text = certificate ? certificate_text(certificate) : NULL;
  struct cert_facts facts;
  struct err unnamed = ERR_NONE;
  char uri[CERT_TEXT_SIZE] = "nobody", date[CERT_DATE_SIZE];
  if (fd >= 0)
    close(fd);
  if (!text)
    return;
  if (cert_facts_parse(text, "it", &facts, &unnamed) == 0)
    cert_holder_uri(&facts.holder, uri);
  err_append(err, "; it shows the certificate of %.120s, signed by '%.60s', valid until %s", uri, facts.ca,
             cert_date(facts.ends, date));
  if (!folder)
    err_append(err, ": give --tls DIR here");
  else if (!unnamed.code && wanted != CERT_PEER_ANY && !cert_role_covers(facts.holder.role, wanted))
    err_append(err, ": a %s is wanted there: is the address right?", cert_role_name(wanted));
  else if (!unnamed.code && is_denied(&facts.holder, folder))
    err_append(err, ": %.100s/denied.txt has that name: take its line out if you trust its holder again",
               folder);
  else
    judge(certificate, &facts, folder, err);
  free(text);
  X509_free(certificate);
}

static bool is_denied(const struct cert_holder *holder, const char *folder) {
  struct cert_denied denied;
  struct err err = ERR_NONE;
  bool found = cert_denied_read(folder, &denied, &err) == 0 && cert_denied_has(&denied, holder);
  cert_denied_free(&denied);
  return found;
}

static char *certificate_text(X509 *certificate) {
  BIO *bio = BIO_new(BIO_s_mem());
  char *bytes = NULL, *text = NULL;
  if (bio && PEM_write_bio_X509(bio, certificate)) {
    long size = BIO_get_mem_data(bio, &bytes);
    text = mem_printf("%.*s", (int)size, bytes);
  }
  BIO_free(bio);
  ERR_clear_error();
  return text;
}

static int verify(X509 *certificate, STACK_OF(X509) * trusted) {
  X509_STORE *store = X509_STORE_new();
  X509_STORE_CTX *context = X509_STORE_CTX_new();
  int why;
  CHECK(store && context);
  for (int i = 0; i < sk_X509_num(trusted); i++)
    X509_STORE_add_cert(store, sk_X509_value(trusted, i));
  CHECK(X509_STORE_CTX_init(context, store, certificate, NULL));
  X509_STORE_CTX_set_purpose(context, X509_PURPOSE_SSL_SERVER);
  why = X509_verify_cert(context) == 1 ? X509_V_OK : X509_STORE_CTX_get_error(context);
  ERR_clear_error();
  X509_STORE_CTX_free(context);
  X509_STORE_free(store);
  return why;
}

/* Whether our own files let it pass; if they do, it is it that refuses us. */
static void judge(X509 *certificate, const struct cert_facts *facts, const char *folder, struct err *err) {
  struct cert_files files;
  struct cert_facts own;
  struct err ours = ERR_NONE;
  STACK_OF(X509) *trusted = NULL;
  char date[CERT_DATE_SIZE];
  int why = X509_V_ERR_UNSPECIFIED;
  if (cert_files_read(folder, &files, &ours))
    return;
  cert_files_check(&files, folder, &own, &ours);
  if (pem_certificates(files.ca, "ca.pem", &trusted, &ours) == 0)
    why = verify(certificate, trusted);
  if (why == X509_V_OK)
    err_append(err, ", and it is good: does its ca.pem have '%.60s', which signed ours?", own.ca);
  else if (why == X509_V_ERR_CERT_HAS_EXPIRED)
    err_append(err, ", which is over: renew it there by `weir certs renew`");
  else if (why == X509_V_ERR_CERT_NOT_YET_VALID)
    err_append(err, ", but only from %s on: look at the clocks", cert_date(facts->begins, date));
  else
    err_append(err, ": add that authority to %.100s/ca.pem by `weir certs trust`, if you trust it", folder);
  sk_X509_pop_free(trusted, X509_free);
  cert_files_free(&files);
}

static bool wait_for(int fd, short events, uint64_t deadline_ns) {
  struct pollfd ready = {.fd = fd, .events = events};
  uint64_t now_ns = clock_now_ns();
  return now_ns < deadline_ns && poll(&ready, 1, (int)((deadline_ns - now_ns) / 1000000 + 1)) > 0;
}

/* A socket that does not block; -1: nobody is there. */
static int connect_one(const struct addrinfo *info, uint64_t deadline_ns) {
  int fd = socket(info->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), failed = 0;
  socklen_t size = sizeof failed;
  if (fd < 0)
    return -1;
  if (connect(fd, info->ai_addr, info->ai_addrlen) == 0 ||
      (errno == EINPROGRESS && wait_for(fd, POLLOUT, deadline_ns) &&
       getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &size) == 0 && !failed))
    return fd;
  close(fd);
  return -1;
}

static int connect_to(const char *address, uint64_t deadline_ns) {
  const char *colon = strrchr(address, ':');
  bool is_bracketed = colon && address[0] == '[' && colon > address + 1 && colon[-1] == ']';
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
  char host[HOST_MAX];
  int fd = -1;
  if (!colon || colon - address >= HOST_MAX)
    return -1;
  snprintf(host, sizeof host, "%.*s", (int)(colon - address) - 2 * is_bracketed, address + is_bracketed);
  if (getaddrinfo(host, colon + 1, &hints, &found))
    return -1;
  for (const struct addrinfo *info = found; info && fd < 0; info = info->ai_next)
    fd = connect_one(info, deadline_ns);
  freeaddrinfo(found);
  return fd;
}

/* What TLS wants to say. A port that hangs up raises no signal. */
static bool send_all(int fd, BIO *from, uint64_t deadline_ns) {
  char *bytes = NULL;
  long size = BIO_get_mem_data(from, &bytes), at = 0;
  while (at < size) {
    ssize_t n = send(fd, bytes + at, (size_t)(size - at), MSG_NOSIGNAL);
    if (n < 0 && (errno != EAGAIN || !wait_for(fd, POLLOUT, deadline_ns)))
      return false;
    at += n > 0 ? n : 0;
  }
  BIO_reset(from);
  return true;
}

static bool receive_some(int fd, BIO *to, uint64_t deadline_ns) {
  char bytes[4096];
  ssize_t n = wait_for(fd, POLLIN, deadline_ns) ? recv(fd, bytes, sizeof bytes, 0) : -1;
  return n > 0 && BIO_write(to, bytes, (int)n) == n;
}

/* The certificate comes before the port finds that we show none, and refuses us. NULL: none has come. */
static X509 *shown_by(int fd, uint64_t deadline_ns) {
  SSL_CTX *context = SSL_CTX_new(TLS_client_method());
  SSL *ssl = context ? SSL_new(context) : NULL;
  BIO *in = BIO_new(BIO_s_mem()), *out = BIO_new(BIO_s_mem());
  X509 *certificate = NULL;
  bool goes_on = true;
  CHECK(ssl && in && out);
  SSL_set_bio(ssl, in, out);
  SSL_set_connect_state(ssl);
  while (goes_on && !certificate) {
    int n = SSL_do_handshake(ssl);
    goes_on = n != 1 && SSL_get_error(ssl, n) == SSL_ERROR_WANT_READ && send_all(fd, out, deadline_ns) &&
              receive_some(fd, in, deadline_ns);
    certificate = SSL_get1_peer_certificate(ssl);
  }
  ERR_clear_error();
  SSL_free(ssl);
  SSL_CTX_free(context);
  return certificate;
}
