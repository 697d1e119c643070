/* The options of weir-server, and its help. */
#include "server/help.h"

const struct program_option server_program_options[] = {
    {"role", "ROLE", SERVER_ROLE, "coordinator, parameters, or all: both in one process. Default: all."},
    {"listen", "HOST:PORT", SERVER_LISTEN,
     "where to listen; port 0 takes a free one. Default: 127.0.0.1:7070. Every address may also be "
     "unix:/PATH, a socket in "
     "a folder of this user's with mode 0700, which other users of the machine do not reach."},
    {"advertise", "HOST:PORT", SERVER_ADVERTISE,
     "where others reach this process; port 0 is the bound port. Default: the listen address; this host's "
     "name when that is "
     "0.0.0.0 or [::]."},
    {"coordinator", "HOST:PORT", SERVER_COORDINATOR,
     "the coordinator that a parameter server joins, or several separated by commas: the one that leads is "
     "found; not with "
     "--role=all, which joins its own. Default: $WEIR_COORDINATOR, else 127.0.0.1:7070."},
    {"store", "URL", SERVER_STORE,
     "where models, checkpoints and the coordinator's state are kept, the same for all servers of a cluster; "
     "see the stores "
     "below. Default: $WEIR_STORE, else weir-store in the working directory."},
    {"wait-store", "SECONDS", SERVER_WAIT_STORE,
     "try for so long to open a store that does not answer, 0: for ever. A store that goes away later is "
     "always waited for. "
     "Default: give up at once."},
    {"server-grace", "SECONDS", SERVER_GRACE,
     "of a coordinator: how long a run waits for a parameter server that it lost before it is rolled back to "
     "a checkpoint; "
     "three times as long after the coordinator itself was started again. Default: 3."},
    {"follow-limit", "SECONDS", SERVER_FOLLOW_LIMIT,
     "of a coordinator: a worker that joins a run in training and has not caught up with it for so long is "
     "named in the run's "
     "message. Default: 30."},
    {"leave-limit", "SECONDS", SERVER_LEAVE_LIMIT,
     "of a parameter server: on SIGTERM its blocks move to other servers first, for so long at most, and no "
     "step is computed twice; another signal ends the wait, and where no other server can take them there is "
     "none. 0: it stops at once, and its runs go back to their newest checkpoint. Default: 0."},
    {"quota", "TENANT:LIMITS", SERVER_QUOTA,
     "of a coordinator, once for each tenant: what it may have at a time. TENANT is that of its clients' "
     "certificates, or * for each without a --quota of its own. LIMITS are some of runs=N (that are not "
     "over), "
     "executors=N (that compute for them: what is above waits in the queue), memory=SIZE (of servers, for "
     "runs "
     "that are not over), store=SIZE (models and checkpoints), uploads=N (submissions under way), "
     "downloads=N, verifications=N "
     "and data_root=PATH (the folder below the workers' --data-root in which all data of its runs lies; '*' "
     "in it stands for the tenant's name), separated by commas. Default: no limits."},
    {"quotas", "FILE", SERVER_QUOTAS,
     "of a coordinator, in place of --quota: a file with a line TENANT:LIMITS for each tenant, read every "
     "second. "
     "Comments begin with '#'."},
    {"threads", "N", SERVER_THREADS,
     "threads that serve calls, and as many again that sum and update blocks. Default: the cores that the "
     "process "
     "may use, at most "
     "16."},
    {"memory", "SIZE", SERVER_MEMORY,
     "of a parameter server: what runs may take of its memory together, as 8GB or 1.5GiB; a run that does "
     "not fit beside "
     "those that load or train waits in the queue. Default: no bound."},
    {"http", "HOST:PORT", SERVER_HTTP,
     "serve /metrics there, for Prometheus; port 0 takes a free one, which the log names. Beyond this "
     "machine it "
     "needs --tls, and whoever asks a certificate of ca.pem's authorities. Default: $WEIR_HTTP, else no such "
     "port."},
    {"http-names", NULL, SERVER_HTTP_NAMES,
     "of a coordinator with --http: also show each live run, with its name and its tenant's."},
    {"log-format", "FORMAT", SERVER_LOG_FORMAT,
     "text or json: how lines of the log are written, one an event. Default: $WEIR_LOG_FORMAT, else text."},
    {"tls", "DIR", SERVER_TLS,
     "the folder of this process's certificate, as `weir certs` makes it: ca.pem, cert.pem and key.pem, of "
     "the role "
     "coordinator, server (of --role=parameters) or all. Connections are encrypted, and both ends need a "
     "certificate of "
     "ca.pem's authorities. Default: $WEIR_TLS, else plaintext, on this machine alone."},
    {"no-shm", NULL, SERVER_NO_SHM,
     "send blocks through sockets also to workers of this host and user, with which memory is shared "
     "otherwise."},
    {"insecure", NULL, SERVER_INSECURE,
     "let plaintext go beyond this machine: listen there, advertise such an address or connect to one, "
     "without certificates, also to a "
     "store. Everybody who reaches a port may then do everything. Not needed for localhost, 127.0.0.0/8 and "
     "[::1]."},
    {"announce-fd", "FD", SERVER_ANNOUNCE_FD,
     "once serving, write the bound HOST:PORT and a line end to this descriptor and close it: for programs "
     "that start a "
     "server on port 0."},
    {"help", NULL, SERVER_HELP, "print this page."},
    {"man", NULL, SERVER_MAN, "print this page as a man page."},
    {"version", NULL, SERVER_VERSION, "print the version."},
    {0}};

