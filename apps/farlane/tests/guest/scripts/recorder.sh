# The registers of a recorder, as a driver in Linux uses them: a PCI function without a driver of its
# own, through /dev/mem.
fail() { echo "FAILED: $*"; dmesg | tail -20; exit 1; }

device=
for found in /sys/bus/pci/devices/*; do
    [ "$(cat $found/vendor):$(cat $found/device)" = 0xfa1a:0x0020 ] && device=$found
done
[ -n "$device" ] || fail "no recorder among $(ls /sys/bus/pci/devices)"
echo "class $(cat $device/class)"
echo 1 > $device/enable
base=$(head -1 $device/resource | cut -d' ' -f1)
at() { printf '0x%x' $((base + $1)); }
get() { devmem "$(at $1)" ${2:-32} || fail "reading $1"; }
put() { devmem "$(at $1)" 32 $2 || fail "writing $1"; }
until_state() {
    for _ in $(seq 200); do
        [ "$(get 0x104)" = "$(printf '0x%08X' $1)" ] && return
        sleep 0.05
    done
    fail "state $(get 0x104) instead of $1"
}

[ "$(get 0x0)" = 0x42524C46 ] || fail "identity $(get 0x0)"
echo "version $(get 0x4), capabilities $(get 0x8)"
until_state 0
put 0x100 1
until_state 2
for _ in $(seq 200); do
    [ $(($(get 0x128 64))) -gt 1000000 ] && break
    sleep 0.05
done
echo "chunks of $(($(get 0x18))) B, $(($(get 0x1c))) of them"
put 0x100 2
until_state 4
echo "in $(($(get 0x120 64))) stored $(($(get 0x128 64))) lost $(($(get 0x130 64)))"
