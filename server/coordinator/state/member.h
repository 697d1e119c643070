/* Members of the cluster: servers and workers. */
#ifndef WEIR_SERVER_COORDINATOR_STATE_MEMBER_H
#define WEIR_SERVER_COORDINATOR_STATE_MEMBER_H

#include "cluster.pb-c.h"
#include "common/agree/labels.h"
#include "common/certs/names.h"
#include "server/coordinator/state/loaded.h"

struct coordinator;
struct run;
struct seat;

enum { SEATS_MAX = 4 }; /* runs that a worker computes at a time, at most */

/* Of a worker beside its seats. REFUSED: idle, and people are told what it refused. */
enum worker_state { WORKER_IDLE, WORKER_REFUSED, WORKER_DRAINING, WORKER_QUARANTINED };

/* A server or a worker. */
struct member {
  uint64_t key; /* the shell's */
  Weir__Role role;
  char *id;        /* "server-1", "worker-1" */
  uint32_t number; /* N of its id */
  char *host, *address, *device, *fingerprint;
  char *holder;                /* the URI of its certificate; empty without TLS */
  char tenant[CERT_WORD_SIZE]; /* workers: whose runs alone it is given; empty: those of all */
  char *shm_host;              /* workers: equal for those that can share memory; empty: unknown */
  char *share_host;     /* equal for those that read each other's blocks in memory; empty: with nobody */
  struct labels labels; /* workers */
  uint32_t pid, executors;
  uint64_t joined; /* grows from member to member */
  uint64_t joined_ms, heard_ms;
  char *message; /* why it was refused or is in quarantine; servers: why runs go on without it; else empty */
  char message_of[CERT_WORD_SIZE]; /* the tenant whose run it is about */
  uint64_t left_out_ms;            /* servers: since when, if there is a message */
  bool is_cut_off; /* servers: left out because workers did not reach it; after a while runs that load may
                      have it */

  uint64_t memory_bytes; /* servers: what runs may take of its memory; 0: no bound */
  bool is_foreign;       /* workers: another program than weir-worker computes */
  bool confines;         /* workers: it opens a run's files below its tenant's data root alone */
  uint32_t compressors;  /* that it knows, of those that we know (compressor_set) */
  bool is_draining;      /* servers: it is given no more blocks, and those that it has move to others */
  bool asks_to_leave;    /* servers: it has asked for that at asked_ms, and was not answered */
  uint64_t asked_ms;

  enum worker_state state;       /* workers: what follows */
  struct seat *seats[SEATS_MAX]; /* the first one's run has the worker as its own */
  int n_seats;
  struct loaded loaded;
  uint32_t refusals;             /* of runs, so far */
  struct loaded crowded;         /* runs for which it had not the memory beside others */
  struct run *reserved_for;      /* the run that it is about to be given, as its own */
  struct run *beside[SEATS_MAX]; /* others that it is about to be given */
  int n_beside;
  uint64_t dealt_ms; /* when its executors were dealt to its seats */
  bool is_deal_due;  /* its seats have changed since */
  uint32_t sought;   /* by the newest settling: how many different requirements it meets */
};

/* The one place where a worker's state changes. It checks the change and logs it. */
void coordinator_worker_set_state(struct member *worker, enum worker_state state);
/* What people are told: that of its first seat, where it has any. */
const char *coordinator_worker_state_name(const struct member *worker);
/* It is not draining, and not in quarantine. */
bool coordinator_is_usable(const struct member *worker);
/* What people are told of it, because of a run of that tenant. Takes message. */
void coordinator_member_set_message(struct member *member, char *message, const char *tenant);
void coordinator_member_free(struct member *member);

/* N of "server-N" or "worker-N"; 0 if it is no id of ours. */
uint32_t coordinator_id_number(const char *id, const char *prefix);
/* An id's number was used: fresh ids are above. */
void coordinator_id_seen(struct coordinator *coordinator, const char *id);
/* The same of the highest numbers. Ones that are absurd are ignored. */
void coordinator_ids_seen(struct coordinator *coordinator, uint32_t servers, uint32_t workers);

/* True of a member that may be given runs with any train.compression. */
bool member_knows_all_compressors(const struct member *member);

#endif
