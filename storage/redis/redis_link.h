/* One Redis server and the connection to it. The connection is made when it is needed, and again after it
   broke. Commands go out as a pipeline, blocks straight from the caller's memory, each when the commands
   before its own are answered. Replies are read meanwhile, so that neither side waits for the other with full
   buffers. Not for several threads at a time. */
#ifndef WEIR_STORAGE_REDIS_REDIS_LINK_H
#define WEIR_STORAGE_REDIS_REDIS_LINK_H

#include "storage/redis/redis_reply.h"
#include "storage/redis/redis_socket.h"
#include "storage/redis/redis_url.h"

enum { REDIS_WORDS_MAX = 24, REDIS_REPLY_SMALL = 1 << 20 };

#define REDIS_EXPECTS(type) (1u << (type))

struct redis_command {
  const char *words[REDIS_WORDS_MAX];
  size_t sizes[REDIS_WORDS_MAX];
  int n_words;
  const struct iovec
      *value;             /* parts of a block that is sent from where it is: the last word, which is empty */
  int n_value;            /* 0: no block */
  int slot;               /* of its keys, in a cluster */
  unsigned expects;       /* types of a good reply: REDIS_EXPECTS(type) */
  size_t reply_bytes_max; /* 0: REDIS_REPLY_SMALL */
  bool wants_block;       /* a bulk is received in place, and its str may be taken */
  redisReply *reply;      /* NULL: none yet */
};

/* Appends words (data NULL: an empty one). Their memory is the caller's until the reply is there. */
void redis_command_add(struct redis_command *command, const void *data, size_t size);
void redis_command_add_text(struct redis_command *command, const char *text);
void redis_commands_fini(struct redis_command *commands, int n); /* their replies */

/* What a server must be for a link to it. */
enum redis_role { REDIS_ROLE_ANY, REDIS_ROLE_MASTER, REDIS_ROLE_SENTINEL };

struct redis_link {
  const struct redis_config *config;
  struct redis_endpoint endpoint;
  enum redis_role role;
  bool has_auth;               /* the password is sent; sentinels get it when they ask for one */
  struct redis_socket *socket; /* NULL: not connected */
  struct redis_reader reader;
  int failures; /* to connect, one after the other */
  uint64_t retry_at_ns;
  struct err failure; /* the newest of them */
};

void redis_link_init(struct redis_link *link, const struct redis_config *config,
                     const struct redis_endpoint *endpoint, enum redis_role role);
void redis_link_fini(struct redis_link *link);
void redis_link_close(struct redis_link *link); /* the next connect makes a new connection */

/* True if connected as far as can be seen; what the server has closed is closed here. */
bool redis_link_is_up(struct redis_link *link);

/* Makes sure of a connection that the server has greeted (AUTH, SELECT, its role), and that it keeps its
   keys. After a failure the next calls repeat it at once, for as long as the attempt took and at least 50 ms,
   doubling. Errors: UNAVAILABLE, TIMEOUT, INVALID (password, database, not a Redis). */
int redis_link_connect(struct redis_link *link, struct err *err);

/* Of a connected server. Errors: UNAVAILABLE, where it may remove the store's keys when its memory is full;
   as redis_link_exchange. One that does not tell is taken to keep them: this user may not ask it. */
int redis_link_check_eviction(struct redis_link *link, struct err *err);

/* Sends commands to a connected server and reads a reply to each (an error reply is no error here). Each
   reply, and each 64 KiB on their way, has timeout_ms. Errors: UNAVAILABLE, TIMEOUT, IO; the link is closed
   then, which commands were done is not known, and all replies are NULL. */
int redis_link_exchange(struct redis_link *link, struct redis_command *const *commands, int n,
                        struct err *err);

/* Puts "store: redis HOST:PORT: " before the text of err; returns its code. */
int redis_link_err(const struct redis_link *link, struct err *err);
/* The error that an error reply stands for: UNAVAILABLE, INVALID or IO, with the server's name. */
int redis_link_refused(const struct redis_link *link, const redisReply *reply, struct err *err);
/* The first reply that is an error, or not of the type that its command expects (IO; the link is closed). */
int redis_link_check(struct redis_link *link, struct redis_command *const *commands, int n, struct err *err);

/* True for an error reply that begins with the word, also when a script passed it on. */
bool redis_reply_is_error(const redisReply *reply, const char *word);

#endif
