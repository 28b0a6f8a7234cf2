// Makes a program that loads no extensions use this one, with additional settings, and reports its statistics at the end.
//
//   REMAP_SSD_SQLITE_SO    the extension; without it nothing is loaded
//   REMAP_SSD_PRAGMAS      statements to execute after each `PRAGMA synchronous` of the program's own
//   REMAP_SSD_WRITEBACK    with any value: dirty pages of the program's files are written back after each statement, not flushed
//   REMAP_SSD_STATISTICS   a file to which each connection that is closed adds its statistics, a line of JSON
//
// Linked into the program with --wrap=sqlite3_close, --wrap=sqlite3_exec and --wrap=sqlite3_step.

#define _GNU_SOURCE
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int __real_sqlite3_close(sqlite3* connection);
int __real_sqlite3_step(sqlite3_stmt* statement);
int __real_sqlite3_exec(sqlite3* connection, const char* text, sqlite3_callback row, void* context, char** message);

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

int __wrap_sqlite3_step(sqlite3_stmt* statement) {
    int result = __real_sqlite3_step(statement);
    if (result == SQLITE_DONE && getenv("REMAP_SSD_WRITEBACK") != NULL) {
        // The database and its journal are among the first files; descriptors that are not files are skipped.
        for (int file = 3; file < 32; file++) {
            sync_file_range(file, 0, 0, SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
        }
    }
    return result;
}

int __wrap_sqlite3_exec(sqlite3* connection, const char* text, sqlite3_callback row, void* context, char** message) {
    static const char own[] = "PRAGMA synchronous";
    const char* pragmas = getenv("REMAP_SSD_PRAGMAS");
    int result = __real_sqlite3_exec(connection, text, row, context, message);
    if (result != SQLITE_OK || pragmas == NULL || strncmp(text, own, strlen(own)) != 0) {
        return result;
    }
    return __real_sqlite3_exec(connection, pragmas, NULL, NULL, message);
}
