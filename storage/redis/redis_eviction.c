/* Whether a server removes keys when its memory is full. */
#include <stdlib.h>
#include <string.h>

#include "storage/redis/redis_link.h"

enum { INFO_BYTES_MAX = 64 * 1024 };

/* The value of the line "NAME:VALUE"; NULL: there is none. */
static const char *find_value(const char *info, const char *name) {
  size_t length = strlen(name);
  for (const char *line = info; line; line = strchr(line, '\n')) {
    line += *line == '\n';
    if (strncmp(line, name, length) == 0 && line[length] == ':')
      return line + length + 1;
  }
  return NULL;
}

/* The policy; NULL: keys of ours stay, as they never expire. */
static const char *find_evicting_policy(const char *info) {
  const char *limit = find_value(info, "maxmemory"), *policy = find_value(info, "maxmemory_policy");
  bool has_limit = limit && strtoull(limit, NULL, 10) > 0;
  return has_limit && policy && strncmp(policy, "allkeys-", 8) == 0 ? policy : NULL;
}

int redis_link_check_eviction(struct redis_link *link, struct err *err) {
  struct redis_command info = {.reply_bytes_max = INFO_BYTES_MAX}, *list = &info;
  const char *text, *policy;
  redis_command_add_text(&info, "INFO");
  redis_command_add_text(&info, "memory");
  if (redis_link_exchange(link, &list, 1, err))
    return err->code;
  text = redis_reply_text(info.reply);
  policy = text ? find_evicting_policy(text) : NULL;
  if (policy) {
    err_set(
        err, ERR_UNAVAILABLE,
        "removes keys when its memory is full (maxmemory-policy %.*s), and so would lose checkpoints: set "
        "maxmemory-policy noeviction",
        (int)strspn(policy, "abcdefghijklmnopqrstuvwxyz-"), policy);
    redis_link_err(link, err);
  }
  redis_commands_fini(&info, 1);
  return err->code;
}
