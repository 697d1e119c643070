/* weir ui: the dashboard. */
#include <stdio.h>

#include "client/cluster/stop.h"
#include "client/command.h"
#include "client/ui/browser.h"
#include "client/ui/ui.h"
#include "common/base/log.h"

enum { WAIT_MS = 3600 * 1000 };

static int ui_run(const struct args *args) {
  const struct ui_options options = {
      .listen = args_text(args, "listen"), .coordinator = args->coordinator, .security = &args->security};
  struct browser_page page = {0};
  struct err err = ERR_NONE;
  struct ui *ui;
  log_set_level(LOG_WARN);
  stop_on_signals();
  if (ui_open(&options, &ui, &err))
    return command_fail(&err);
  printf("%s\n", ui_url(ui));
  fflush(stdout);
  fprintf(stderr, "The dashboard of %s. The link is for you alone; Ctrl-C ends it.\n", args->coordinator);
  if (args_flag(args, "open") && browser_open(&page, ui_url(ui), &err))
    fprintf(stderr, "weir: %s\n", err.text);
  while (!stop_wait(WAIT_MS))
    ;
  browser_close(&page);
  ui_close(ui);
  return EXIT_DONE;
}

static const struct option_def ui_options[] = {
    {.name = "listen",
     .kind = OPTION_TEXT,
     .value = "HOST:PORT",
     .fallback = "127.0.0.1:0",
     .help =
         "where it listens: an address of this machine that no other can reach; port 0 takes a free one."},
    {.name = "open", .kind = OPTION_FLAG, .help = "open it in the browser, too."},
    {0}};

const struct command_def command_ui = {
    .name = "ui",
    .summary = "show the cluster in a browser",
    .arguments = "",
    .takes_coordinator = true,
    .description =
        "Serves the dashboard on this machine and prints its link, until Ctrl-C: the fleet, runs with their "
        "curves, runs compared, sweeps and members. It asks the coordinator with the certificate of --tls, "
        "as every "
        "command does, so it shows and changes what that certificate may.\n\n"
        "The link has a session id, without which nothing but the empty page is served. Who has the link may "
        "do "
        "what you may. It ends with the command.",
    .options = ui_options,
    .examples = "weir ui --open\n"
                "weir ui --listen 127.0.0.1:8080\n"
                "ssh -L 8080:127.0.0.1:8080 HOST weir ui --listen 127.0.0.1:8080\n",
    .run = ui_run,
};
