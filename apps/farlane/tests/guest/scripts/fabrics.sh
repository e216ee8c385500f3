# What a guest does with a target of NVMe/TCP, in the words of its own tools. Each line of output that a test wants is
# printed when what came before it went well. PORT, NQN and HOST come from the test.
set -e
mkdir -p /etc/nvme
echo $HOST >/etc/nvme/hostnqn
echo ${HOST##*:} >/etc/nvme/hostid
AT="-t tcp -a 10.0.2.2 -s $PORT"
DISK=/dev/nvme0n1
wait_for_disk() { appears $DISK; }
wait_until_gone() { for i in $(seq 200); do [ -e /dev/nvme0 ] || return 0; sleep 0.05; done; echo "nvme0 stays"; exit 1; }
leave() { nvme disconnect -n $NQN >/dev/null; wait_until_gone; }
copy() {
    dd if=/dev/urandom of=/tmp/noise bs=1M count=4 2>/dev/null
    dd if=/tmp/noise of=$DISK bs=1M seek=4 conv=fsync 2>/dev/null
    dd if=$DISK of=/tmp/back bs=1M skip=4 count=4 iflag=direct 2>/dev/null
    cmp /tmp/noise /tmp/back
}

nvme discover $AT | grep -q "subnqn:  $NQN" && echo "discovered"
nvme connect $AT -n $NQN.none 2>/dev/null && exit 1
echo "an unknown subsystem is refused"

nvme connect $AT -n $NQN --nr-io-queues=2 --queue-size=1024
wait_for_disk
nvme list -v | grep -q "$NQN" && echo "listed"
nvme list-subsys | grep -q "traddr=10.0.2.2,trsvcid=$PORT" && echo "subsystem listed"
nvme show-regs /dev/nvme0 -H | grep -E '^(cap|version|cc|csts|nssr|crto) ' && echo "registers shown"
nvme id-ctrl /dev/nvme0 | grep -E '^(sn|mn|cntlid|ioccsz|iorcsz|kas|maxcmd|sgls|subnqn) ' && echo "identified"
nvme id-ns $DISK | grep -E '^nsze' && nvme ns-descs $DISK >/dev/null && nvme list-ns /dev/nvme0 >/dev/null
nvme list-ctrl /dev/nvme0 && echo "namespaces described"
for question in nvm-id-ctrl id-iocs "list-ns --all"; do nvme $question /dev/nvme0 >/dev/null; done
for question in nvm-id-ns cmdset-ind-id-ns get-ns-id resv-report; do nvme $question $DISK >/dev/null; done
echo "questions answered"
nvme supported-log-pages /dev/nvme0 | grep '^LID'
for log in smart-log error-log fw-log effects-log self-test-log sanitize-log changed-ns-list-log resv-notif-log \
    fid-support-effects-log mi-cmd-support-effects-log persistent-event-log \
    "telemetry-log --output-file=/tmp/host" "get-log --log-id=8 --log-len=512"; do
    nvme $log /dev/nvme0 >/tmp/log 2>&1 || { echo "$log fails"; cat /tmp/log; exit 1; }
done
# What is not there is refused, and nothing happens.
nvme phy-rx-eom-log /dev/nvme0 >/tmp/log 2>&1 && exit 1
echo "logs answered"
nvme get-feature /dev/nvme0 -f 7 -H | head -2
nvme get-feature /dev/nvme0 -f 0xf && echo "keep alive is on"
copy && echo "copied and compared"
fio --name=short --filename=$DISK --rw=randrw --bsrange=512-256k --iodepth=64 --ioengine=libaio --direct=1 \
    --verify=crc32c --size=16m --minimal >/tmp/fio && echo "fio verified"
blkdiscard $DISK && echo "discarded"
tell "add a namespace"
appears /dev/nvme0n2 && echo "a namespace has come"
has() { for i in $(seq 200); do [ "$(cat /sys/block/$1/size)" = $2 ] && return; sleep 0.05; done; false; }
tell "make it longer"
has nvme0n2 65536 && [ $(nvme id-ns /dev/nvme0n2 | sed -n 's/^nsze *: *//p') = 0x10000 ] && echo "a namespace is longer"
tell "make it shorter"
has nvme0n2 8192 && echo "a namespace is shorter"
tell "remove it"
for i in $(seq 200); do [ -e /dev/nvme0n2 ] || break; sleep 0.05; done
[ -e /dev/nvme0n2 ] || echo "a namespace has gone"
nvme reset /dev/nvme0
wait_for_disk
copy && echo "controller reset"
leave
echo "disconnected"

nvme connect $AT -n $NQN --hdr-digest --data-digest --nr-io-queues=1
wait_for_disk
copy && echo "digests verified"
fio --name=digests --filename=$DISK --rw=randrw --bsrange=512-256k --iodepth=32 --ioengine=libaio --direct=1 \
    --verify=crc32c --size=8m --minimal >/tmp/fio && echo "fio verified with digests"
leave

nvme connect $AT -n $NQN --disable-sqflow --nr-io-queues=1
wait_for_disk
copy && echo "without flow control"
leave
dmesg | grep -iE 'nvme.*(timeout|error|fail|abort|unable|invalid|mismatch)' | grep -vE 'Connect Invalid|failed to connect queue: 0 ret=16770' && exit 1
echo "nothing in the kernel's log"

# The discovery controller had the first number meanwhile.
nvme connect-all $AT --hdr-digest --data-digest
for i in $(seq 200); do DISK=$(ls /dev/nvme?n1 2>/dev/null) && break; sleep 0.05; done
copy && echo "connected to all"
nvme disconnect-all
for i in $(seq 200); do ls /dev/nvme? >/dev/null 2>&1 || break; sleep 0.05; done
DISK=/dev/nvme0n1

# A thread that submits a command may send it itself. Linux sends without MSG_NOSIGNAL: on a lost connection the thread
# gets SIGPIPE. Linux sends the command again later, but not if the signal has killed the program.
trap "" PIPE

# The target is killed in the middle of this, and comes back.
nvme connect $AT -n $NQN --reconnect-delay=1 --ctrl-loss-tmo=60 --keep-alive-tmo=5 --nr-io-queues=2
wait_for_disk
fio --name=through --filename=$DISK --rw=randwrite --bs=4k --iodepth=64 --ioengine=libaio --direct=1 \
    --verify=crc32c --size=16m --rate=3m --minimal >/tmp/fio &
sleep 1
tell "running"
await "restarted"
wait $! && echo "fio verified through a restart"
cat /sys/class/nvme/nvme0/state
leave

# Two paths to one disk. One is cut in the middle of this, and joined again.
lives() { nvme list-subsys | grep -c " live" || true; }
nvme connect $AT -n $NQN --reconnect-delay=1 --ctrl-loss-tmo=60 --nr-io-queues=2
nvme connect -t tcp -a 10.0.2.2 -s $OTHER -n $NQN --reconnect-delay=1 --ctrl-loss-tmo=60 --nr-io-queues=2
wait_for_disk
[ $(lives) = 2 ] && [ $(ls -d /dev/nvme?n1) = $DISK ] && echo "two paths to one disk"
# The first path of the disk leads nowhere for a while: the kernel hears of it, and takes the other one.
ways() { cat /sys/block/nvme?c?n1/ana_state /sys/class/nvme/nvme?/nvme?c?n1/ana_state 2>/dev/null | sort -u | tr '\n' ' '; }
sees() { for i in $(seq 200); do [ "$(ways)" = "$1 " ] && return; sleep 0.05; done; ways; false; }
nvme ana-log /dev/nvme0 >/dev/null && sees optimized
tell "one way leads nowhere"
sees "inaccessible optimized" && copy && nvme list-subsys $DISK | grep -q inaccessible && echo "one way leads nowhere"
tell "it leads there again"
sees "non-optimized optimized" && copy && echo "one way is longer"
tell "both are alike again"
sees optimized
echo round-robin >/sys/class/nvme-subsystem/nvme-subsys0/iopolicy
dmesg -c >/dev/null
fio --name=paths --filename=$DISK --rw=randwrite --bsrange=4k-64k --iodepth=64 --ioengine=libaio --direct=1 \
    --verify=crc32c --size=32m --rate=5m --minimal >/tmp/fio &
sleep 1
tell "writing by two paths"
await "cut"
for i in $(seq 100); do [ $(lives) = 1 ] && break; sleep 0.05; done
[ $(lives) = 1 ] && tell "a path is away"
await "joined"
for i in $(seq 200); do [ $(lives) = 2 ] && break; sleep 0.05; done
[ $(lives) = 2 ] && tell "a path is back"
wait $! && echo "fio verified through a cut path"
dmesg | grep -iE 'i/o error|failing i/o|no usable path' && exit 1
echo "no program saw an error"
leave

# A discovery controller that stays hears of changes.
nvme discover $AT --persistent >/dev/null
[ "$(cat /sys/class/nvme/nvme0/cntrltype)" = discovery ] && [ "$(cat /sys/class/nvme/nvme0/kato)" = 30 ]
echo "the discovery service is kept"
uevent sh -c '[ -z "$NVME_AEN" ] || echo $NVME_AEN >>/tmp/events' >/dev/null &
sleep 0.5
tell "change what is offered"
for i in $(seq 200); do grep -qs 0x70f002 /tmp/events && break; sleep 0.05; done
grep -qs 0x70f002 /tmp/events
nvme discover --device=nvme0 $AT | grep -q "traddr:  192.0.2.2" && echo "the discovery log has changed"
nvme disconnect -d nvme0
echo "done"
