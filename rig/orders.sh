# The server, and the guest's orders to this side. Sourced by `run`.

also=()
[ "$transport" = tcp ] || also=(--vfio-user "$work/socket")
address=127.0.0.1:0
# Always over NVMe/TCP, through which this side reads the device.
serve() {
    : > "$work/serve.log"
    rm -f "$work/socket"
    "$program" serve --image "$work/disk" --listen "$address" --advertise 10.0.2.2 "${also[@]}" > "$work/serve.log" 2>&1 \
        {lock}>&- &
    server=$!
    local tries=0
    until address=$(sed -n 's/.* serving .*address=\([0-9.:]*\).*/\1/p' "$work/serve.log") &&
        [ -n "$address" ] && { [ "$transport" = tcp ] || [ -S "$work/socket" ]; }; do
        kill -0 "$server" 2> /dev/null && [ $((tries += 1)) -lt 1200 ] \
            || fail "the server does not serve: $(tail -n 1 "$work/serve.log")"
        sleep 0.05
    done
}
kill_server() {
    { kill -9 "$server"; wait "$server"; } 2> /dev/null || true
    cat "$work/serve.log" >> "$work/server.log"
}
io() {
    "$program" io --connect "$address" "$@"
}

# Orders of the guest.
piece=16384 # pages: 64 MiB
pieces=16   # so that both halves of the device are 1 GiB
# same FIRST-PAGE FILE: true if the device holds the file's content from that page on.
same() {
    local at
    for at in $(seq 0 $((pieces - 1))); do
        io read --lba $(($1 + at * piece)) --blocks $piece --file -
    done | cmp - "$2"
}
order_prepare_copy() {
    local at
    head -c $((pieces * piece * 4096)) /dev/urandom > "$work/source"
    for at in $(seq 0 $((pieces - 1))); do
        dd if="$work/source" bs=4096 skip=$((at * piece)) count=$piece status=none |
            io write --lba $((at * piece)) --file -
    done
    io trim --lba $((pieces * piece)) --blocks $((pieces * piece))
    io flush
}
order_killed_copy() {
    # A machine cannot outlive its PCI Express devices.
    [ "$transport" != tcp ] || { kill_server && serve; }
    same 0 "$work/source"
    same $((pieces * piece)) "$work/source"
}
# The guest has overwritten pages 1000-1999 of the source with A's and pages 5000-5999 of the copy with B's.
order_diverged() {
    cp "$work/source" "$work/other"
    letters A | dd of="$work/source" bs=4096 seek=1000 conv=notrunc status=none
    letters B | dd of="$work/other" bs=4096 seek=5000 conv=notrunc status=none
    same 0 "$work/source"
    same $((pieces * piece)) "$work/other"
    rm "$work/source" "$work/other"
}
letters() {
    head -c $((1000 * 4096)) /dev/zero | tr '\0' "$1"
}
order_kill() { # MIN-MS MAX-MS
    local after=$(($1 + RANDOM % ($2 - $1)))
    sleep "$(printf '%d.%03d' $((after / 1000)) $((after % 1000)))"
    kill_server
    serve
}

obey() {
    doing=$1
    shift
    "order_${doing//-/_}" "$@" > "$work/answer" 2>&1
    doing=
    echo "done" >&7
}
# Schedules a power cut at a random time after the first acknowledgement.
order_cut() { # MIN-MS MAX-MS
    cut_after=$(($1 + RANDOM % ($2 - $1)))
}
