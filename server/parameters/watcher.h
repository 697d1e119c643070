/* The watcher looks after the pace of all runs on this server (server/parameters/run/pace.h), and has it told
   when a step is late. */
#ifndef WEIR_SERVER_PARAMETERS_WATCHER_H
#define WEIR_SERVER_PARAMETERS_WATCHER_H

#include "server/parameters/load/run_table.h"

struct watcher;

/* With a thread of its own. The table outlives the watcher; options are copied. */
struct watcher *watcher_start(struct run_table *runs, const struct pace_options *options);
/* Ends the thread; before shards are settled. NULL is ignored. */
void watcher_stop(struct watcher *watcher);

/* There is a run to watch, or another coordinator for one that was there. Any thread, never blocks. */
void watcher_begin(struct watcher *watcher, struct hosted_run *run);

#endif
