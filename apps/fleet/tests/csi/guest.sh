# A machine with a fleet of its own: controller, agent, target and driver are programs, and volumes are
# block devices of the kernel's NVMe/TCP initiator. csi-sanity tries the driver, of which $FORM and $KILLS
# are set: with kills, the fleet's programs die every few seconds meanwhile.
set -e
mkdir -p /newroot
mount -t ext4 /dev/nvme0n1 /newroot
mount -t proc proc /newroot/proc
mount -t sysfs sys /newroot/sys
mount -t devtmpfs dev /newroot/dev
mount -t tmpfs run /newroot/run
mount -t tmpfs tmp /newroot/tmp
# Room for all volumes and snapshots, which have holes only.
mount -t tmpfs -o size=16g srv /newroot/srv
mkdir -p /newroot/dev/shm
cp /fleet/* /newroot/usr/local/bin/
within() { chroot /newroot /usr/bin/env -i PATH=/usr/local/bin:/usr/sbin:/usr/bin HOME=/root "$@"; }
fleet() { within farlane-fleet "$@" --controllers unix:/run/fleet.sock --timeout 120s; }
fail() {
    echo "FAILED: $*"
    grep " WARN \|code=[^IAN]" /newroot/var/log/csi.log | tail -n 40
    tail -n 40 /newroot/var/log/up.log /newroot/var/log/csi.log
    tail -n 20 /newroot/var/lib/fleet/agent/target.log
    fleet get volume || true
    fleet get attachment || true
    dmesg | tail -n 20
    exit 1
}
start_up() {
    within farlane-fleet up --folder /var/lib/fleet --pool fast=/srv/fast,size=20GiB --listen 127.0.0.1:4420 \
        --control /run/fleet.sock --devices kernel >>/newroot/var/log/up.log 2>&1 &
}
start_up
for i in $(seq 300); do
    fleet get pool fast >/dev/null 2>&1 && break
    sleep 0.2
done
fleet get pool fast || fail "there is no fleet"
within farlane-fleet csi all --socket /run/csi.sock --node here --controllers unix:/run/fleet.sock --timeout 60s \
    >/newroot/var/log/csi.log 2>&1 &
for i in $(seq 100); do [ -S /newroot/run/csi.sock ] && break; sleep 0.2; done

# By hand first: what follows says little about a driver that does nothing.
fleet volume create byhand --size 64MiB || fail "no volume"
fleet attach byhand --node here || fail "no attachment"
kernels() { cat /sys/class/nvme/*/transport 2>/dev/null | grep -c tcp || true; }
# Linux gives up a controller that goes away while it connects after a minute only.
for i in $(seq 200); do [ -b /dev/nvme1n1 ] && break; sleep 0.2; done
[ -b /dev/nvme1n1 ] || fail "the kernel has no device"
echo "the kernel has the volume"
fleet detach byhand-here && fleet volume delete byhand || fail "the volume stays"
for i in $(seq 100); do [ "$(kernels)" = 0 ] && break; sleep 0.2; done
[ "$(kernels)" = 0 ] || fail "the device stays"

# The processes whose command line has these words.
pids_of() {
    for one in /proc/[0-9]*; do
        tr '\0' ' ' 2>/dev/null <"$one/cmdline" | grep -q -- "$1" && echo "${one#/proc/}"
    done
    true
}
kill_parts() {
    while :; do
        sleep 6
        kill -9 $(pids_of "farlane-fleet up ") && echo "killed controller and agent"
        start_up
        sleep 6
        kill -9 $(pids_of "farlane target ") && echo "killed the target"
    done
}
if [ "$KILLS" = 1 ]; then
    kill_parts >/tmp/kills &
    killer=$!
fi
status=0
within csi-sanity --csi.endpoint=unix:///run/csi.sock --csi.mountdir=/tmp/mount --csi.stagingdir=/tmp/staging \
    --csi.testvolumeaccesstype="$FORM" --csi.testvolumesize=67108864 --csi.testvolumeexpandsize=134217728 \
    --ginkgo.no-color >/tmp/sanity 2>&1 || status=$?
if [ "$KILLS" = 1 ]; then
    kill $killer
    sort /tmp/kills | uniq -c
    [ -n "$(pids_of "farlane-fleet up ")" ] || start_up
fi
[ $status = 0 ] || { grep -B 3 -A 12 "\[FAIL\]\|Summarizing" /tmp/sanity | head -n 150; }
grep " Passed | " /tmp/sanity
[ $status = 0 ] || fail "csi-sanity"
for kind in volume attachment; do
    for i in $(seq 100); do
        left=$(fleet get $kind --json | tr -d ' \n')
        [ "$left" = '{"items":[]}' ] && break
        sleep 0.2
    done
    [ "$left" = '{"items":[]}' ] || fail "a $kind is left: $left"
done
for i in $(seq 100); do [ "$(kernels)" = 0 ] && break; sleep 0.2; done
[ "$(kernels)" = 0 ] || fail "a device of the kernel stays"
! mount | grep -q /newroot/tmp/ || fail "something is mounted: $(mount)"
dmesg | grep -q -i "I/O error\|corrupt" && fail "the kernel has complaints"
kill -9 $(pids_of farlane-fleet) || true
kill -9 $(pids_of "farlane target ") || true
sleep 0.5
echo "nothing is left"
