/* Questions: copied by gRPC's thread, answered by the event loop. Whatever run or sweep a question names is
   looked up here, as its caller sees it, before anybody answers: what is another tenant's is not there. */
#include <stdlib.h>

#include "common/base/message.h"
#include "server/coordinator/messages/info.h"
#include "server/coordinator/shell/sweeps.h"

struct question {
  struct task task;
  struct rpc_call *call;
  void *message;
  answer_function *answer;
};

struct viewer shell_viewer(const struct rpc_call *call) {
  struct cert_holder holder;
  return viewer_of(rpc_call_holder(call, &holder) ? &holder : NULL);
}

bool shell_read_begin(struct coordinator_service *shell, struct rpc_call *call, enum read_kind kind,
                      struct err *err) {
  struct viewer viewer = shell_viewer(call);
  struct cert_holder holder;
  struct read *read;
  if (kind == READ_OF_MEMBER)
    viewer = viewer_of_tenant(rpc_call_holder(call, &holder) ? holder.tenant : "");
  pthread_mutex_lock(&shell->uploads_lock);
  read = read_begin(&shell->reads, &shell->quotas, viewer.tenant, kind, err);
  pthread_mutex_unlock(&shell->uploads_lock);
  rpc_call_set_user(call, read);
  return read != NULL;
}

const char *shell_find_run(struct coordinator_service *shell, struct rpc_call *call, const char *prefix) {
  const struct viewer viewer = shell_viewer(call);
  struct err err = ERR_NONE;
  const char *id;
  if (coordinator_find_run(shell->core, &viewer, prefix, &id, &err) == 0)
    return id;
  rpc_call_finish(call, &err);
  return NULL;
}

/* The sweep that the caller names, or fails the call. NULL: failed. */
static struct shell_sweep *find_sweep(struct coordinator_service *shell, struct rpc_call *call,
                                      const char *prefix) {
  const struct viewer viewer = shell_viewer(call);
  struct err err = ERR_NONE;
  struct shell_sweep *found = shell_match_sweep(shell, &viewer, prefix, &err);
  if (!found)
    rpc_call_finish(call, &err);
  return found;
}

/* The text of the message's field of that name; NULL: it has no such field. */
static const char *text_field(const ProtobufCMessage *message, const char *name) {
  const ProtobufCFieldDescriptor *field =
      protobuf_c_message_descriptor_get_field_by_name(message->descriptor, name);
  if (!field || field->type != PROTOBUF_C_TYPE_STRING || field->label == PROTOBUF_C_LABEL_REPEATED)
    return NULL;
  return *(char *const *)((const char *)message + field->offset);
}

static void question_answer(struct task *task) {
  struct question *question = TASK_OWNER(task, struct question, task);
  struct rpc_call *call = question->call;
  struct coordinator_service *shell = rpc_call_context(call);
  const char *run = text_field(question->message, "run"), *sweep = text_field(question->message, "sweep");
  struct asked asked = {.message = question->message};
  if (shell_turns_away(shell, call))
    goto out;
  asked.viewer = shell_viewer(call);
  if (run && !(asked.run = shell_find_run(shell, call, run)))
    goto out; /* the call may be gone */
  if (sweep && !(asked.sweep = find_sweep(shell, call, sweep)))
    goto out;
  question->answer(shell, call, &asked);
out:
  message_free(question->message);
  free(question);
}

void shell_ask(struct rpc_call *call, const void *message, struct rpc_bytes *bytes, answer_function *answer) {
  struct coordinator_service *shell = rpc_call_context(call);
  struct question *question = mem_new(sizeof *question);
  rpc_bytes_free(bytes);
  *question = (struct question){
      .task.run = question_answer, .call = call, .message = message_copy(message), .answer = answer};
  if (task_offer(shell->event_loop, &question->task))
    return;
  rpc_call_fail(call, ERR_BUSY, "the coordinator has too much to do");
  message_free(question->message);
  free(question);
}
