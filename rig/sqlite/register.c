/* Linked into SQLite's own test programs, which call it whenever SQLite is initialized (SQLITE_EXTRA_INIT).
**
**   REMAP_SSD_SQLITE_SO     the extension; without it the program is stock
**   REMAP_SSD_RESERVE       reserved bytes of new databases: the extension requests some, so stock gets the same number to be
**                           comparable; "0": neither gets any
**
** Tests shut SQLite down and initialize it again: then the VFS of the system has become the default one, and automatic
** extensions are gone. So the extension's entry point is called each time.
*/
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "sqlite3.h"

struct sqlite3_api_routines;
typedef int entry_point(sqlite3 *, char **, const struct sqlite3_api_routines *);

/* The table of functions is private to SQLite: only functions called when a connection is opened receive it. */
static const struct sqlite3_api_routines *api;

static int see_api(sqlite3 *db, char **message, const struct sqlite3_api_routines *table) {
    (void)db;
    (void)message;
    api = table;
    return SQLITE_OK;
}

static int reserved_bytes;
static sqlite3_vfs *system_vfs;

static int reserve(sqlite3 *db, char **message, const struct sqlite3_api_routines *table) {
    sqlite3_vfs *vfs = 0;
    int bytes = reserved_bytes;
    (void)message;
    (void)table;
    if (sqlite3_file_control(db, "main", SQLITE_FCNTL_VFS_POINTER, &vfs) == SQLITE_OK && vfs == system_vfs)
        sqlite3_file_control(db, "main", SQLITE_FCNTL_RESERVE_BYTES, &bytes);
    return SQLITE_OK;
}

/* A test program that continued without the extension would prove nothing. */
static void give_up(const char *extension, const char *why) {
    fprintf(stderr, "cannot load %s: %s\n", extension, why ? why : "no reason given");
    exit(99);
}

static entry_point *load(const char *extension) {
    sqlite3 *db = 0;
    void *library = dlopen(extension, RTLD_NOW);
    entry_point *entry = library ? (entry_point *)dlsym(library, "sqlite3_extension_init") : 0;
    if (!entry) give_up(extension, dlerror());
    sqlite3_auto_extension((void (*)(void))see_api);
    sqlite3_open(":memory:", &db);
    sqlite3_close(db);
    sqlite3_cancel_auto_extension((void (*)(void))see_api);
    if (!api) give_up(extension, "SQLite has no table of functions");
    return entry;
}

int remap_ssd_register(const char *unused) {
    static entry_point *entry;
    const char *extension = getenv("REMAP_SSD_SQLITE_SO");
    const char *bytes = getenv("REMAP_SSD_RESERVE");
    char *message = 0;
    int result;
    (void)unused;
    reserved_bytes = bytes ? atoi(bytes) : 0;
    if (!extension || !*extension) {
        system_vfs = sqlite3_vfs_find(0);
        return reserved_bytes ? sqlite3_auto_extension((void (*)(void))reserve) : SQLITE_OK;
    }

    if (!entry) entry = load(extension);
    result = entry(0, &message, api);
    /* Tests inject faults into the memory of SQLite's list of automatic extensions, and expect to see the error. */
    if (result == SQLITE_NOMEM) {
        sqlite3_free(message);
        return result;
    }
    if (result != SQLITE_OK && result != SQLITE_OK_LOAD_PERMANENTLY) give_up(extension, message);
    if (strcmp(sqlite3_vfs_find(0)->zName, "remap") != 0) give_up(extension, "its VFS has not become the default one");
    if (!reserved_bytes) sqlite3_reset_auto_extension();
    return SQLITE_OK;
}
