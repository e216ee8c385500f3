# What a bare guest does with a far SSD that farlane connect makes a block device. Each line of output that a test wants
# is printed when what came before it went well. PORT, OVER and the block device's LIMITS come from the test.
set -e
URL=tcp://10.0.2.2:$PORT
CONNECT="farlane connect $URL --over $OVER --background"
connect() { "$@" >/tmp/connected 2>>/tmp/log || { cat /tmp/log; exit 1; }; }
# As a person is told, or a program.
device() { sed -n 's/.* is \(\/dev\/[a-z0-9]*\) .*/\1/p; s/.*"device":"\([^"]*\)".*/\1/p' /tmp/connected; }
pid() { farlane connect --list --json | sed -n 's/.*"pid":\([0-9]*\).*/\1/p'; }
limit() { cat /sys/class/block/$(basename $DISK)/queue/$1; }
# Writes each block of a file once, slowly enough that something can happen meanwhile.
write() {
    fio --name=$1 --directory=/mnt --rw=randwrite --bs=4k --iodepth=16 --ioengine=libaio --direct=1 --size=8m \
        --rate_iops=350 --verify=crc32c --do_verify=0 --minimal >/tmp/fio 2>&1
}
check() {
    fio --name=$1 --directory=/mnt --rw=randwrite --bs=4k --iodepth=16 --ioengine=libaio --direct=1 --size=8m \
        --verify=crc32c --verify_only=1 --minimal >/tmp/fio 2>&1 || { cat /tmp/fio; exit 1; }
}
# The process that offers an SSD of this machine.
pgrep_device() { for i in $(pidof farlane); do tr '\0' ' ' </proc/$i/cmdline | grep -q 'farlane offer device' && echo $i; done; }
# How often a process has begun to run again.
wakes() { sed -n 's/^voluntary_ctxt_switches:[^0-9]*//p' /proc/$1/status; }

farlane connect --list | grep -q "no block device is connected"
farlane use disconnect 2>/dev/null && exit 1
echo "nothing at first"
BENCH=$(farlane bench $URL --runtime 2s --json 2>/dev/null | sed -n 's/.*"p50":\([0-9]*\).*/\1/p')
connect $CONNECT
DISK=$(device)
[ -b $DISK ] && echo "connected"
farlane observe list | grep -q "connect .*$URL as $DISK" && farlane observe status | grep -q "$URL is $DISK" && echo "listed"
echo "limits $(limit logical_block_size) $(limit max_hw_sectors_kb) $(limit write_cache), $(limit fua)"
[ $(limit discard_max_bytes) -gt 0 ] && [ $(limit write_zeroes_max_bytes) -gt 0 ] && echo "discards are offered"
FIO=$(fio --name=one --filename=$DISK --rw=randread --bs=4k --iodepth=1 --ioengine=libaio --direct=1 --time_based \
    --runtime=2 --percentile_list=50 --output-format=json | sed -n 's/.*"50.000000" : \([0-9]*\).*/\1/p' | head -1)
echo "latency of 4 KiB reads, depth 1: $BENCH ns by bench, $FIO ns by the block device"
farlane observe capture connect --out /tmp/block.pcapng --time 60s >/tmp/captured 2>&1 &
for i in $(seq 100); do farlane observe capture connect --status | grep -q "^capture" && break; sleep 0.1; done
dd if=$DISK of=/dev/null bs=4k count=64 iflag=direct 2>/dev/null
farlane observe capture connect --stop >/dev/null
wait $! || cat /tmp/captured
STATS=$(farlane observe trace stats /tmp/block.pcapng --json)
echo "$STATS" | grep -q '"read":{"count":64,"blocks":64,"bytes":262144,.*"inferred":0,' && echo "captured" ||
    echo "captured only $STATS"
PID=$(pid)
sleep 1
BEFORE=$(wakes $PID)
sleep 4
WAKES=$(($(wakes $PID) - BEFORE))
[ $WAKES -lt 40 ] && echo "idle sleeps" || echo "idle wakes $WAKES times in 4 s"

mkfs.ext4 -q $DISK
mount -t ext4 $DISK /mnt
for i in $(seq 20); do dd if=/dev/urandom of=/mnt/file$i bs=50k count=$i 2>/dev/null; done
(cd /mnt && sha256sum file* >/tmp/sums)
umount /mnt
mount -t ext4 $DISK /mnt
(cd /mnt && sha256sum -c /tmp/sums >/dev/null) && echo "files are as they were written"
fio --name=short --directory=/mnt --rw=randrw --bsrange=4k-256k --iodepth=32 --ioengine=libaio --direct=1 \
    --verify=crc32c --size=8m --minimal >/tmp/fio && rm /mnt/short* && echo "fio verified"
rm /mnt/file1*
fstrim -v /mnt && echo "trimmed"
farlane use disconnect $DISK 2>/tmp/refused && exit 1
grep -q "mounted at /mnt" /tmp/refused && echo "what is mounted stays"

write far &
sleep 2
tell "kill the far end"
await "restarted"
wait $!
check far && echo "fio verified while the far end was killed"

