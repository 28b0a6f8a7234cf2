# Functions shared by the rig's programs. Sourced.

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
project=$(dirname "$here")
scratch=$(readlink -m "${RIG_DIR:-${CARGO_TARGET_DIR:-$project/target}/rig}")

say() {
    printf 'rig: %s\n' "$*" >&2
}

fail() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

# Identifies the version that made the scratch folder, which is rebuilt if this changes.
recipe() {
    cat "$here/setup" "$here/guest/init" | sha256sum
}

# own TREE PROGRAM ARGUMENT...: runs a program of an unpacked tree with the libraries of that tree.
own() {
    (become "$@")
}

# The same, in place of this shell.
become() {
    local tree=$scratch/$1 program=$2 found libraries
    shift 2
    found=$(find "$tree/usr/bin" "$tree/usr/sbin" -name "$program" 2> /dev/null | head -n 1)
    [ -n "$found" ] || fail "there is no $program in $tree"
    libraries=$tree/usr/lib/x86_64-linux-gnu
    export QEMU_MODULE_DIR=$libraries/qemu
    exec "$tree/lib64/ld-linux-x86-64.so.2" --library-path "$libraries:$libraries/pulseaudio" --argv0 "$program" \
        "$found" "$@"
}
