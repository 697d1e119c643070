/* The command line of weir-server. */
#include "server/options.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "build_id.h"
#include "common/base/log.h"
#include "common/base/memory.h"
#include "common/base/size.h"
#include "common/door/unix_socket.h"
#include "common/http/http.h"
#include "common/manager/environment.h"
#include "common/manager/standard_files.h"
#include "common/rpc/address.h"
#include "common/share/segment.h"
#include "server/help.h"
#include "storage/store.h"

enum {
  EXIT_USAGE = 2,
  THREADS_MAX = 1024,
  WAIT_STORE_MAX_S = 1000000,
  SERVER_GRACE_MAX_S = 86400,
  FOLLOW_LIMIT_MAX_S = 86400,
  LEAVE_LIMIT_MAX_S = 86400
};

/* An option whose value is a whole number from min to max, and where it goes. */
struct number_option {
  const char *name;
  int min, max;
  int *value;
};

static int parse_arguments(int argc, char **argv, struct server_options *options, struct err *err);
static int take_option(int key, const char *value, struct server_options *options, struct err *err);
static int set_role(const char *role, struct server_options *options, struct err *err);
static int set_memory(const char *text, struct server_options *options, struct err *err);
static int set_log_format(const char *name, struct err *err);
static int set_store(const char *url, struct server_options *options, struct err *err);
static int set_number(const struct number_option *option, const char *text, struct err *err);
static int check_options(struct server_options *options, struct err *err);
static int answer(int wants, struct err *err);
static int open_tls(struct server_options *options, struct err *err);
static int default_store(struct server_options *options, struct err *err);
static int port_at(const char *address);

/* What parse_arguments answers besides errors. */
enum { PARSED, WANTS_HELP, WANTS_MAN, WANTS_VERSION };

bool server_options_parse(int argc, char **argv, struct server_options *options, int *status) {
  struct err err = ERR_NONE;
  int wants;
  *options = (struct server_options){.is_coordinator = true,
                                     .is_parameters = true,
                                     .listen = "127.0.0.1:7070",
                                     .wait_store_s = -1,
                                     .announce_fd = -1};
  wants = parse_arguments(argc, argv, options, &err);
  if (!err.code && wants == PARSED && check_options(options, &err) == 0)
    return true;
  if (err.code)
    fprintf(stderr, "weir-server: %s (see weir-server --help)\n", err.text);
  else if (answer(wants, &err))
    fprintf(stderr, "weir-server: %s\n", err.text);
  *status = err.code ? EXIT_USAGE : 0;
  server_options_fini(options);
  return false;
}

static int answer(int wants, struct err *err) {
  const struct page page = {stdout, wants == WANTS_MAN ? PAGE_MAN : PAGE_TEXT, "weir " WEIR_BUILD,
                            WEIR_BUILD_DATE};
  if (wants == WANTS_VERSION)
    puts("weir-server " WEIR_BUILD);
  else
    server_help_print(&page);
  return standard_output_finish(err);
}

void server_options_fini(struct server_options *options) {
  free(options->store);
  options->store = NULL;
  quotas_fini(&options->quotas);
  quota_file_fini(&options->quota_file);
  rpc_tls_close(options->tls);
  options->tls = NULL;
}

static int parse_arguments(int argc, char **argv, struct server_options *options, struct err *err) {
  struct program_line line = {.options = server_program_options, .argc = argc, .argv = argv};
  int key;
  while ((key = program_option_read(&line, err)) > 0) {
    if (key == SERVER_HELP)
      return WANTS_HELP;
    if (key == SERVER_MAN)
      return WANTS_MAN;
    if (key == SERVER_VERSION)
      return WANTS_VERSION;
    if (take_option(key, line.value, options, err))
      break;
  }
  return PARSED;
}

