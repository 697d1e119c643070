/* weir certs: a private authority, certificates of members and clients, and what a folder of them holds. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "client/command.h"
#include "common/base/clock.h"
#include "common/base/memory.h"
#include "common/certs/authority.h"
#include "common/certs/denied.h"
#include "common/certs/folder.h"
#include "common/certs/renewal.h"

static int order_read(const struct args *args, struct cert_order *order, struct err *err);
static int show_authority(const char *file, struct err *err);
static int show_holder(const char *folder, struct err *err);

static int init_run(const struct args *args) {
  const char *folder = args->arguments[0];
  struct err err = ERR_NONE;
  if (authority_make(folder, &err))
    return command_fail(&err);
  printf("%s: an authority, and certificates in %s/", folder, folder);
  for (int role = 0; role < CERT_ROLES; role++)
    printf("%s%s", role == 0 ? "{" : ",", cert_role_name((enum cert_role)role));
  puts("}");
  printf("keep %s/ca-key.pem to yourself: with it anybody can make certificates that this authority's "
         "holders trust\n",
         folder);
  return EXIT_DONE;
}

static int issue_run(const struct args *args) {
  struct err err = ERR_NONE;
  struct cert_order order;
  char uri[CERT_TEXT_SIZE];
  if (order_read(args, &order, &err) ||
      authority_issue(args_text(args, "ca"), &order, args->arguments[0], &err))
    return command_fail(&err);
  cert_holder_uri(&order.holder, uri);
  printf("%s: %s\n", args->arguments[0], uri);
  return EXIT_DONE;
}

static int order_read(const struct args *args, struct cert_order *order, struct err *err) {
  const char *role = args_text(args, "role"), *name = args_text(args, "name");
  const char *tenant = args_text(args, "tenant"), *access = args_text(args, "access");
  struct cert_holder *holder = &order->holder;
  *order = (struct cert_order){.days = (int)args_count(args, "days")};
  if (!args_text(args, "ca") || !role)
    return err_set(err, ERR_INVALID, "certs issue: --ca CA_DIR and --role ROLE are needed");
  if (cert_role_find(role, &holder->role, err))
    return err_prefix(err, "certs issue: --role");
  if (holder->role != CERT_CLIENT && access)
    return err_set(err, ERR_INVALID, "certs issue: --access is for --role client");
  if (holder->role != CERT_CLIENT && holder->role != CERT_WORKER && tenant)
    return err_set(err, ERR_INVALID, "certs issue: --tenant is for --role client and --role worker");
  if (!tenant && holder->role == CERT_CLIENT)
    tenant = CERT_TENANT_DEFAULT;
  if (cert_access_find(access ? access : "submitter", &holder->access, err))
    return err_prefix(err, "certs issue: --access");
  if (cert_word_set(holder->name, name ? name : role, "--name", err) ||
      (tenant && cert_word_set(holder->tenant, tenant, "--tenant", err)))
    return err_prefix(err, "certs issue");
  return 0;
}

static int renew_run(const struct args *args) {
  struct err err = ERR_NONE;
  if (!args_text(args, "ca"))
    err_set(&err, ERR_INVALID, "certs renew: --ca CA_DIR is needed");
  for (int i = 0; i < args->n_arguments && !err.code; i++) {
    struct cert_facts facts;
    char uri[CERT_TEXT_SIZE], date[CERT_DATE_SIZE];
    if (renewal_renew(args_text(args, "ca"), args->arguments[i], (int)args_count(args, "days"), &facts, &err))
      break;
    cert_holder_uri(&facts.holder, uri);
    printf("%s: %s, serial %s, valid until %s\n", args->arguments[i], uri, facts.serial,
           cert_date(facts.ends, date));
  }
  fflush(stdout);
  return err.code ? command_fail(&err) : EXIT_DONE;
}

static int trust_run(const struct args *args) {
  struct err err = ERR_NONE;
  bool is_alone = args_flag(args, "alone"), has_changed;
  if (!args_text(args, "ca"))
    err_set(&err, ERR_INVALID, "certs trust: --ca CA_DIR is needed");
  for (int i = 0; i < args->n_arguments && !err.code; i++)
    if (renewal_trust(args_text(args, "ca"), args->arguments[i], is_alone, &has_changed, &err) == 0)
      printf("%s: trusts %s %s%s\n", args->arguments[i], args_text(args, "ca"),
             is_alone ? "alone" : "as well", has_changed ? "" : ", as it did");
  fflush(stdout);
  return err.code ? command_fail(&err) : EXIT_DONE;
}

static int show_run(const struct args *args) {
  const char *folder = args->arguments[0];
  char *ca = mem_printf("%s/ca.pem", folder), *ca_key = mem_printf("%s/ca-key.pem", folder);
  struct err err = ERR_NONE;
  if (access(ca_key, F_OK) == 0)
    show_authority(ca, &err);
  else
    show_holder(folder, &err);
  free(ca_key);
  free(ca);
  fflush(stdout);
  return err.code ? command_fail(&err) : EXIT_DONE;
}

/* A certificate that ends soon is no error. */
static void warn_of_end(const char *folder, const struct cert_facts *facts) {
  int64_t left_s = facts->ends - clock_unix_ms() / 1000;
  char date[CERT_DATE_SIZE];
  if (left_s > 0 && left_s < CERT_WARN_S)
    fprintf(stderr, "weir: %s/cert.pem ends within %d days, at %s: renew it by `weir certs renew`\n", folder,
            (int)((left_s + 86399) / 86400), cert_date(facts->ends, date));
}

