/* weir top: the fleet, live. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "client/cluster/connect.h"
#include "client/cluster/stop.h"
#include "client/command.h"
#include "client/terminal/fleet_table.h"
#include "client/terminal/live.h"
#include "client/terminal/output.h"
#include "common/base/err.h"

enum { REDRAW_MS = 1000 };

/* The answers; each NULL, or freed with answers_fini. */
struct answers {
  Weir__ListRunsReply *runs;
  Weir__ListWorkersReply *workers;
  Weir__ListServersReply *servers;
};

static void answers_fini(struct answers *answers) {
  if (answers->runs)
    weir__list_runs_reply__free_unpacked(answers->runs, NULL);
  if (answers->workers)
    weir__list_workers_reply__free_unpacked(answers->workers, NULL);
  if (answers->servers)
    weir__list_servers_reply__free_unpacked(answers->servers, NULL);
}

static int answers_ask(struct connection *connection, struct answers *answers, struct err *err) {
  Weir__ListRunsRequest runs = WEIR__LIST_RUNS_REQUEST__INIT;
  Weir__ListWorkersRequest workers = WEIR__LIST_WORKERS_REQUEST__INIT;
  Weir__ListServersRequest servers = WEIR__LIST_SERVERS_REQUEST__INIT;
  *answers = (struct answers){0};
  if (connection_call(connection, RPC_LIST_RUNS, &runs, (void **)&answers->runs, err) ||
      connection_call(connection, RPC_LIST_WORKERS, &workers, (void **)&answers->workers, err))
    return err->code;
  return connection_call(connection, RPC_LIST_SERVERS, &servers, (void **)&answers->servers, err);
}

/* Freed by the caller. */
static char *text_of(const struct answers *answers, int columns) {
  char *text = NULL;
  size_t size;
  FILE *file = open_memstream(&text, &size);
  CHECK(file);
  fleet_print(file, &(struct fleet){answers->runs, answers->workers, answers->servers, columns});
  fclose(file);
  return text;
}

/* Over the screen from its top; what was below goes. */
static void draw(struct live *live, const char *coordinator, const struct answers *answers) {
  time_t now = time(NULL);
  char clock[16], *text;
  int columns;
  strftime(clock, sizeof clock, "%H:%M:%S", localtime(&now));
  live_measure(live);
  columns = live->style.width;
  text = text_of(answers, columns);
  printf("\033[H\033[J%.*s\n", columns > 10 ? columns - 10 : 0, coordinator);
  printf("\033[1;%dH%s\n", columns > 8 ? columns - 7 : 1, clock);
  live_print_cut(stdout, text, live->lines - 2, columns);
  fflush(stdout);
  free(text);
}

/* A coordinator that is away for a while leaves what was last known on the screen. */
static int show_live(struct connection *connection, const char *coordinator, struct live *live,
                     struct err *err) {
  struct answers answers;
  bool has_drawn = false;
  do {
    if (answers_ask(connection, &answers, err) == 0) {
      draw(live, coordinator, &answers);
      has_drawn = true;
    }
    answers_fini(&answers);
    if (err->code && !has_drawn)
      return err->code;
    if (err->code) {
      output_clean(err->text);
      printf("\033[1;1H\033[K%.*s", live->style.width - 1, err->text);
      fflush(stdout);
    }
    *err = ERR_NONE;
  } while (!stop_wait(REDRAW_MS));
  printf("\n");
  return 0;
}

static int show_once(struct connection *connection, struct err *err) {
  struct answers answers;
  if (answers_ask(connection, &answers, err) == 0)
    fleet_print(stdout, &(struct fleet){answers.runs, answers.workers, answers.servers, 0});
  answers_fini(&answers);
  return err->code;
}

static int top_run(const struct args *args) {
  struct connection connection = {0};
  struct err err = ERR_NONE;
  struct live live;
  stop_on_signals();
  live_init(&live, stdout);
  if (connection_open(&connection, args->coordinator, &args->security, &err) == 0) {
    if (live.is_terminal && !args_flag(args, "once"))
      show_live(&connection, args->coordinator, &live, &err);
    else
      show_once(&connection, &err);
  }
  connection_close(&connection);
  return err.code ? command_fail(&err) : EXIT_DONE;
}

static const struct option_def top_options[] = {
    {.name = "once",
     .kind = OPTION_FLAG,
     .help = "print it once, also on a terminal. Default: where the output is no terminal."},
    {0}};

const struct command_def command_top = {
    .name = "top",
    .summary = "show the fleet live: which runs have its workers, and which wait",
    .arguments = "",
    .takes_coordinator = true,
    .description =
        "Shows how many workers and servers a cluster has, and a row for each run that is not over or "
        "paused, until Ctrl-C. It is redrawn each second. WORKERS says how many compute for the run, and how "
        "many it is to have. A queued run has its place in the queue, and the line below says what it waits "
        "for and which runs have it. Held runs come last; those of sweeps are left out. Where the output is "
        "no terminal, each run has one line.",
    .options = top_options,
    .examples = "weir top\nweir top --once | head -3\n",
    .run = top_run,
};
