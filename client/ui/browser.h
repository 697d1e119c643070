/* The user's browser, shown a link that no other user of the machine may see. */
#ifndef WEIR_CLIENT_UI_BROWSER_H
#define WEIR_CLIENT_UI_BROWSER_H

#include "common/base/err.h"

struct browser_page {
  char path[4096]; /* of a file that leads to the link; "": there is none */
};

/* Has xdg-open show a file that only its owner may read and that leads to the link: a command line can be
   read by all users. Waits for xdg-open, not for the browser. Errors: IO for the file; UNSUPPORTED where
   there is no xdg-open or it fails, saying what to do. */
int browser_open(struct browser_page *page, const char *url, struct err *err);

/* Deletes the file; safe on a zeroed one. */
void browser_close(struct browser_page *page);

#endif
