/* Links to members: the stream Join. A link is known to gRPC's thread and to the event loop; the event loop
   alone sends on it, finishes it and frees it, the latter when gRPC has said that it is closed. */
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/message.h"
#include "server/coordinator/shell/shell.h"

enum { LINK_MESSAGES_MAX = 4096 };

struct link {
  struct coordinator_service *shell;
  uint64_t key;
  struct rpc_call *call;
  struct task closed;
  uint32_t waiting;   /* atomic: messages that the event loop has not seen */
  bool is_overrun;    /* atomic: more messages came or went than may wait; it is to be closed */
  bool is_introduced; /* said hello; the event loop's own, as what follows */
  bool is_finished;
  struct link *next;
};

struct link_message {
  struct task task;
  struct link *link;
  Weir__MemberMessage *message; /* NULL: the member has ended its side */
};

static void link_receive(struct task *task);
static void link_take(struct link *link, const Weir__MemberMessage *message);
static void link_finish(struct link *link, enum err_code code, const char *reason);
static void link_left(struct link *link, enum err_code code, const char *reason);
static struct link *link_find(struct coordinator_service *shell, uint64_t key);
static void link_closed(struct task *task);

static struct link *link_open(struct rpc_call *call) {
  struct link *link = mem_new(sizeof *link);
  link->shell = rpc_call_context(call);
  link->key = __atomic_add_fetch(&link->shell->links_seen, 1, __ATOMIC_RELAXED);
  link->call = call;
  link->closed.run = link_closed;
  rpc_call_set_user(call, link);
  return link;
}

static void link_post(struct link *link, Weir__MemberMessage *message) {
  struct link_message *item = mem_new(sizeof *item);
  *item = (struct link_message){.task.run = link_receive, .link = link, .message = message};
  __atomic_add_fetch(&link->waiting, 1, __ATOMIC_RELAXED);
  task_post(link->shell->event_loop, &item->task);
}

void shell_join_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  struct link *link = rpc_call_user(call);
  rpc_bytes_free(bytes);
  if (!link)
    link = link_open(call);
  if (__atomic_load_n(&link->waiting, __ATOMIC_RELAXED) < LINK_MESSAGES_MAX)
    link_post(link, message_copy(message));
  else
    __atomic_store_n(&link->is_overrun, true, __ATOMIC_RELAXED);
}

void shell_join_on_half_close(struct rpc_call *call) {
  struct link *link = rpc_call_user(call);
  link_post(link ? link : link_open(call), NULL);
}

void shell_join_on_closed(struct rpc_call *call) {
  struct link *link = rpc_call_user(call);
  task_post(link->shell->event_loop, &link->closed);
}

static void link_receive(struct task *task) {
  struct link_message *item = TASK_OWNER(task, struct link_message, task);
  struct link *link = item->link;
  char why[SHELL_TEXT_SIZE];
  __atomic_sub_fetch(&link->waiting, 1, __ATOMIC_RELAXED);
  if (link->is_finished)
    ;
  else if (!shell_is_leading(link->shell, why))
    link_finish(link, ERR_UNAVAILABLE, why);
  else if (!item->message)
    link_left(link, ERR_OK, "it ended its stream");
  else
    link_take(link, item->message);
  message_free(item->message);
  free(item);
}

/* Whether others are told of its address. */
static int check_place(const struct link *link, const Weir__Hello *hello, struct err *err) {
  if (!*hello->address || rpc_security_check(&link->shell->options.security, hello->address, err) == 0)
    return 0;
  return err_prefix(err, "the coordinator takes no member at its address");
}

/* Whether it may be what it says to be; holder: the URI of its certificate, "" without TLS. */
static int check_holder(const struct link *link, const Weir__Hello *hello, char holder[CERT_TEXT_SIZE],
                        struct err *err) {
  enum cert_role role = hello->role == WEIR__ROLE__SERVER ? CERT_SERVER : CERT_WORKER;
  struct cert_holder shown;
  *holder = '\0';
  if (!rpc_call_holder(link->call, &shown))
    return 0;
  cert_holder_uri(&shown, holder);
  if (cert_role_covers(shown.role, role))
    return 0;
  return err_set(err, ERR_DENIED, "the hello is that of a %s, the certificate that of the %s '%s'",
                 cert_role_name(role), cert_role_name(shown.role), shown.name);
}