write near &
sleep 2
kill -9 $(pid)
sleep 1
connect $CONNECT
[ "$(device)" = $DISK ] && echo "the same block device"
wait $!
check near && echo "fio verified while farlane was killed"

kill -TERM $(pid)
for i in $(seq 100); do pidof farlane >/dev/null || break; sleep 0.1; done
(dd if=/dev/urandom of=/mnt/later bs=100k count=10 2>/dev/null && sync) &
connect $CONNECT
wait $!
grep -q "it stays" /tmp/log && echo "it stays when farlane ends"
echo 3 >/proc/sys/vm/drop_caches
grep -v file1 /tmp/sums >/tmp/left
(cd /mnt && sha256sum -c /tmp/left >/dev/null) && echo "files are as they were after all that"
umount /mnt
fsck.ext4 -f -n $DISK >/dev/null 2>&1 && echo "fsck clean"

blkdiscard $DISK
[ $(dd if=$DISK bs=1M count=4 iflag=direct 2>/dev/null | tr -d '\0' | wc -c) = 0 ] && echo "discarded"
farlane use disconnect $DISK >/dev/null
[ -b $DISK ] && exit 1
for i in $(seq 100); do pidof farlane >/dev/null || break; sleep 0.1; done
farlane connect --list | grep -q "no block device is connected" && echo "disconnected"

connect $CONNECT --timeout 1s --read-only --json
cat /tmp/connected
DISK=$(device)
[ $(cat /sys/class/block/$(basename $DISK)/ro) = 1 ] && echo "read-only"
dd if=$DISK of=/dev/null bs=4k count=1 iflag=direct 2>/dev/null
tell "take the far end away"
await "away"
dd if=$DISK of=/dev/null bs=4k count=1 iflag=direct 2>/dev/null && exit 1
echo "I/O fails in time"
tell "bring it back"
await "restarted"
for i in $(seq 100); do dd if=$DISK of=/dev/null bs=4k count=1 iflag=direct 2>/dev/null && break; sleep 0.2; done
dd if=$DISK of=/dev/null bs=4k count=1 iflag=direct 2>/dev/null && echo "and succeeds again"
farlane use disconnect --json && echo "disconnected again"

# Another process of this machine offers the SSD, is killed and starts again.
truncate -s 16M /tmp/disk
device_of_this_machine() {
    until farlane offer device --namespace /tmp/disk,block=4096 --vfio-user /run/ssd.sock >/dev/null 2>>/tmp/device; do
        sleep 1
    done
}
device_of_this_machine &
appears /run/ssd.sock
connect farlane connect vfio-user:/run/ssd.sock --over $OVER --background
DISK=$(device)
dd if=/dev/urandom of=/tmp/noise bs=1M count=8 2>/dev/null
dd if=/tmp/noise of=$DISK bs=1M count=4 oflag=direct 2>/dev/null
kill -9 $(pgrep_device)
dd if=/tmp/noise of=$DISK bs=1M skip=4 seek=4 count=4 oflag=direct 2>/dev/null &
WRITING=$!
for i in $(seq 60); do [ -d /proc/$WRITING ] || break; sleep 1; done
[ -d /proc/$WRITING ] && { cat /tmp/log /tmp/device; exit 1; }
wait $WRITING
dd if=$DISK bs=1M count=8 iflag=direct 2>/dev/null | cmp - /tmp/noise && echo "a device of another process is waited for"
farlane use disconnect $DISK >/dev/null
kill -TERM $(pgrep_device)

# Each kind of URL: what is written is read again.
export XDG_CONFIG_HOME=/tmp/keys
NQN=nqn.2026-01.io.farlane:connected
farlane setup key new >/dev/null 2>&1
KEY=$(farlane setup key show --json | sed -n 's/.*"key":"\([^"]*\)".*/\1/p')
farlane export --listen 127.0.0.1:4440 --shm /tmp/far.shm --udp 127.0.0.1:4441 --ram 8MiB >/dev/null 2>/tmp/far &
farlane export --listen 127.0.0.1:4442 --quic 127.0.0.1:4443 --allow $KEY --ram 8MiB >/dev/null 2>/tmp/far.quic &
farlane target --listen 127.0.0.1:4450 --rdma iwarp,127.0.0.1:4451 --nqn $NQN --ram 8MiB >/dev/null 2>/tmp/target &
appears /tmp/far.shm
for url in shm:/tmp/far.shm udp://127.0.0.1:4441 "quic://127.0.0.1:4443?key=$KEY" nvme-tcp://127.0.0.1:4450/$NQN \
    "nvme-rdma://127.0.0.1:4451/$NQN?provider=iwarp"; do
    connect farlane connect "$url" --over $OVER --background
    DISK=$(device)
    dd if=/tmp/noise of=$DISK bs=1M count=2 oflag=direct 2>/dev/null
    dd if=$DISK bs=1M count=2 iflag=direct 2>/dev/null | cmp -n 2097152 - /tmp/noise
    farlane use disconnect $DISK >/dev/null
    echo "connected by ${url%%:*}"
done

if dmesg | grep -E 'BUG|WARNING|hung_task|blocked for more'; then exit 1; fi
echo "the kernel has no complaint"
