/* The shell around the core, for the files of the coordinator's services alone. One thread, the desk, owns
   the core and every list below; whatever comes from gRPC's threads or from the store's is a task for it.
   service.c begins, ends and carries out actions; members.c speaks with members, training.c answers
   questions, watch.c follows runs, submit.c takes new ones, download.c sends models and weights. */
#ifndef WEIR_SERVER_COORDINATOR_SHELL_H
#define WEIR_SERVER_COORDINATOR_SHELL_H

#include "common/rpc/server.h"
#include "server/coordinator/core.h"
#include "server/coordinator/sender.h"
#include "server/coordinator/service.h"
#include "server/coordinator/tasks.h"

struct link;
struct watch;

/* The ONNX file of a run that is not over. */
struct live_model {
  char *run;
  struct buffer *onnx;
  struct live_model *next;
};

struct coordinator_service {
  struct store *store;
  struct rpc_service services[COORDINATOR_SERVICES];
  struct task_thread *desk;
  struct task_thread *jobs; /* what blocks or takes long: the store, models */
  struct sender *sender;
  uint64_t links_seen; /* atomic: keys of members */
  uint32_t uploads;    /* atomic: in progress */

  /* the desk's own */
  struct coordinator *core;
  struct coordinator_actions actions;
  struct link *links;
  struct watch *watches;
  struct live_model *models;
  uint64_t ticked_ms;
  bool is_stopping;
};

/* service.c; desk */
uint64_t shell_now_ms(void);
/* Passes an event to the core and carries out its actions. Not from within itself. */
void shell_step(struct coordinator_service *shell, const struct coordinator_event *event);
struct live_model *shell_find_model(struct coordinator_service *shell, const char *run);
/* Finds the run that a request names, or fails the call. NULL: failed. */
const char *shell_find_run(struct coordinator_service *shell, struct rpc_call *call, const char *prefix);
/* Fails the call if the service is stopping. */
bool shell_turns_away(struct coordinator_service *shell, struct rpc_call *call);

/* members.c */
void shell_join_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes);
void shell_join_on_half_close(struct rpc_call *call);
void shell_join_on_closed(struct rpc_call *call);
void shell_order(struct coordinator_service *shell, uint64_t key, const Weir__Order *order);
void shell_close_link(struct coordinator_service *shell, uint64_t key, enum err_code code,
                      const char *reason);
void shell_close_overrun_links(struct coordinator_service *shell);
void shell_close_links(struct coordinator_service *shell);

/* watch.c */
void shell_watch_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes);
void shell_watch_on_closed(struct rpc_call *call);
bool shell_pump_watches(struct coordinator_service *shell); /* true: some could not take everything */
void shell_close_watches(struct coordinator_service *shell);

/* submit.c */
void shell_submit_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes);
void shell_submit_on_half_close(struct rpc_call *call);
void shell_submit_on_closed(struct rpc_call *call);

/* training.c: one message, answered by the desk */
void shell_list_runs_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes);
void shell_get_run_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes);
void shell_cancel_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes);
void shell_list_workers_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes);
void shell_list_servers_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes);
void shell_get_model_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes);
void shell_get_weights_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes);

/* download.c; desk. Both finish the call, now or later. run: its whole id. */
void shell_send_model(struct coordinator_service *shell, struct rpc_call *call, const char *run);
void shell_send_weights(struct coordinator_service *shell, struct rpc_call *call, const char *run);

#endif
