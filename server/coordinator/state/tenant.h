/* Tenants: each run and each sweep is of one, and nobody sees or changes what is of another. Here alone it is
   decided who may. */
#ifndef WEIR_SERVER_COORDINATOR_STATE_TENANT_H
#define WEIR_SERVER_COORDINATOR_STATE_TENANT_H

#include <stdbool.h>

#include "common/certs/names.h"

struct member;
struct run;

/* Who asks: what it submits is of its tenant. */
struct viewer {
  char tenant[CERT_WORD_SIZE];
  bool sees_all; /* also what is of other tenants */
};

extern const struct viewer viewer_of_all;

/* Who asks by this certificate; NULL: there is no TLS, and so no tenants. Operators of the default tenant run
   the cluster: they see all, as does who has the role `all`, and members that are for all tenants. */
struct viewer viewer_of(const struct cert_holder *holder);
/* That tenant itself. */
struct viewer viewer_of_tenant(const char *tenant);

bool viewer_sees(const struct viewer *viewer, const char *tenant);
bool viewer_sees_run(const struct viewer *viewer, const struct run *run);
/* A member that is one tenant's is there for those alone who see that tenant. */
bool viewer_sees_member(const struct viewer *viewer, const struct member *member);
bool viewer_sees_holder(const struct viewer *viewer, const char *uri); /* likewise, of a certificate */
/* Whether it may drain and readmit that member, which is that tenant's, or ("") all tenants'. Errors: DENIED.
 */
int viewer_check_rule(const struct viewer *viewer, const char *member, const char *tenant, struct err *err);

/* What the member's message says to it: nothing of the runs of others. */
const char *viewer_told(const struct viewer *viewer, const struct member *member);

/* The tenant that a record names; the default one for "" and NULL. */
const char *tenant_or_default(const char *tenant);

/* The tenant whose member shows the certificate of this URI; "": of all. */
void tenant_of_member(const char *uri, char tenant[CERT_WORD_SIZE]);

/* Whether a run may have the worker: a worker of one tenant is given that tenant's runs alone. */
bool tenant_shares(const struct run *run, const struct member *worker);

#endif