static int take_option(int key, const char *value, struct server_options *options, struct err *err) {
  switch (key) {
  case SERVER_ROLE:
    return set_role(value, options, err);
  case SERVER_LISTEN:
    options->listen = value;
    return 0;
  case SERVER_ADVERTISE:
    options->advertise = value;
    return 0;
  case SERVER_COORDINATOR:
    options->coordinator = value;
    return 0;
  case SERVER_STORE:
    return set_store(value, options, err);
  case SERVER_WAIT_STORE:
    return set_number(&(struct number_option){"--wait-store", 0, WAIT_STORE_MAX_S, &options->wait_store_s},
                      value, err);
  case SERVER_GRACE:
    return set_number(
        &(struct number_option){"--server-grace", 1, SERVER_GRACE_MAX_S, &options->server_grace_s}, value,
        err);
  case SERVER_FOLLOW_LIMIT:
    return set_number(
        &(struct number_option){"--follow-limit", 1, FOLLOW_LIMIT_MAX_S, &options->follow_limit_s}, value,
        err);
  case SERVER_LEAVE_LIMIT:
    return set_number(&(struct number_option){"--leave-limit", 0, LEAVE_LIMIT_MAX_S, &options->leave_limit_s},
                      value, err);
  case SERVER_QUOTA:
    return quotas_add(&options->quotas, value, err) ? err_prefix(err, "--quota") : 0;
  case SERVER_QUOTAS:
    options->quota_file.path = value;
    return 0;
  case SERVER_MEMORY:
    return set_memory(value, options, err);
  case SERVER_TLS:
    options->tls_folder = value;
    return 0;
  case SERVER_HTTP:
    options->http = value;
    return 0;
  case SERVER_HTTP_NAMES:
    options->has_names = true;
    return 0;
  case SERVER_LOG_FORMAT:
    return set_log_format(value, err);
  case SERVER_INSECURE:
    options->wants_insecure = true;
    return 0;
  case SERVER_NO_SHM:
    segment_turn_off();
    return 0;
  case SERVER_THREADS:
    return set_number(&(struct number_option){"--threads", 1, THREADS_MAX, &options->threads}, value, err);
  default:
    return set_number(&(struct number_option){"--announce-fd", 1, 1 << 20, &options->announce_fd}, value,
                      err);
  }
}

static int set_role(const char *role, struct server_options *options, struct err *err) {
  bool is_all = strcmp(role, "all") == 0;
  options->is_coordinator = is_all || strcmp(role, "coordinator") == 0;
  options->is_parameters = is_all || strcmp(role, "parameters") == 0;
  if (!options->is_coordinator && !options->is_parameters)
    return err_set(err, ERR_INVALID, "--role: '%s' is none of coordinator, parameters, all", role);
  return 0;
}

static int set_memory(const char *text, struct server_options *options, struct err *err) {
  return size_parse(text, &options->memory_bytes)
             ? 0
             : err_set(err, ERR_INVALID, "--memory: '%s' is not an amount, as 8GB or 1.5GiB", text);
}

static int set_log_format(const char *name, struct err *err) {
  enum log_format format;
  if (!log_format_find(name, &format))
    return err_set(err, ERR_INVALID, "--log-format: '%s' is neither text nor json", name);
  log_set_format(format);
  return 0;
}

/* The URL is not repeated: what is said goes to logs. */
static int set_store(const char *url, struct server_options *options, struct err *err) {
  if (store_url_has_password(url))
    return err_set(err, ERR_INVALID,
                   "--store: the URL holds a password, and all can read a command line: give the URL in "
                   "WEIR_STORE, or the password in a file that WEIR_STORE_PASSWORD_FILE names");
  free(options->store);
  options->store = mem_strdup(url);
  return 0;
}

static int set_number(const struct number_option *option, const char *text, struct err *err) {
  char *end;
  long value;
  errno = 0;
  value = strtol(text, &end, 10);
  if (errno || end == text || *end || value < option->min || value > option->max)
    return err_set(err, ERR_INVALID, "%s: '%s' is not a number from %d to %d", option->name, text,
                   option->min, option->max);
  *option->value = (int)value;
  return 0;
}

static int check_addresses(const struct server_options *options, struct err *err) {
  const struct rpc_security *security = &options->security;
  if (rpc_address_check(options->listen, err) || rpc_security_check(security, options->listen, err))
    return err_prefix(err, "--listen");
  if (!options->is_coordinator && (rpc_addresses_check(options->coordinator, err) ||
                                   rpc_security_check(security, options->coordinator, err)))
    return err_prefix(err, "--coordinator");
  if (options->advertise &&
      (rpc_address_check(options->advertise, err) || rpc_security_check(security, options->advertise, err)))
    return err_prefix(err, "--advertise");
  if (options->http && http_address_check(security, options->http, err))
    return err_prefix(err, "--http");
  return 0;
}

