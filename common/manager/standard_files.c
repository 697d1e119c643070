/* Whether standard files are there, and took what was written. */
#include "common/manager/standard_files.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

void standard_files_open(void) {
  int fd;
  do /* each open takes the lowest number that is free */
    fd = open("/dev/null", O_RDWR);
  while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd > STDERR_FILENO)
    close(fd);
}

static bool has_reader_left(void) {
  struct pollfd output = {.fd = STDOUT_FILENO, .events = POLLOUT};
  return poll(&output, 1, 0) == 1 && output.revents & (POLLERR | POLLHUP);
}

int standard_output_finish(struct err *err) {
  int why = fflush(stdout) ? errno : 0;
  if (!ferror(stdout) || has_reader_left())
    return ERR_OK;
  if (why)
    return err_errno(err, why, "cannot write to standard output");
  return err_set(err, ERR_IO, "not all that was printed could be written to standard output");
}
