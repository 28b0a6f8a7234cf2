# Functions shared by the programs of SQLite's tests. Sourced.

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
project=$(dirname "$(dirname "$here")")
export LC_ALL=C
built=$(readlink -m "${SQLITE_SUITE_DIR:-${CARGO_TARGET_DIR:-$project/target}/sqlite-suite}")

say() {
    printf 'sqlite: %s\n' "$*" >&2
}

fail() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

# as ARM COMMAND...: with the VFS (ours) or without (stock), in a separate folder. Output of around.c is in folder.around. With
# $address set, files of the arm "ours" are in the volume of the device served there.
as() {
    local arm=$1 variables=("REMAP_SSD_RESERVE=$reserve" "REMAP_SSD_TIMER=$timer" "REMAP_SSD_FORKED=" REMAP_SSD_AROUND=)
    shift
    if [ -n "$forked" ]; then
        mkdir -p "$PWD.around"
        variables+=("REMAP_SSD_FORKED=$PWD.around/parent.db")
    fi
    [ -z "$timer$forked" ] || variables+=(REMAP_SSD_AROUND=say)
    case $arm in
        stock) env -u REMAP_SSD_SQLITE_SO "${variables[@]}" "$@" ;;
        ours)
            variables+=("REMAP_SSD_SQLITE_SO=$extension" REMAP_SSD_SQLITE_DEFAULT=1)
            if [ -n "${address:-}" ]; then
                variables+=("REMAP_SSD_DEVICE=$address")
            else
                variables+=(REMAP_SSD_FOLDER=1)
            fi
            env "${variables[@]}" "$@"
            ;;
    esac
}

# unexpected FILE DIFFERENCE...: prints those that expected.txt does not have.
unexpected() {
    local file=$1 patterns difference pattern
    shift
    read -ra patterns <<< "$(expected "$file")"
    for difference in "$@"; do
        for pattern in "${patterns[@]}" ''; do
            # shellcheck disable=SC2053
            [[ $difference != $pattern ]] || break
        done
        [ -n "$pattern" ] || echo "$difference"
    done
}

# expected FILE: the patterns of permitted differences there.
expected() {
    awk -F '|' -v file="$1" '!/^#/ && NF >= 3 { name = $1; gsub(/ /, "", name); if (name == file) printf "%s ", $2 }' "$here/expected.txt"
}

# sometimes FILE: true if the permitted differences occur only in some runs.
sometimes() {
    awk -F '|' -v file="$1" '!/^#/ && $3 ~ /^ *sometimes:/ { name = $1; gsub(/ /, "", name); found = found || name == file }
        END { exit !found }' "$here/expected.txt"
}