static void link_take(struct link *link, const Weir__MemberMessage *message) {
  char holder[CERT_TEXT_SIZE];
  struct err err = ERR_NONE;
  Weir__Hello hello;
  struct coordinator_event event = {.member = link->key};
  bool is_hello = message->body_case == WEIR__MEMBER_MESSAGE__BODY_HELLO;
  if (is_hello == link->is_introduced) {
    link_left(link, ERR_INVALID, is_hello ? "it said hello twice" : "its first message is no hello");
    return;
  }
  if (is_hello &&
      (check_place(link, message->hello, &err) || check_holder(link, message->hello, holder, &err))) {
    link_left(link, err.code, err.text);
    return;
  }
  if (is_hello) {
    hello = *message->hello;
    hello.holder = holder;
    link->is_introduced = true;
    link->next = link->shell->links;
    link->shell->links = link;
    event.kind = EVENT_MEMBER_JOINED;
    event.hello = &hello;
  } else if (message->body_case == WEIR__MEMBER_MESSAGE__BODY_TRACED) {
    shell_traced(link->shell, link->key, message->traced);
    return;
  } else {
    event.kind = EVENT_MEMBER_MESSAGE;
    event.message = message;
  }
  shell_step(link->shell, &event);
}

/* Ends the stream; the link waits for link_closed. */
static void link_finish(struct link *link, enum err_code code, const char *reason) {
  struct link **at = &link->shell->links;
  while (*at && *at != link)
    at = &(*at)->next;
  if (*at)
    *at = link->next;
  link->is_finished = true;
  shell_trace_left(link->shell, link->key);
  rpc_call_fail(link->call, code, "%s", reason);
}

static void link_left(struct link *link, enum err_code code, const char *reason) {
  struct coordinator_event event = {.kind = EVENT_MEMBER_LEFT, .member = link->key, .reason = reason};
  if (!link->is_introduced)
    log_event(LOG_WARN, "coordinator", "member_refused", "reason=\"%s\"", reason);
  link_finish(link, code, reason);
  shell_step(link->shell, &event);
}

static void link_closed(struct task *task) {
  struct link *link = TASK_OWNER(task, struct link, closed);
  if (!link->is_finished)
    link_left(link, ERR_UNAVAILABLE, "its connection broke");
  free(link);
}

static struct link *link_find(struct coordinator_service *shell, uint64_t key) {
  struct link *link = shell->links;
  while (link && link->key != key)
    link = link->next;
  return link;
}

void shell_order(struct coordinator_service *shell, uint64_t key, const Weir__Order *order) {
  struct link *link = link_find(shell, key);
  if (link &&
      rpc_call_send(link->call, order, NULL) == ERR_BUSY) /* else it is there, or about to be closed */
    __atomic_store_n(&link->is_overrun, true, __ATOMIC_RELAXED);
}

void shell_close_overrun_links(struct coordinator_service *shell) {
  struct link *link = shell->links;
  while (link) {
    if (!__atomic_load_n(&link->is_overrun, __ATOMIC_RELAXED)) {
      link = link->next;
      continue;
    }
    link_left(link, ERR_BUSY, "it sends too fast or reads too slowly");
    link = shell->links; /* the core may have closed others */
  }
}

void shell_close_link(struct coordinator_service *shell, uint64_t key, enum err_code code,
                      const char *reason) {
  struct link *link = link_find(shell, key);
  if (link)
    link_finish(link, code, reason);
}

void shell_close_links(struct coordinator_service *shell, const char *why) {
  while (shell->links)
    link_finish(shell->links, ERR_UNAVAILABLE, why);
}
