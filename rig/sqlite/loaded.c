// Has a program that loads no extensions use this one, and tells its statistics at the end.
//
//   REMAP_SSD_SQLITE_SO    the extension; without it nothing is loaded
//   REMAP_SSD_STATISTICS   a file to which each connection that is closed adds its statistics, a line of JSON
//
// Linked into the program with --wrap=sqlite3_close.

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>

int __real_sqlite3_close(sqlite3* connection);

// Before main: the first database that the program opens is on the extension's VFS.
__attribute__((constructor)) static void load(void) {
    const char* extension = getenv("REMAP_SSD_SQLITE_SO");
    if (extension == NULL) {
        return;
    }

    sqlite3* connection = NULL;
    char* message = NULL;
    int result = sqlite3_open(":memory:", &connection);
    if (result == SQLITE_OK) {
        sqlite3_db_config(connection, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 1, NULL);
        result = sqlite3_load_extension(connection, extension, "sqlite3_extension_init", &message);
    }
    if (result != SQLITE_OK) {
        fprintf(stderr, "error: %s: %s\n", extension, message != NULL ? message : sqlite3_errstr(result));
        exit(1);
    }
    __real_sqlite3_close(connection);
}

static int write_row(void* file, int columns, char** values, char** names) {
    (void)names;
    if (columns > 0 && values[0] != NULL) {
        fprintf(file, "%s\n", values[0]);
    }
    return 0;
}

int __wrap_sqlite3_close(sqlite3* connection) {
    const char* path = getenv("REMAP_SSD_STATISTICS");
    FILE* file = path != NULL && connection != NULL ? fopen(path, "a") : NULL;
    if (file != NULL) {
        sqlite3_exec(connection, "PRAGMA remap_ssd_statistics", write_row, file, NULL);
        fclose(file);
    }
    return __real_sqlite3_close(connection);
}
