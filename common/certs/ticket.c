/* Tickets: made, read and compared. */
#include "common/certs/ticket.h"

#include <inttypes.h>
#include <openssl/crypto.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is signed begins with it: the key signs nothing else. */
static const char PURPOSE[] = "weir ticket 2";

void ticket_draw_secret(unsigned char secret[TICKET_KEY_BYTES]) {
  CHECK(RAND_bytes(secret, TICKET_KEY_BYTES) == 1);
}

static void sign(const unsigned char key[TICKET_KEY_BYTES], const void *data, size_t size_bytes,
                 unsigned char mac[TICKET_MAC_BYTES]) {
  unsigned int length = TICKET_MAC_BYTES;
  CHECK(HMAC(EVP_sha256(), key, TICKET_KEY_BYTES, data, size_bytes, mac, &length));
}

void ticket_derive_key(const unsigned char secret[TICKET_KEY_BYTES], const char *run,
                       unsigned char key[TICKET_KEY_BYTES]) {
  sign(secret, run, strlen(run), key);
}

void ticket_derive_peer_key(const unsigned char run_key[TICKET_KEY_BYTES],
                            unsigned char key[TICKET_KEY_BYTES]) {
  static const char purpose[] = "weir peers 1";
  sign(run_key, purpose, sizeof purpose, key);
}

/* Each text ends with its zero, so that no two owners are signed by the same bytes. */
void ticket_mac(const unsigned char key[TICKET_KEY_BYTES], const struct ticket_owner *owner,
                unsigned char mac[TICKET_MAC_BYTES]) {
  char signed_bytes[sizeof PURPOSE + TICKET_RUN_MAX + 512];
  int size =
      snprintf(signed_bytes, sizeof signed_bytes, "%s%c%.*s%c%" PRIu64 "%c%" PRIu32 "%c%.400s", PURPOSE, 0,
               TICKET_RUN_MAX, owner->run, 0, owner->incarnation, 0, owner->worker, 0, owner->holder);
  sign(key, signed_bytes, (size_t)size, mac);
}

void ticket_make(const unsigned char key[TICKET_KEY_BYTES], const struct ticket_owner *owner,
                 char text[TICKET_TEXT_SIZE]) {
  unsigned char mac[TICKET_MAC_BYTES];
  int at = snprintf(text, TICKET_TEXT_SIZE, "%.*s/%" PRIu64 "/%" PRIu32 "/", TICKET_RUN_MAX, owner->run,
                    owner->incarnation, owner->worker);
  ticket_mac(key, owner, mac);
  for (int i = 0; i < TICKET_MAC_BYTES; i++)
    at += snprintf(text + at, TICKET_TEXT_SIZE - (size_t)at, "%02x", mac[i]);
}

static int digit_of(char c) {
  if (c >= '0' && c <= '9')
    return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool read_mac(const char *text, unsigned char mac[TICKET_MAC_BYTES]) {
  if (strlen(text) != 2 * TICKET_MAC_BYTES)
    return false;
  for (int i = 0; i < TICKET_MAC_BYTES; i++) {
    int high = digit_of(text[2 * i]), low = digit_of(text[2 * i + 1]);
    if (high < 0 || low < 0)
      return false;
    mac[i] = (unsigned char)(high << 4 | low);
  }
  return true;
}

/* The number between the last '/' of text[..end) and `end`, as ticket_make writes it: no sign, no space, no
   zero before it. Returns that '/'; NULL: there is none such. */
static const char *read_number(const char *text, const char *end, uint64_t *number) {
  const char *slash = memrchr(text, '/', (size_t)(end - text));
  char again[24];
  if (!slash)
    return NULL;
  *number = strtoull(slash + 1, NULL, 10);
  snprintf(again, sizeof again, "%" PRIu64 "/", *number);
  return strncmp(slash + 1, again, strlen(again)) == 0 && slash + strlen(again) == end ? slash : NULL;
}

int ticket_read(const char *text, struct ticket *ticket, struct err *err) {
  const char *mac = strrchr(text, '/'), *before_worker, *before_incarnation;
  uint64_t worker = 0;
  before_worker = mac ? read_number(text, mac, &worker) : NULL;
  before_incarnation = before_worker ? read_number(text, before_worker, &ticket->incarnation) : NULL;
  if (!before_incarnation || before_incarnation - text > TICKET_RUN_MAX || worker > UINT32_MAX ||
      !read_mac(mac + 1, ticket->mac))
    return err_set(err, ERR_DENIED, "the call's ticket is not of the form RUN/INCARNATION/WORKER/MAC");
  ticket->worker = (uint32_t)worker;
  snprintf(ticket->run, sizeof ticket->run, "%.*s", (int)(before_incarnation - text), text);
  return 0;
}

bool ticket_has_mac(const struct ticket *ticket, const unsigned char mac[TICKET_MAC_BYTES]) {
  return CRYPTO_memcmp(ticket->mac, mac, TICKET_MAC_BYTES) == 0;
}

bool ticket_is_genuine(const struct ticket *ticket, const unsigned char key[TICKET_KEY_BYTES],
                       const char *holder) {
  unsigned char mac[TICKET_MAC_BYTES];
  ticket_mac(key, &(struct ticket_owner){ticket->run, ticket->incarnation, holder, ticket->worker}, mac);
  return ticket_has_mac(ticket, mac);
}