static void environment_print(const struct page *page) {
  page_heading(page, "environment");
  page_item(page, "WEIR_COORDINATOR", "the coordinator, unless --coordinator says otherwise.");
  page_item(page, "WEIR_STORE", "the store, unless --store says otherwise; may hold a password.");
  page_item(page, "WEIR_STORE_PASSWORD_FILE, WEIR_STORE_PASSWORD",
            "the store's password, unless its URL has one.");
  page_item(page, "WEIR_HTTP", "where /metrics is served, unless --http says otherwise.");
  page_item(page, "WEIR_TLS", "the folder of certificates, unless --tls or --insecure says otherwise.");
  page_item(page, "WEIR_INSECURE", "1: as --insecure, where there are no certificates.");
  page_item(page, "WEIR_SHM", "off: as --no-shm.");
  page_item(page, "WEIR_LOG", "the least level that is logged: debug, info, warn, error. Default: info.");
  page_item(page, "WEIR_LOG_FORMAT", "text or json, unless --log-format says otherwise.");
}

static void stores_print(const struct page *page) {
  page_heading(page, "stores");
  page_item(page, "file:///absolute/directory", "made if missing; may be a shared disk.");
  page_item(page, "redis://[USER@]HOST[:PORT][/DB]", "one Redis.");
  page_item(page, "redis+unix:///path/of/socket[?db=N]", "one Redis, by its socket.");
  page_item(page, "redis+sentinel://HOST[:PORT],.../MASTER[/DB]", "the master that Sentinels name.");
  page_item(page, "redis+cluster://HOST[:PORT],...", "a Redis Cluster.");
  page_item(page, "rediss://, rediss+sentinel://, rediss+cluster://",
            "the same over TLS, which a Redis on another machine needs, unless --insecure.");
  page_text(
      page,
      "\n\nOptions after '?', separated by '&': prefix=TEXT of all keys (weir), replicas=N that must have a "
      "write before it "
      "counts (0), timeout_ms=N for an answer (5000); for TLS ca=FILE, cert=FILE, key=FILE, name=NAME that "
      "the "
      "server's certificate must have (its host).\n"
      "\n"
      "A password never goes on a command line, where all can read it: put it into the URL in WEIR_STORE, or "
      "into "
      "a file that WEIR_STORE_PASSWORD_FILE names, or into WEIR_STORE_PASSWORD. Redis must not evict keys "
      "(maxmemory-policy noeviction).");
}

void server_help_print(const struct page *page) {
  page_title(page, "weir-server", "coordinates a Weir cluster, and keeps the weights of its training runs");
  page_usage(page, "weir-server [OPTION]...");
  page_description(
      page,
      "A Weir cluster is one coordinator, any number of parameter servers and any number of workers "
      "(weir-worker). The coordinator takes runs from clients (`weir submit`), gives them members, and tells "
      "the "
      "members who computes what. Parameter servers own the weights, block by block: they sum the workers' "
      "gradients and make each next version. This program is either of the two, or both at once on one "
      "port.\n"
      "\n"
      "A parameter server joins the coordinator, and keeps trying while that is away. Health checking and "
      "reflection are served beside Weir's own services, as any gRPC tool expects.\n"
      "\n"
      "Runs outlive every process: their checkpoints and all that the coordinator knows are in the store. "
      "One "
      "coordinator of a store leads; others may stand by, with the same --store and addresses of their own. "
      "They "
      "answer UNAVAILABLE (and NOT_SERVING when their health is asked for) until the leader has been silent "
      "for 3 "
      "seconds; then one takes over, and the runs go on. Name all of them to members and clients.");
  page_heading(page, "options");
  program_options_print(server_program_options, page);
  stores_print(page);
  environment_print(page);
  page_heading(page, "signals");
  page_item(page, "SIGTERM, SIGINT",
            "stop in order: calls are ended, what is being written to the store is finished. Runs go on when "
            "enough processes "
            "are back. A parameter server with --leave-limit hands its blocks over first.");
  page_heading(page, "exit status");
  page_row(page, "0", 4, "it was stopped");
  page_row(page, "1", 4,
           "it could not listen, also at --http, or use the store, or another coordinator has taken over");
  page_row(page, "2", 4, "wrong usage");
  page_heading(page, "examples");
  page_lines(page, "weir-server --store file:///var/lib/weir\n"
                   "weir-server --role=coordinator --listen 0.0.0.0:7070 --store file:///shared/weir --tls "
                   "certs/coordinator\n"
                   "weir-server --role=parameters --listen 0.0.0.0:7071 --coordinator 10.0.0.5:7070 \\\n"
                   "    --store file:///shared/weir --tls certs/server\n"
                   "WEIR_STORE_PASSWORD_FILE=/run/secrets/redis weir-server --store rediss://redis.example "
                   "--wait-store 60\n");
}
