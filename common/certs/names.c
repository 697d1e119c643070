/* Holders of certificates, and their URIs. */
#include "common/certs/names.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static const char prefix[] = "spiffe://weir/";

static const struct {
  const char *name;
  const char *dns; /* behind the URI */
} roles[CERT_ROLES] = {
    {"coordinator", ",DNS:coordinator.weir,DNS:member.weir"},
    {"server", ",DNS:server.weir,DNS:member.weir"},
    {"worker", ",DNS:worker.weir,DNS:member.weir"},
    {"all", ",DNS:all.weir,DNS:coordinator.weir,DNS:server.weir,DNS:worker.weir,DNS:member.weir"},
    {"client", ",DNS:client.weir"},
    {"store", ",DNS:store.weir"},
};

static const char *const accesses[CERT_ACCESSES] = {"viewer", "submitter", "operator"};

const char *cert_role_name(enum cert_role role) {
  return roles[role].name;
}

const char *cert_access_name(enum cert_access access) {
  return accesses[access];
}

int cert_role_find(const char *text, enum cert_role *role, struct err *err) {
  for (int i = 0; i < CERT_ROLES; i++)
    if (strcmp(text, roles[i].name) == 0) {
      *role = (enum cert_role)i;
      return 0;
    }
  return err_set(err, ERR_INVALID,
                 "'%s' is no role: there are coordinator, server, worker, all, client and store", text);
}

int cert_access_find(const char *text, enum cert_access *access, struct err *err) {
  for (int i = 0; i < CERT_ACCESSES; i++)
    if (strcmp(text, accesses[i]) == 0) {
      *access = (enum cert_access)i;
      return 0;
    }
  return err_set(err, ERR_INVALID, "'%s' is no access: there are viewer, submitter and operator", text);
}

/* Letters are ASCII's, whatever the locale. */
static bool is_word(const char *text, size_t length) {
  if (length < 1 || length > CERT_WORD_MAX || text[0] == '.' || text[0] == '_' || text[0] == '-')
    return false;
  for (size_t i = 0; i < length; i++)
    if (!isascii((unsigned char)text[i]) || (!isalnum((unsigned char)text[i]) && !strchr("._-", text[i])))
      return false;
  return true;
}

int cert_word_set(char word[CERT_WORD_SIZE], const char *text, const char *what, struct err *err) {
  if (!is_word(text, strlen(text)))
    return err_set(err, ERR_INVALID,
                   "%s '%.100s' is not 1 to %d letters, digits, '.', '_' and '-', of which the first is a "
                   "letter or a digit",
                   what, text, CERT_WORD_MAX);
  snprintf(word, CERT_WORD_SIZE, "%s", text);
  return 0;
}

void cert_holder_uri(const struct cert_holder *holder, char uri[CERT_TEXT_SIZE]) {
  if (holder->role == CERT_CLIENT)
    snprintf(uri, CERT_TEXT_SIZE, "%sclient/%s/%s/%s", prefix, holder->tenant, accesses[holder->access],
             holder->name);
  else if (*holder->tenant)
    snprintf(uri, CERT_TEXT_SIZE, "%s%s/%s/%s", prefix, roles[holder->role].name, holder->tenant,
             holder->name);
  else
    snprintf(uri, CERT_TEXT_SIZE, "%s%s/%s", prefix, roles[holder->role].name, holder->name);
}

/* The next part of the path, which ends at '/' or at the end. */
static bool take_word(const char **at, char word[CERT_WORD_SIZE]) {
  size_t length = strcspn(*at, "/");
  if (!is_word(*at, length))
    return false;
  snprintf(word, CERT_WORD_SIZE, "%.*s", (int)length, *at);
  *at += length + ((*at)[length] == '/');
  return true;
}

/* What is behind the role: of a worker with a tenant one word more. */
static bool take_rest(const char **at, struct cert_holder *holder) {
  char access[CERT_WORD_SIZE];
  struct err why = ERR_NONE;
  if (holder->role == CERT_CLIENT && (!take_word(at, holder->tenant) || !take_word(at, access) ||
                                      cert_access_find(access, &holder->access, &why)))
    return false;
  if (holder->role == CERT_WORKER && strchr(*at, '/') && !take_word(at, holder->tenant))
    return false;
  return take_word(at, holder->name);
}

int cert_holder_read(const char *uri, struct cert_holder *holder, struct err *err) {
  const char *at = uri;
  char role[CERT_WORD_SIZE], written[CERT_TEXT_SIZE];
  struct err why = ERR_NONE;
  *holder = (struct cert_holder){0};
  if (strncmp(uri, prefix, strlen(prefix)) == 0)
    at += strlen(prefix);
  if (at > uri && take_word(&at, role) && cert_role_find(role, &holder->role, &why) == 0 &&
      take_rest(&at, holder)) {
    cert_holder_uri(holder, written);
    if (strcmp(written, uri) == 0)
      return 0;
  }
  return err_set(err, ERR_INVALID,
                 "'%.200s' names no member or client of Weir: spiffe://weir/ROLE/NAME, "
                 "spiffe://weir/worker/TENANT/NAME or spiffe://weir/client/TENANT/ACCESS/NAME is wanted",
                 uri);
}

void cert_holder_names(const struct cert_holder *holder, char names[CERT_TEXT_SIZE]) {
  char uri[CERT_TEXT_SIZE];
  cert_holder_uri(holder, uri);
  snprintf(names, CERT_TEXT_SIZE, "URI:%.220s%s", uri, roles[holder->role].dns);
}

bool cert_role_covers(enum cert_role own, enum cert_role wanted) {
  return own == wanted || (own == CERT_ALL && wanted < CERT_ALL);
}
