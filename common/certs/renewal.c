/* Folders of certificates, changed while they are in use. */
#include "common/certs/renewal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/memory.h"
#include "common/certs/authority.h"
#include "common/certs/pem.h"

/* The folder as it will be, beside the one that is. */
struct renewal {
  char *folder; /* the one that is, no link */
  char *next;
};

static int renewal_begin(const char *folder, struct renewal *renewal, struct err *err);
static int renewal_finish(struct renewal *renewal, struct err *err);
static void renewal_fini(struct renewal *renewal, struct err *err);

/* Its certificate may have ended. */
static int order_of(const char *folder, struct cert_order *order, struct err *err) {
  char *file = mem_printf("%s/cert.pem", folder), *text = NULL;
  struct cert_facts facts;
  if (pem_read(AT_FDCWD, file, file, &text, err) == 0 && cert_facts_parse(text, file, &facts, err) == 0)
    order->holder = facts.holder;
  free(text);
  free(file);
  return err->code;
}

static int facts_of(const char *folder, struct cert_facts *facts, struct err *err) {
  struct cert_files files;
  if (cert_files_read(folder, &files, err))
    return err->code;
  cert_files_check(&files, folder, facts, err);
  cert_files_free(&files);
  return err->code;
}

/* Reads folder/ca.pem. */
static int read_trusted(const char *folder, char **text, STACK_OF(X509) * *list, struct err *err) {
  char *file = mem_printf("%s/ca.pem", folder);
  if (pem_read(AT_FDCWD, file, file, text, err) == 0)
    pem_certificates(*text, file, list, err);
  free(file);
  return err->code;
}

/* Whether the folder trusts every authority of the other's ca.pem. Both texts are to be freed. */
static int compare_trusted(const char *ca, const char *folder, char *texts[2], bool *has_all,
                           struct err *err) {
  STACK_OF(X509) *wanted = NULL, *trusted = NULL;
  *has_all = true;
  if (read_trusted(ca, &texts[0], &wanted, err) == 0 && read_trusted(folder, &texts[1], &trusted, err) == 0)
    for (int i = 0; i < sk_X509_num(wanted); i++)
      *has_all &= pem_has_certificate(trusted, sk_X509_value(wanted, i));
  sk_X509_pop_free(wanted, X509_free);
  sk_X509_pop_free(trusted, X509_free);
  return err->code;
}

int renewal_renew(const char *ca, const char *folder, int days, struct cert_facts *facts, struct err *err) {
  struct renewal renewal = {0};
  struct cert_order order = {.days = days};
  char *texts[2] = {NULL, NULL};
  bool has_all;
  if (compare_trusted(ca, folder, texts, &has_all, err) == 0 && !has_all)
    err_set(
        err, ERR_INVALID,
        "%s/ca.pem does not have the authority of %s: before a certificate of it is used, it must be trusted "
        "everywhere, by `weir certs trust --ca %s`",
        folder, ca, ca);
  if (!err->code && order_of(folder, &order, err) == 0 && renewal_begin(folder, &renewal, err) == 0 &&
      authority_write_pair(ca, &order, renewal.next, err) == 0 && renewal_finish(&renewal, err) == 0)
    facts_of(folder, facts, err);
  renewal_fini(&renewal, err);
  free(texts[0]);
  free(texts[1]);
  return err->code;
}

int renewal_trust(const char *ca, const char *folder, bool is_alone, bool *has_changed, struct err *err) {
  struct renewal renewal = {0};
  char *texts[2] = {NULL, NULL}, *text = NULL, *file = NULL;
  bool has_all;
  *has_changed = false;
  if (compare_trusted(ca, folder, texts, &has_all, err) == 0 &&
      (is_alone ? strcmp(texts[0], texts[1]) != 0 : !has_all) && renewal_begin(folder, &renewal, err) == 0) {
    size_t length = strlen(texts[1]);
    text = is_alone
               ? mem_strdup(texts[0])
               : mem_printf("%s%s%s", texts[1], length && texts[1][length - 1] != '\n' ? "\n" : "", texts[0]);
    file = mem_printf("%s/ca.pem", renewal.next);
    *has_changed = pem_write_text(file, text, err) == 0 && renewal_finish(&renewal, err) == 0;
  }
  renewal_fini(&renewal, err);
  free(file);
  free(text);
  free(texts[0]);
  free(texts[1]);
  return err->code;
}