static void print_facts(const struct cert_facts *facts) {
  char begins[CERT_DATE_SIZE], ends[CERT_DATE_SIZE];
  printf("authority    %s\n", facts->ca);
  printf("valid from   %s\n", cert_date(facts->begins, begins));
  printf("valid until  %s\n", cert_date(facts->ends, ends));
  printf("serial       %s\n", facts->serial);
  printf("sha256       %s\n", facts->fingerprint);
}

static int show_authority(const char *file, struct err *err) {
  struct cert_facts facts;
  if (cert_facts_read(file, &facts, err) == 0)
    print_facts(&facts);
  return err->code;
}

/* Shows also what cannot be used, and then why not. */
static int show_holder(const char *folder, struct err *err) {
  struct cert_files files;
  struct cert_facts facts;
  struct cert_denied denied = {0};
  if (cert_files_read(folder, &files, err))
    return err->code;
  if (cert_files_check(&files, folder, &facts, err) == 0)
    cert_denied_read(folder, &denied, err);
  if (facts.holder.name[0]) {
    printf("role         %s\nname         %s\n", cert_role_name(facts.holder.role), facts.holder.name);
    if (*facts.holder.tenant)
      printf("tenant       %s\n", facts.holder.tenant);
    if (facts.holder.role == CERT_CLIENT)
      printf("access       %s\n", cert_access_name(facts.holder.access));
  }
  if (facts.serial[0])
    print_facts(&facts);
  if (denied.count)
    printf("denied       %d\n", denied.count);
  warn_of_end(folder, &facts);
  cert_denied_free(&denied);
  cert_files_free(&files);
  return err->code;
}

static const struct command_def command_certs_init = {
    .name = "init",
    .group = "certs",
    .summary = "make a private authority, and a certificate for each role",
    .arguments = "CA_DIR",
    .min_arguments = 1,
    .max_arguments = 1,
    .description =
        "Makes the folder CA_DIR: ca.pem and ca-key.pem, a private certificate authority that is valid for "
        "ten "
        "years, and below it the folders coordinator, server, worker, all, client and store, each with "
        "ca.pem, "
        "cert.pem and key.pem, which are valid for a year. Copy each folder to the machines where that role "
        "runs, and keep ca-key.pem to yourself. A folder that holds anything is left as it is.",
    .examples = "weir certs init certs\n",
    .run = init_run,
};

/* Options that several of the commands have. */
#define OPTION_CA(more)                                                                                      \
  { .name = "ca", .kind = OPTION_TEXT, .value = "CA_DIR", .help = more }
#define OPTION_DAYS(who)                                                                                     \
  {                                                                                                          \
    .name = "days", .kind = OPTION_COUNT, .value = "N", .fallback = "365", .least = 1,                       \
    .most = CERT_DAYS_MAX, .help = "how long " who " valid from now on, and no longer than the authority."   \
  }

static const struct option_def issue_options[] = {
    OPTION_CA("the authority's folder, of `weir certs init`."),
    {.name = "role",
     .kind = OPTION_TEXT,
     .value = "ROLE",
     .help = "what its holder is: coordinator, server, worker, all (any of these three), client, or store (a "
             "Redis)."},
    {.name = "name",
     .kind = OPTION_TEXT,
     .value = "NAME",
     .help = "the holder's name, of letters, digits, '.', '_' and '-'. Default: the role."},
    {.name = "tenant",
     .kind = OPTION_TEXT,
     .value = "TENANT",
     .help = "of a client: whose runs are its own. Default: default. Of a worker: it is given the runs of "
             "this tenant alone. Default: those of all."},
    {.name = "access",
     .kind = OPTION_TEXT,
     .value = "ACCESS",
     .help = "of a client: viewer, submitter or operator. Default: submitter. Operators of the tenant "
             "default run the cluster, and see all tenants."},
    OPTION_DAYS("it is"),
    {0}};

