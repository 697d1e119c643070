/* The command line of weir-server. */
#include "server/options.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "build_id.h"
#include "common/base/memory.h"
#include "common/base/size.h"
#include "common/rpc/address.h"
#include "storage/store.h"

enum {
  EXIT_USAGE = 2,
  THREADS_MAX = 1024,
  WAIT_STORE_MAX_S = 1000000,
  SERVER_GRACE_MAX_S = 86400,
  FOLLOW_LIMIT_MAX_S = 86400
};

static const char help[] =
    "weir-server - coordinates a Weir cluster, and keeps the weights of its training runs\n"
    "\n"
    "USAGE\n"
    "  weir-server [--role=coordinator|parameters|all] [--listen HOST:PORT]\n"
    "              [--advertise HOST:PORT] [--coordinator HOST:PORT[,HOST:PORT...]]\n"
    "              [--store URL] [--wait-store SECONDS] [--server-grace SECONDS]\n"
    "              [--follow-limit SECONDS] [--threads N] [--memory SIZE] [--announce-fd FD]\n"
    "              [--tls DIR | --insecure]\n"
    "\n"
    "DESCRIPTION\n"
    "  A Weir cluster is one coordinator, any number of parameter servers and any number of workers\n"
    "  (weir-worker). The coordinator takes runs from clients (weir submit), gives them members, and tells\n"
    "  the members who computes what. Parameter servers own the weights, block by block: they sum the\n"
    "  workers' gradients and make each next version. This program is either of the two, or both at once\n"
    "  on one port.\n"
    "\n"
    "  A parameter server joins the coordinator, and keeps trying while that is away. Health checking and\n"
    "  reflection are served beside Weir's own services, as any gRPC tool expects.\n"
    "\n"
    "  Runs outlive every process: their checkpoints and all that the coordinator knows are in the store. "
    "One\n"
    "  coordinator of a store leads; others may stand by, with the same --store and addresses of their own.\n"
    "  They answer UNAVAILABLE (and NOT_SERVING when their health is asked for) until the leader has been\n"
    "  silent for 3 seconds; then one takes over, and the runs go on. Name all of them to members and "
    "clients.\n"
    "\n"
    "OPTIONS\n"
    "  --role ROLE              coordinator, parameters, or all: both in one process (default: all)\n"
    "  --listen HOST:PORT       where to listen; port 0 takes a free one (default: 127.0.0.1:7070)\n"
    "  --advertise HOST:PORT    where others reach this process; port 0 is the bound port\n"
    "                           (default: the listen address; this host's name when that is 0.0.0.0 or "
    "[::])\n"
    "  --coordinator HOST:PORT  the coordinator that a parameter server joins, or several separated by "
    "commas:\n"
    "                           the one that leads is found; not with --role=all, which joins its own\n"
    "                           (default: $WEIR_COORDINATOR, else 127.0.0.1:7070)\n"
    "  --store URL              where models, checkpoints and the coordinator's state are kept, the same "
    "for\n"
    "                           all servers of a cluster; see STORES\n"
    "                           (default: $WEIR_STORE, else weir-store in the working directory)\n"
    "  --wait-store SECONDS     try for so long to open a store that does not answer, 0: for ever (default:\n"
    "                           give up at once). A store that goes away later is always waited for\n"
    "  --server-grace SECONDS   of a coordinator: how long a run waits for a parameter server that it lost\n"
    "                           before it is rolled back to a checkpoint; three times as long after the\n"
    "                           coordinator itself was started again (default: 3)\n"
    "  --follow-limit SECONDS   of a coordinator: a worker that joins a run in training and has not caught "
    "up\n"
    "                           with it for so long is named in the run's message (default: 30)\n"
    "  --threads N              threads that serve calls, and as many again that sum and update blocks\n"
    "                           (default: the number of online cores, at most 4)\n"
    "  --memory SIZE            of a parameter server: what runs may take of its memory together, as 8GB or\n"
    "                           1.5GiB; a run that does not fit beside those that load or train waits in\n"
    "                           the queue (default: no bound)\n"
    "  --tls DIR                the folder of this process's certificate, as `weir certs` makes it: ca.pem,\n"
    "                           cert.pem and key.pem, of the role coordinator, server (of --role=parameters) "
    "or\n"
    "                           all. Connections are encrypted, and both ends need a certificate of "
    "ca.pem's\n"
    "                           authorities (default: $WEIR_TLS, else plaintext, on this machine alone)\n"
    "  --insecure               let plaintext go beyond this machine: listen there, advertise such an "
    "address "
    "or\n"
    "                           connect to one, without certificates, also to a store. Everybody who reaches "
    "a\n"
    "                           port may then do everything. Not needed for localhost, 127.0.0.0/8 and "
    "[::1]\n"
    "  --announce-fd FD         once serving, write the bound HOST:PORT and a line end to this descriptor\n"
    "                           and close it: for programs that start a server on port 0\n"
    "  --help                   this text\n"
    "  --version                the version\n"
    "\n"
    "STORES\n"
    "  file:///absolute/directory                       made if missing; may be a shared disk\n"
    "  redis://[USER@]HOST[:PORT][/DB]                  one Redis\n"
    "  redis+unix:///path/of/socket[?db=N]\n"
    "  redis+sentinel://HOST[:PORT],.../MASTER[/DB]     the master that Sentinels name\n"
    "  redis+cluster://HOST[:PORT],...                  a Redis Cluster\n"
    "  rediss://, rediss+sentinel://, rediss+cluster:// the same over TLS, which a Redis on another machine\n"
    "                                                   needs, unless --insecure\n"
    "  Options after '?', separated by '&': prefix=TEXT of all keys (weir), replicas=N that must have a "
    "write\n"
    "  before it counts (0), timeout_ms=N for an answer (5000); for TLS ca=FILE, cert=FILE, key=FILE,\n"
    "  name=NAME that the server's certificate must have (its host).\n"
    "  A password never goes on a command line, where all can read it: put it into the URL in WEIR_STORE, "
    "or\n"
    "  into a file that WEIR_STORE_PASSWORD_FILE names, or into WEIR_STORE_PASSWORD. Redis must not evict\n"
    "  keys (maxmemory-policy noeviction).\n"
    "\n"
    "ENVIRONMENT\n"
    "  WEIR_COORDINATOR         the coordinator, unless --coordinator says otherwise\n"
    "  WEIR_STORE               the store, unless --store says otherwise; may hold a password\n"
    "  WEIR_STORE_PASSWORD_FILE, WEIR_STORE_PASSWORD\n"
    "                           the store's password, unless its URL has one\n"
    "  WEIR_TLS                 the folder of certificates, unless --tls or --insecure says otherwise\n"
    "  WEIR_INSECURE            1: as --insecure, where there are no certificates\n"
    "  WEIR_LOG                 the least level that is logged: debug, info, warn, error (default: info)\n"
    "\n"
    "SIGNALS\n"
    "  SIGTERM, SIGINT          stop in order: calls are ended, what is being written to the store is\n"
    "                           finished. Runs go on when enough processes are back.\n"
    "\n"
    "EXIT STATUS\n"
    "  0 it was stopped; 1 it could not listen or use the store, or another coordinator has taken over;\n"
    "  2 wrong usage\n"
    "\n"
    "EXAMPLES\n"
    "  weir-server --store file:///var/lib/weir\n"
    "  weir-server --role=coordinator --listen 0.0.0.0:7070 --store file:///shared/weir --tls "
    "certs/coordinator\n"
    "  weir-server --role=parameters --listen 0.0.0.0:7071 --coordinator 10.0.0.5:7070 \\\n"
    "      --store file:///shared/weir --tls certs/server\n"
    "  WEIR_STORE_PASSWORD_FILE=/run/secrets/redis weir-server --store rediss://redis.example --wait-store "
    "60\n";