static int renewal_begin(const char *folder, struct renewal *renewal, struct err *err) {
  struct stat status;
  renewal->folder = realpath(folder, NULL);
  if (!renewal->folder || stat(renewal->folder, &status))
    return err_errno(err, errno, "the folder of certificates '%s'", folder);
  renewal->next = mem_printf("%s.XXXXXX", renewal->folder);
  if (!mkdtemp(renewal->next)) {
    err_errno(err, errno, "cannot make a folder beside '%s'", renewal->folder);
    free(renewal->next);
    renewal->next = NULL;
  } else if (chown(renewal->next, status.st_uid, status.st_gid) ||
             chmod(renewal->next, status.st_mode & 07777))
    err_errno(err, errno, "cannot give a folder beside '%s' its owner and mode", renewal->folder);
  return err->code;
}

/* A key that all users may have read is replaced by one that its owner alone may read. */
static mode_t mode_of_new(const char *name, mode_t mode) {
  return strcmp(name, "key.pem") == 0 && mode & S_IRWXO ? 0600 : mode & 07777;
}

/* What was there under the name: its owner and mode if it is replaced, else the file itself. */
static int take_over(const struct renewal *renewal, const char *name, struct err *err) {
  char *from = mem_printf("%s/%s", renewal->folder, name), *to = mem_printf("%s/%s", renewal->next, name);
  struct stat status;
  if (lstat(from, &status))
    err_errno(err, errno, "%s", from);
  else if (S_ISDIR(status.st_mode))
    err_set(err, ERR_INVALID, "%s: a folder of certificates has no folders in it", from);
  else if (access(to, F_OK) == 0) {
    if (chown(to, status.st_uid, status.st_gid) || chmod(to, mode_of_new(name, status.st_mode)))
      err_errno(err, errno, "%s: cannot give its owner and mode to the file that replaces it", from);
  } else if (link(from, to))
    err_errno(err, errno, "%s: cannot link it into the folder that replaces this one", from);
  free(to);
  free(from);
  return err->code;
}

static int take_over_all(const struct renewal *renewal, struct err *err) {
  DIR *folder = opendir(renewal->folder);
  struct dirent *entry;
  if (!folder)
    return err_errno(err, errno, "the folder of certificates '%s'", renewal->folder);
  while (!err->code && (entry = readdir(folder)))
    if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
      take_over(renewal, entry->d_name, err);
  closedir(folder);
  return err->code;
}

/* The folder takes the other's place if it can be used; `next` is what it was, then. */
static int renewal_finish(struct renewal *renewal, struct err *err) {
  struct cert_facts facts;
  if (take_over_all(renewal, err))
    return err->code;
  if (facts_of(renewal->next, &facts, err))
    return err_prefix(err, "%s is left as it is, for it would be of no use", renewal->folder);
  if (renameat2(AT_FDCWD, renewal->next, AT_FDCWD, renewal->folder, RENAME_EXCHANGE))
    return err_errno(
        err, errno,
        "cannot replace the folder '%s' at once: make another one by `weir certs issue`, and switch a "
        "link to it",
        renewal->folder);
  return 0;
}

static void remove_files(const char *path) {
  DIR *folder = opendir(path);
  struct dirent *entry;
  while (folder && (entry = readdir(folder)))
    unlinkat(dirfd(folder), entry->d_name, 0);
  if (folder)
    closedir(folder);
  rmdir(path);
}

/* Names the folder itself where an error names the one beside it, which is gone when the error is read. */
static void name_folder(const struct renewal *renewal, struct err *err) {
  size_t length = strlen(renewal->folder), n_more = strlen(renewal->next) - length;
  for (char *at = strstr(err->text, renewal->next); at; at = strstr(at, renewal->next)) {
    at += length;
    memmove(at, at + n_more, strlen(at + n_more) + 1);
  }
}

static void renewal_fini(struct renewal *renewal, struct err *err) {
  if (renewal->next && err->code)
    name_folder(renewal, err);
  if (renewal->next)
    remove_files(renewal->next);
  free(renewal->next);
  free(renewal->folder);
}