static int check_quotas(struct server_options *options, struct err *err) {
  bool has_file = options->quota_file.path, has_some = options->quotas.n > 0;
  if (!options->is_coordinator && (has_file || has_some))
    return err_set(err, ERR_INVALID, "--quota%s is for a coordinator", has_file ? "s" : "");
  if (has_file && has_some)
    return err_set(err, ERR_INVALID, "--quota and --quotas exclude each other");
  if (has_file && quota_file_read(&options->quota_file, &options->quotas, err))
    return err_prefix(err, "--quotas");
  return 0;
}

static int check_options(struct server_options *options, struct err *err) {
  bool is_all = options->is_coordinator && options->is_parameters;
  const char *usual_http = getenv("WEIR_HTTP");
  if (environment_check(err) || check_quotas(options, err))
    return err->code;
  if (is_all && options->coordinator)
    return err_set(err, ERR_INVALID, "--coordinator is for --role=parameters");
  if (options->is_coordinator && options->leave_limit_s)
    return err_set(err, ERR_INVALID, "--leave-limit is for --role=parameters");
  if (!options->coordinator)
    options->coordinator = getenv("WEIR_COORDINATOR");
  if (!options->coordinator || !*options->coordinator)
    options->coordinator = "127.0.0.1:7070";
  if (!options->http && usual_http && *usual_http)
    options->http = usual_http;
  if (options->has_names && (!options->is_coordinator || !options->http))
    return err_set(err, ERR_INVALID, "--http-names is for a coordinator with --http");
  if (rpc_security_choose(options->tls_folder, options->wants_insecure, &options->security, err) ||
      check_addresses(options, err))
    return err->code;
  if (options->announce_fd >= 0 && fcntl(options->announce_fd, F_GETFD) < 0)
    return err_set(err, ERR_INVALID, "--announce-fd: %d is not an open descriptor", options->announce_fd);
  if (open_tls(options, err))
    return err->code;
  return options->store ? 0 : default_store(options, err);
}

static int open_tls(struct server_options *options, struct err *err) {
  bool is_all = options->is_coordinator && options->is_parameters;
  enum cert_role role = is_all ? CERT_ALL : options->is_coordinator ? CERT_COORDINATOR : CERT_SERVER;
  if (rpc_tls_open(options->security.folder, &options->tls, err))
    return err->code;
  return rpc_tls_require(options->tls, role, err);
}

static int default_store(struct server_options *options, struct err *err) {
  const char *url = getenv("WEIR_STORE");
  char *here;
  if (url && *url) {
    options->store = mem_strdup(url);
    return 0;
  }
  here = getcwd(NULL, 0);
  if (!here)
    return err_errno(err, errno, "the working directory, for the store");
  options->store = mem_printf("file://%s/weir-store", here);
  free(here);
  return 0;
}

/* Where the ":PORT" of HOST:PORT begins. */
static int port_at(const char *address) {
  const char *colon = strrchr(address, ':');
  return (int)(colon ? colon - address : (long)strlen(address));
}

static bool is_any(const char *address) {
  return strncmp(address, "0.0.0.0:", 8) == 0 || strncmp(address, "[::]:", 5) == 0;
}

char *server_options_address(const struct server_options *options, int port) {
  const char *address = options->advertise ? options->advertise : options->listen;
  char host[256] = "localhost";
  if (unix_socket_is(address))
    return mem_strdup(address);
  if (options->advertise && atoi(address + port_at(address) + 1) != 0)
    return mem_strdup(address);
  if (!is_any(address))
    return mem_printf("%.*s:%d", port_at(address), address, port);
  gethostname(host, sizeof host - 1);
  return mem_printf("%s:%d", host, port);
}

char *server_options_own_address(const struct server_options *options, int port) {
  if (unix_socket_is(options->listen))
    return mem_strdup(options->listen);
  if (is_any(options->listen))
    return mem_printf("%s:%d", options->listen[0] == '[' ? "[::1]" : "127.0.0.1", port);
  return mem_printf("%.*s:%d", port_at(options->listen), options->listen, port);
}
