/* Linked into SQLite's own test programs: simulates conditions of other processes that use SQLite. Before main():
**
**   REMAP_SSD_TIMER         signals a second, by an interval timer whose handler only counts. System calls that wait end with EINTR;
**                           with ":restart" after the number (SA_RESTART) the kernel restarts those that it can
**   REMAP_SSD_FORKED        a path: the process opens a database of its own there and forks in the middle of a transaction. The
**                           worker, which inherits the connection and never uses it, is the program; the parent waits, commits, and
**                           checks that its database is intact
**
** Child processes of a program do the same. If REMAP_SSD_AROUND=say is set, the program (but not its children) reports on
** standard error, when it ends, the number of signals, and whether it is a worker: a run must prove that they occurred.
*/
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#include "sqlite3.h"

/* The exit code of a parent whose own database is damaged; no test program uses it. */
#define PARENT_FAILED 98

/* testfixture counts the files that SQLite has open, and reports those left at its end. */
extern int sqlite3_open_file_count __attribute__((weak));

static volatile sig_atomic_t signals;

static void count_signal(int number) {
    (void)number;
    signals++;
}

static void give_up(const char *what) {
    fprintf(stderr, "around SQLite: %s\n", what);
    _exit(PARENT_FAILED);
}

static void start_timer(const char *rate) {
    char *end;
    long hertz = strtol(rate, &end, 10);
    struct sigaction action;
    struct itimerval every;
    if (hertz < 1 || hertz > 100000 || (*end && strcmp(end, ":restart") != 0)) give_up("REMAP_SSD_TIMER is HERTZ or HERTZ:restart");

    memset(&action, 0, sizeof action);
    action.sa_handler = count_signal;
    action.sa_flags = *end ? SA_RESTART : 0;
    memset(&every, 0, sizeof every);
    every.it_interval.tv_sec = hertz == 1;
    every.it_interval.tv_usec = hertz == 1 ? 0 : 1000000 / hertz;
    every.it_value = every.it_interval;
    if (sigaction(SIGALRM, &action, 0) != 0 || setitimer(ITIMER_REAL, &every, 0) != 0) give_up("there is no timer");
}

static void run(sqlite3 *db, const char *sql) {
    char *message = 0;
    if (sqlite3_exec(db, sql, 0, 0, &message) != SQLITE_OK) {
        fprintf(stderr, "around SQLite: %s: %s\n", sql, message ? message : sqlite3_errmsg(db));
        _exit(PARENT_FAILED);
    }
}

static void must_be(sqlite3 *db, const char *sql, const char *answer) {
    sqlite3_stmt *statement = 0;
    if (sqlite3_prepare_v2(db, sql, -1, &statement, 0) != SQLITE_OK || sqlite3_step(statement) != SQLITE_ROW
        || strcmp((const char *)sqlite3_column_text(statement, 0), answer) != 0)
        give_up(sql);
    sqlite3_finalize(statement);
}

/* Waits for the worker, whose end is this process's too. */
static void be_the_parent(sqlite3 *db, pid_t worker) {
    struct rlimit none = {0, 0};
    int status;
    while (waitpid(worker, &status, 0) < 0) continue;

    run(db, "INSERT INTO parent VALUES('after'); COMMIT");
    must_be(db, "PRAGMA integrity_check", "ok");
    must_be(db, "SELECT group_concat(said) FROM parent", "before,forked,after");
    if (sqlite3_close(db) != SQLITE_OK) give_up("the parent's database cannot be closed");
    if (!WIFSIGNALED(status)) _exit(WEXITSTATUS(status));
    setrlimit(RLIMIT_CORE, &none);
    signal(WTERMSIG(status), SIG_DFL);
    raise(WTERMSIG(status));
    _exit(PARENT_FAILED);
}

/* Returns in the worker. */
static void fork_with_a_database(const char *path) {
    char name[4096];
    sqlite3 *db = 0;
    pid_t worker, parent = getpid();
    snprintf(name, sizeof name, "%s-%ld", path, (long)parent);
    if (sqlite3_open(name, &db) != SQLITE_OK) give_up(db ? sqlite3_errmsg(db) : "no memory");
    run(db, "PRAGMA journal_mode=WAL; CREATE TABLE parent(said); INSERT INTO parent VALUES('before')");
    run(db, "BEGIN IMMEDIATE; INSERT INTO parent VALUES('forked')");

    fflush(0);
    worker = fork();
    if (worker < 0) give_up("there is no fork");
    if (worker > 0) be_the_parent(db, worker);

    /* A signal to the parent is meant for the program. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(PARENT_FAILED);
    /* The first opening closes inherited files. Files open then are the parent's, and do not count as the worker's. */
    strncat(name, "-worker", sizeof name - strlen(name) - 1);
    if (sqlite3_open(name, &db) != SQLITE_OK || sqlite3_close(db) != SQLITE_OK) give_up("the worker opens nothing");
    /* Programs configure SQLite before they start it. */
    sqlite3_shutdown();
    if (&sqlite3_open_file_count) sqlite3_open_file_count = 0;
}

static void say(void) {
    const char *forked = getenv("REMAP_SSD_FORKED");
    fprintf(stderr, "\naround SQLite: %ld signals%s\n", (long)signals, forked && *forked ? ", a forked worker" : "");
}

__attribute__((constructor)) static void around(void) {
    const char *path = getenv("REMAP_SSD_FORKED");
    const char *rate = getenv("REMAP_SSD_TIMER");
    const char *report = getenv("REMAP_SSD_AROUND");
    if (path && *path) fork_with_a_database(path);
    if (rate && *rate) start_timer(rate);
    if (report && strcmp(report, "say") == 0) {
        unsetenv("REMAP_SSD_AROUND");
        atexit(say);
    }
}
