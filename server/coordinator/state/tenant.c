/* Who sees and changes whose runs. */
#include "server/coordinator/state/tenant.h"

#include <stdio.h>
#include <string.h>

#include "server/coordinator/state/member.h"
#include "server/coordinator/state/run.h"

const struct viewer viewer_of_all = {.tenant = CERT_TENANT_DEFAULT, .sees_all = true};

struct viewer viewer_of_tenant(const char *tenant) {
  struct viewer viewer = {.sees_all = false};
  snprintf(viewer.tenant, sizeof viewer.tenant, "%s", tenant);
  return viewer;
}

struct viewer viewer_of(const struct cert_holder *holder) {
  struct viewer viewer;
  if (!holder || !*holder->tenant)
    return viewer_of_all;
  viewer = viewer_of_tenant(holder->tenant);
  viewer.sees_all = holder->role == CERT_CLIENT && holder->access == CERT_OPERATOR &&
                    strcmp(holder->tenant, CERT_TENANT_DEFAULT) == 0;
  return viewer;
}

bool viewer_sees(const struct viewer *viewer, const char *tenant) {
  return viewer->sees_all || strcmp(viewer->tenant, tenant) == 0;
}

bool viewer_sees_run(const struct viewer *viewer, const struct run *run) {
  return viewer_sees(viewer, run->tenant);
}

bool viewer_sees_member(const struct viewer *viewer, const struct member *member) {
  return !*member->tenant || viewer_sees(viewer, member->tenant);
}

bool viewer_sees_holder(const struct viewer *viewer, const char *uri) {
  char tenant[CERT_WORD_SIZE];
  tenant_of_member(uri, tenant);
  return !*tenant || viewer_sees(viewer, tenant);
}

int viewer_check_rule(const struct viewer *viewer, const char *member, const char *tenant, struct err *err) {
  if (viewer->sees_all || strcmp(viewer->tenant, tenant) == 0)
    return 0;
  return err_set(err, ERR_DENIED,
                 "%s is for all tenants: an operator of the tenant '%s' is needed, not of '%s'", member,
                 CERT_TENANT_DEFAULT, viewer->tenant);
}

const char *viewer_told(const struct viewer *viewer, const struct member *member) {
  if (!*member->message || viewer_sees(viewer, member->message_of))
    return member->message;
  if (member->role == WEIR__ROLE__SERVER)
    return "it was left out by another tenant's run";
  return member->state == WORKER_QUARANTINED ? "in quarantine: another tenant's run has found it out"
                                             : "it refused another tenant's run";
}

const char *tenant_or_default(const char *tenant) {
  return tenant && *tenant ? tenant : CERT_TENANT_DEFAULT;
}

void tenant_of_member(const char *uri, char tenant[CERT_WORD_SIZE]) {
  struct cert_holder holder;
  struct err err;
  bool is_worker = cert_holder_read(uri, &holder, &err) == 0 && holder.role == CERT_WORKER;
  snprintf(tenant, CERT_WORD_SIZE, "%s", is_worker ? holder.tenant : "");
}

bool tenant_shares(const struct run *run, const struct member *worker) {
  return !*worker->tenant || strcmp(worker->tenant, run->tenant) == 0;
}