static const struct option long_options[] = {
    {"role", required_argument, NULL, 'r'},
    {"listen", required_argument, NULL, 'l'},
    {"advertise", required_argument, NULL, 'a'},
    {"coordinator", required_argument, NULL, 'c'},
    {"store", required_argument, NULL, 's'},
    {"wait-store", required_argument, NULL, 'w'},
    {"server-grace", required_argument, NULL, 'g'},
    {"follow-limit", required_argument, NULL, 'o'},
    {"threads", required_argument, NULL, 't'},
    {"memory", required_argument, NULL, 'm'},
    {"announce-fd", required_argument, NULL, 'f'},
    {"tls", required_argument, NULL, 'T'},
    {"insecure", no_argument, NULL, 'i'},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, 'v'},
    {0},
};

/* An option whose value is a whole number from min to max, and where it goes. */
struct number_option {
  const char *name;
  int min, max;
  int *value;
};

static int parse_arguments(int argc, char **argv, struct server_options *options, struct err *err);
static int take_option(int option, struct server_options *options, struct err *err);
static int set_role(const char *role, struct server_options *options, struct err *err);
static int set_store(const char *url, struct server_options *options, struct err *err);
static int set_number(const struct number_option *option, const char *text, struct err *err);
static int check_options(struct server_options *options, struct err *err);
static int open_tls(struct server_options *options, struct err *err);
static int default_store(struct server_options *options, struct err *err);
static int port_at(const char *address);