static const struct command_def command_certs_issue = {
    .name = "issue",
    .group = "certs",
    .summary = "make one more certificate",
    .arguments = "OUT_DIR",
    .min_arguments = 1,
    .max_arguments = 1,
    .description =
        "Makes the folder OUT_DIR with ca.pem, cert.pem and key.pem, signed by the authority of --ca. The "
        "certificate names its holder by one URI, spiffe://weir/ROLE/NAME, "
        "spiffe://weir/worker/TENANT/NAME or spiffe://weir/client/TENANT/ACCESS/NAME. A folder that holds "
        "anything is left as it is: a new "
        "certificate gets a new folder.",
    .options = issue_options,
    .examples = "weir certs issue --ca certs --role worker --name gpu-7 gpu-7\n"
                "weir certs issue --ca certs --role client --name ann --tenant vision --access viewer ann\n",
    .run = issue_run,
};

static const struct command_def command_certs_show = {
    .name = "show",
    .group = "certs",
    .summary = "what a folder's certificate says, and whether it can be used",
    .arguments = "DIR",
    .min_arguments = 1,
    .max_arguments = 1,
    .description =
        "Prints whose certificate it is, who signed it, from when and until when it is valid, its serial "
        "number "
        "and its SHA-256. If it cannot be used, the reason follows, and the exit status is 2. If it "
        "ends within a week, a line on stderr says so. Of an "
        "authority's "
        "folder it shows the authority.",
    .examples = "weir certs show certs/worker\n",
    .run = show_run,
};

static const struct option_def renew_options[] = {
    OPTION_CA("the authority's folder, of `weir certs init`; the DIRs' ca.pem must have it already."),
    OPTION_DAYS("they are"),
    {0}};

static const struct command_def command_certs_renew = {
    .name = "renew",
    .group = "certs",
    .summary = "replace the certificates and keys of folders that are in use",
    .arguments = "DIR...",
    .min_arguments = 1,
    .max_arguments = ARGUMENTS_MAX,
    .description =
        "Gives each DIR a new key, and a new certificate of the same name. Processes that use the folder "
        "take "
        "them while they run. A folder is replaced at once, so that none of them ever finds half of it; what "
        "else is in it, as denied.txt, stays. A copy of a folder on another machine has to be copied anew, "
        "or "
        "renewed there.",
    .options = renew_options,
    .examples = "weir certs renew --ca certs certs/server certs/worker\n",
    .run = renew_run,
};

static const struct option_def trust_options[] = {
    OPTION_CA("a folder with the authority's ca.pem; its key is not needed."),
    {.name = "alone",
     .kind = OPTION_FLAG,
     .help = "trust no other authority any more. Refused where DIR's own certificate is of another one."},
    {0}};

static const struct command_def command_certs_trust = {
    .name = "trust",
    .group = "certs",
    .summary = "let folders that are in use trust another authority",
    .arguments = "DIR...",
    .min_arguments = 1,
    .max_arguments = ARGUMENTS_MAX,
    .description =
        "Adds an authority to ca.pem of each DIR, or with --alone takes all others out. Processes that use "
        "the "
        "folder go by it while they run. A new authority takes three steps, each of which has to be done "
        "everywhere before the next: trust it as well, renew all certificates, trust it alone.",
    .options = trust_options,
    .examples =
        "weir certs init new\n"
        "weir certs trust --ca new certs/coordinator certs/server certs/worker certs/client\n"
        "weir certs renew --ca new certs/coordinator certs/server certs/worker certs/client\n"
        "weir certs trust --ca new --alone certs/coordinator certs/server certs/worker certs/client\n",
    .run = trust_run,
};

static const struct command_def *const subcommands[] = {&command_certs_init,  &command_certs_issue,
                                                        &command_certs_renew, &command_certs_trust,
                                                        &command_certs_show,  NULL};

const struct command_def command_certs = {
    .name = "certs",
    .summary = "make, renew and show certificates of members and clients",
    .arguments = "COMMAND",
    .description =
        "Certificates by which members of a cluster and its clients know each other, signed by a private "
        "authority in a folder of yours. The commands:",
    .subcommands = subcommands,
    .examples = "weir certs init certs\n"
                "weir certs issue --ca certs --role worker --name gpu-7 gpu-7\n"
                "weir certs show gpu-7\n",
};
