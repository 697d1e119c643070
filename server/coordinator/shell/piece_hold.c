/* Pieces that an upload needs and that no run's record refers to yet. */
#include "server/coordinator/shell/piece_hold.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "server/coordinator/shell/shell.h"

struct piece_hold {
  struct task task;
  struct coordinator_service *shell;
  struct run_model *model;
  struct piece_hold *next;
};

static void hold_release(struct task *task);

struct piece_hold *piece_hold_new(struct coordinator_service *shell, struct run_model *model) {
  struct piece_hold *hold = mem_new(sizeof *hold);
  *hold = (struct piece_hold){
      .task.run = hold_release, .shell = shell, .model = run_model_get(model), .next = shell->holds};
  shell->holds = hold;
  block_refs_add_pieces(shell->refs, &model->pieces);
  return hold;
}

void piece_hold_release(struct piece_hold *hold) {
  if (hold)
    task_post(hold->shell->jobs, &hold->task); /* one an upload */
}

static void hold_free(struct piece_hold *hold) {
  struct piece_hold **at = &hold->shell->holds;
  while (*at != hold)
    at = &(*at)->next;
  *at = hold->next;
  run_model_put(hold->model);
  free(hold);
}

/* What cannot be deleted now is found by a sweep. */
static void hold_release(struct task *task) {
  struct piece_hold *hold = TASK_OWNER(task, struct piece_hold, task);
  struct coordinator_service *shell = hold->shell;
  struct err err = ERR_NONE;
  if (shell->refs && block_refs_release_pieces(shell->store, shell->refs, &hold->model->pieces, &err))
    log_event(LOG_WARN, "coordinator", "pieces_not_deleted", "reason=\"%s\"", err.text);
  hold_free(hold);
}

void piece_holds_recount(struct coordinator_service *shell) {
  for (struct piece_hold *hold = shell->holds; hold; hold = hold->next)
    block_refs_add_pieces(shell->refs, &hold->model->pieces);
}

void piece_holds_fini(struct coordinator_service *shell) {
  while (shell->holds)
    hold_free(shell->holds);
}
