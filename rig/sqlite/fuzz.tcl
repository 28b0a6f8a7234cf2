# SQLite's collection of damaged databases: each is put into a file, read, checked, changed with a rollback journal and with a
# log, and the results are printed. Run by testfixture; the arguments are N, which takes one database in N, and files of the
# collection (fuzzdata*.db).

set nth [lindex $argv 0]

# SQLite reads beyond a damaged page of it: it finds uninitialized memory there, which differs between two runs of
# one program.
set left_out {fuzzdata3.db 239}

proc try {sql} {
    set code [catch {db eval $sql} answer]
    # A long answer is represented by its length and checksum.
    if {[string length $answer] > 60} { set answer "[string length $answer] [md5 $answer]" }
    puts "  $code [string map {\n " "} $answer]"
}

proc content {path} {
    if {![file exists $path]} { return "" }
    set file [open $path rb]
    set bytes [read $file]
    close $file
    return $bytes
}

foreach collection [lrange $argv 1 end] {
    sqlite3 all $collection -readonly 1
    set ids [all eval {SELECT dbid FROM db WHERE dbid % $nth = 0 ORDER BY dbid}]
    foreach id $ids {
        if {[list [file tail $collection] $id] eq $left_out} { continue }

        foreach path [glob -nocomplain test.db*] { file delete $path }
        set file [open test.db wb]
        puts -nonewline $file [all onecolumn {SELECT dbcontent FROM db WHERE dbid = $id}]
        close $file

        puts "[file tail $collection] $id"
        if {[catch {sqlite3 db test.db} answer]} { puts "  not opened: $answer"; continue }
        # A damaged schema may make a statement run forever.
        set ::steps 0
        db progress 100000 {expr {[incr ::steps] > 50}}
        foreach sql {
            {PRAGMA writable_schema = ON}
            {PRAGMA integrity_check(20)}
            {SELECT count(*), sum(length(sql)) FROM sqlite_schema}
            {CREATE TABLE remap_ssd(a INTEGER PRIMARY KEY, b)}
            {BEGIN; INSERT INTO remap_ssd VALUES(1, zeroblob(9000)); UPDATE remap_ssd SET b = zeroblob(20000); ROLLBACK}
            {INSERT INTO remap_ssd VALUES(2, zeroblob(12000))}
            {PRAGMA journal_mode = WAL}
            {INSERT INTO remap_ssd VALUES(3, zeroblob(30000))}
            {DELETE FROM remap_ssd WHERE a = 2}
            {PRAGMA wal_checkpoint(TRUNCATE)}
            {PRAGMA journal_mode = PERSIST}
            {VACUUM}
            {PRAGMA integrity_check(20)}
        } {
            set ::steps 0
            try $sql
            catch {db eval ROLLBACK}
        }
        catch {db close}
        puts "  [md5 [content test.db]]"
    }
    all close
}