/* What parse_arguments answers besides errors. */
enum { PARSED, WANTS_HELP, WANTS_VERSION };

bool server_options_parse(int argc, char **argv, struct server_options *options, int *status) {
  struct err err = ERR_NONE;
  int wants;
  *options = (struct server_options){.is_coordinator = true,
                                     .is_parameters = true,
                                     .listen = "127.0.0.1:7070",
                                     .wait_store_s = -1,
                                     .announce_fd = -1};
  wants = parse_arguments(argc, argv, options, &err);
  *status = 0;
  if (err.code == ERR_OK && wants == WANTS_HELP)
    fputs(help, stdout);
  else if (err.code == ERR_OK && wants == WANTS_VERSION)
    puts("weir-server " WEIR_BUILD);
  else if (err.code == ERR_OK && check_options(options, &err) == 0)
    return true;
  if (err.code) {
    fprintf(stderr, "weir-server: %s (see weir-server --help)\n", err.text);
    *status = EXIT_USAGE;
  }
  server_options_fini(options);
  return false;
}

void server_options_fini(struct server_options *options) {
  free(options->store);
  options->store = NULL;
  rpc_tls_close(options->tls);
  options->tls = NULL;
}

static int parse_arguments(int argc, char **argv, struct server_options *options, struct err *err) {
  int option;
  opterr = 0;
  optind = 1;
  while ((option = getopt_long(argc, argv, ":", long_options, NULL)) != -1) {
    if (option == 'h')
      return WANTS_HELP;
    if (option == 'v')
      return WANTS_VERSION;
    if (option == '?')
      return err_set(err, ERR_INVALID, "unknown option '%s'", argv[optind - 1]);
    if (option == ':')
      return err_set(err, ERR_INVALID, "option '%s' needs a value", argv[optind - 1]);
    if (take_option(option, options, err))
      return err->code;
  }
  if (optind < argc)
    return err_set(err, ERR_INVALID, "unexpected argument '%s'", argv[optind]);
  return PARSED;
}

static int take_option(int option, struct server_options *options, struct err *err) {
  switch (option) {
  case 'r':
    return set_role(optarg, options, err);
  case 'l':
    options->listen = optarg;
    return 0;
  case 'a':
    options->advertise = optarg;
    return 0;
  case 'c':
    options->coordinator = optarg;
    return 0;
  case 's':
    return set_store(optarg, options, err);
  case 'w':
    return set_number(&(struct number_option){"--wait-store", 0, WAIT_STORE_MAX_S, &options->wait_store_s},
                      optarg, err);
  case 'g':
    return set_number(
        &(struct number_option){"--server-grace", 1, SERVER_GRACE_MAX_S, &options->server_grace_s}, optarg,
        err);
  case 'o':
    return set_number(
        &(struct number_option){"--follow-limit", 1, FOLLOW_LIMIT_MAX_S, &options->follow_limit_s}, optarg,
        err);
  case 'm':
    return size_parse(optarg, &options->memory_bytes)
               ? 0
               : err_set(err, ERR_INVALID, "--memory: '%s' is not an amount, as 8GB or 1.5GiB", optarg);
  case 'T':
    options->tls_folder = optarg;
    return 0;
  case 'i':
    options->wants_insecure = true;
    return 0;
  case 't':
    return set_number(&(struct number_option){"--threads", 1, THREADS_MAX, &options->threads}, optarg, err);
  default:
    return set_number(&(struct number_option){"--announce-fd", 1, 1 << 20, &options->announce_fd}, optarg,
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
  return 0;
}

static int check_options(struct server_options *options, struct err *err) {
  bool is_all = options->is_coordinator && options->is_parameters;
  if (is_all && options->coordinator)
    return err_set(err, ERR_INVALID, "--coordinator is for --role=parameters");
  if (!options->coordinator)
    options->coordinator = getenv("WEIR_COORDINATOR");
  if (!options->coordinator || !*options->coordinator)
    options->coordinator = "127.0.0.1:7070";
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
  if (options->advertise && atoi(address + port_at(address) + 1) != 0)
    return mem_strdup(address);
  if (!is_any(address))
    return mem_printf("%.*s:%d", port_at(address), address, port);
  gethostname(host, sizeof host - 1);
  return mem_printf("%s:%d", host, port);
}

char *server_options_own_address(const struct server_options *options, int port) {
  if (is_any(options->listen))
    return mem_printf("%s:%d", options->listen[0] == '[' ? "[::1]" : "127.0.0.1", port);
  return mem_printf("%.*s:%d", port_at(options->listen), options->listen, port);
}
