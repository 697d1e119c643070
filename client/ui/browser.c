/* A file in a folder of the user's own, and xdg-open. */
#include "client/ui/browser.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static int write_page(struct browser_page *page, const char *url, struct err *err) {
  const char *folder = getenv("XDG_RUNTIME_DIR");
  FILE *file;
  int fd;
  snprintf(page->path, sizeof page->path, "%s/weir-ui-XXXXXX.html", folder && *folder ? folder : "/tmp");
  fd = mkstemps(page->path, (int)strlen(".html"));
  file = fd < 0 ? NULL : fdopen(fd, "w");
  if (!file) {
    err_errno(err, errno, "%s", page->path);
    page->path[0] = '\0';
    return err->code;
  }
  fprintf(file,
          "<!doctype html>\n<meta charset=\"utf-8\">\n<title>Weir</title>\n"
          "<meta http-equiv=\"refresh\" content=\"0; url=%s\">\n<p><a href=\"%s\">Weir</a>\n",
          url, url);
  return fclose(file) == 0 ? 0 : err_errno(err, errno, "%s", page->path);
}

/* Its signals are those of a fresh process: ours are blocked. */
static int spawn_opener(const char *path) {
  char *const argv[] = {"xdg-open", (char *)path, NULL};
  posix_spawnattr_t attributes;
  sigset_t none;
  pid_t child;
  int status, failure;
  sigemptyset(&none);
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  failure = posix_spawnp(&child, argv[0], NULL, &attributes, argv, environ);
  posix_spawnattr_destroy(&attributes);
  if (failure)
    return failure;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR)
      return errno;
  return status ? ECHILD : 0;
}

int browser_open(struct browser_page *page, const char *url, struct err *err) {
  int failure;
  if (write_page(page, url, err))
    return err->code;
  failure = spawn_opener(page->path);
  if (failure)
    return err_set(err, ERR_UNSUPPORTED, "xdg-open %s; open the link above in a browser",
                   failure == ECHILD ? "found no browser" : strerror(failure));
  return 0;
}

void browser_close(struct browser_page *page) {
  if (page->path[0])
    unlink(page->path);
  page->path[0] = '\0';
}
