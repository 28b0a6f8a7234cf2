# The virtual machine: booted with a task, listened to. Sourced by `run`.

machine_options=()
network=(-netdev user,id=net,ipv6=off -device virtio-net-pci,netdev=net,romfile=)
if [ "$transport" = vfio-user ]; then
    # The server reads and writes the guest's memory, so it must be a file that both have.
    machine_options=(-object "memory-backend-memfd,id=memory,size=${MEMORY:-1024}M,share=on" -machine memory-backend=memory
        -device "{\"driver\": \"vfio-user-pci\", \"socket\": {\"path\": \"$work/socket\", \"type\": \"unix\"}}")
    network=()
fi

# boot TASK FILE-SYSTEMS: starts the machine; its output arrives on descriptor 6, answers go to 7.
boot() {
    local extra=$work/extra/rig
    mkdir -p "$extra"
    cp "$here"/guest/* "$extra/"
    [ ! -f "$work/record" ] || cp "$work/record" "$extra/"
    printf '%s\n' "$command" > "$extra/command"
    cat > "$extra/settings" <<SETTINGS
TASK=$1
TRANSPORT=$transport
PORT=${address##*:}
NQN=$(sed -n 's/.*"nqn": "\(.*\)".*/\1/p' "$work/disk/service.json")
FILE_SYSTEMS="$2"
ROUNDS=$rounds
SEED=$seed
SETTINGS
    (cd "$work/extra" && find rig | "$scratch/guest/usr/bin/busybox" cpio -o -H newc 2> /dev/null) > "$work/extra.cpio"
    cat "$scratch/initramfs" "$work/extra.cpio" > "$work/initramfs"
    rm -f "$work/to" "$work/from"
    mkfifo "$work/to" "$work/from"
    # iomem=relaxed: nvme-cli looks at the registers of a PCI Express controller. cryptomgr.notests: emulated self-tests of large groups may take
    # longer than the kernel waits for them.
    (become qemu qemu-system-x86_64 -L "$scratch/qemu/usr/share/qemu" -L "$scratch/qemu/usr/share/seabios" \
        -nodefaults -no-user-config -no-reboot -display none -machine q35,usb=off,smbus=off,sata=off,vmport=off \
        -accel "${ACCEL:-tcg,thread=multi}" -cpu max -smp 1 -m "${MEMORY:-1024}" \
        -kernel "$scratch/vmlinuz" -initrd "$work/initramfs" -append "console=ttyS0 quiet panic=-1 mitigations=off nokaslr \
tsc=reliable no_timer_check random.trust_cpu=on iomem=relaxed cryptomgr.notests" \
        -drive "file=$scratch/root.img,if=none,id=root,format=raw,readonly=on,cache=unsafe" \
        -device virtio-blk-pci,drive=root "${network[@]}" "${machine_options[@]}" \
        -serial "file:$work/console" -serial stdio \
        < "$work/to" > "$work/from" 2> "$work/qemu.log" {lock}>&- 6>&- 7>&-) &
    machine=$!
    exec 7> "$work/to" 6< "$work/from"
}

# Waits for the machine's end.
power_off() {
    { [ "${1:-}" != now ] || kill -9 "$machine"; wait "$machine"; } 2> /dev/null || true
    machine=
    exec 7>&- 6<&-
}

# Executes the guest's orders and shows its output until it ends or power is cut.
listen() {
    local left line part= status=
    cut_after= cut_at=
    while [ -z "$status" ]; do
        if [ -n "$cut_at" ] && [ "$(now_ms)" -ge "$cut_at" ]; then
            # Kills the server and the machine at the same moment; output that had left the machine by then was acknowledged.
            kill -9 "$server" "$machine"
            while IFS= read -r line <&6; do
                hear "$part$line"
                part=
            done
            return 0
        fi
        left=$((limit - SECONDS))
        [ $left -gt 0 ] || break
        [ -z "$cut_at" ] || left=0.05
        IFS= read -r -t "$left" line <&6 || {
            # More than 128: no line arrived in time, or only a partial one.
            [ $? -gt 128 ] || break
            part+=$line
            continue
        }
        hear "$part$line"
        part=
    done
    if [ -z "$status" ]; then
        tail -n 15 "$work/console" >&2 || true
        tail -n 5 "$work/qemu.log" >&2 || true
        fail "the virtual machine ended early, or took too long (LIMIT); its console is in $work/console"
    fi
    [ "$status" = 0 ] || fail "the guest found something wrong (seed $seed); its console is in $work/console, the server's \
log in $work/server.log"
}

# A line of the guest's.
hear() {
    case $1 in
        @end\ *) status=${1#@end } ;;
        @*) obey ${1#@} ;;
        "try "* | "ack "*)
            printf '%s\n' "$1" >> "$work/record"
            [ -n "$cut_at" ] || [[ $1 = try* ]] || cut_at=$(($(now_ms) + cut_after))
            ;;
        *) printf '%s\n' "$1" ;;
    esac
}

now_ms() {
    echo $((${EPOCHREALTIME/[.,]/} / 1000))
}
