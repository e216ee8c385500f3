# What a bare guest does with a subsystem that farlane connect makes a block device with two queues, each with a thread.
# Each line of output that the test wants is printed when what came before it went well. PORT and NQN come from the test.
set -e
URL=nvme-tcp://10.0.2.2:$PORT/$NQN
CONNECT="farlane connect $URL --over ublk --queues 2 --background"
connect() { "$@" >/tmp/connected 2>>/tmp/log || { cat /tmp/log; exit 1; }; }
device() { sed -n 's/.* is \(\/dev\/[a-z0-9]*\) .*/\1/p' /tmp/connected; }
pid() { farlane connect --list --json | sed -n 's/.*"pid":\([0-9]*\).*/\1/p'; }
wakes() { cat /proc/$1/task/*/status | sed -n 's/^voluntary_ctxt_switches:[^0-9]*//p' | awk '{sum += $1} END {print sum}'; }
# Both processors of the guest write, so both queues are used.
write() {
    fio --name=$1 --filename=$DISK --rw=randwrite --bs=4k --iodepth=16 --ioengine=libaio --direct=1 --size=8m \
        --numjobs=2 --offset_increment=8m --cpus_allowed=0,1 --cpus_allowed_policy=split --verify=crc32c \
        --randseed=$2 --do_verify=0 --rate_iops=$3 --minimal >/tmp/fio 2>&1 || { cat /tmp/fio; exit 1; }
}
check() {
    fio --name=$1 --filename=$DISK --rw=randwrite --bs=4k --iodepth=16 --ioengine=libaio --direct=1 --size=8m \
        --numjobs=2 --offset_increment=8m --verify=crc32c --randseed=$2 --verify_only=1 --minimal >/tmp/fio 2>&1 ||
        { cat /tmp/fio; exit 1; }
}
queue() { farlane observe status --json | tr '{' '\n' | sed -n "s/.*\"queue\":$1,.*\"operations\":\([0-9]*\).*/\1/p"; }

(ulimit -n 16; farlane connect $URL --over ublk --queues 2 >/tmp/few 2>&1) && exit 1
grep -q "ulimit -n\|open files" /tmp/few && echo "too few descriptors are named"
farlane connect --list | grep -q "no block device is connected"
connect $CONNECT
DISK=$(device)
[ -b $DISK ] && [ $(ls /sys/class/block/$(basename $DISK)/mq | wc -l) = 2 ] && echo "connected with two queues"
PID=$(pid)
grep -q "^queue 1$" /proc/$PID/task/*/comm && echo "the second queue has a thread"
write one 1 100000
check one 1 && echo "fio verified"
[ "$(queue 0)" -gt 100 ] && [ "$(queue 1)" -gt 100 ] && echo "both queues have requests" ||
    { farlane observe status --json; exit 1; }
farlane observe status | grep -q "queue 1: [0-9]* requests" && echo "the status names the queues"
sleep 1
BEFORE=$(wakes $PID)
sleep 4
WAKES=$(($(wakes $PID) - BEFORE))
[ $WAKES -lt 80 ] && echo "idle sleeps" || echo "idle wakes $WAKES times in 4 s"

write two 2 300 &
sleep 2
tell "cut a connection"
await "cut"
wait $!
check two 2 && echo "fio verified while a queue lost its connection"
for i in $(seq 100); do grep -q "is back" /tmp/log && break; sleep 0.1; done
[ $(grep -c "is away" /tmp/log) = 1 ] && grep -q "is back" /tmp/log && echo "the other queue went on" ||
    cat /tmp/log

write three 3 300 &
sleep 2
kill -9 $PID
sleep 1
connect $CONNECT
[ "$(device)" = $DISK ] && echo "the same block device"
wait $!
check three 3 && echo "fio verified while farlane was killed"

mkfs.ext4 -q $DISK
mount -t ext4 $DISK /mnt
kill -TERM $(pid)
for i in $(seq 100); do pidof farlane >/dev/null || break; sleep 0.1; done
(dd if=/dev/urandom of=/mnt/later bs=100k count=10 2>/dev/null && sync) &
connect $CONNECT
wait $!
umount /mnt
fsck.ext4 -f -n $DISK >/dev/null 2>&1 && echo "it stays when farlane ends"

farlane use disconnect $DISK >/dev/null
[ -b $DISK ] && exit 1
for i in $(seq 100); do pidof farlane >/dev/null || break; sleep 0.1; done
pidof farlane >/dev/null && exit 1
farlane connect --list | grep -q "no block device is connected" && echo "disconnected"
if dmesg | grep -E 'BUG|WARNING|hung_task|blocked for more'; then exit 1; fi
echo "the kernel has no complaint"
