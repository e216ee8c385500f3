# RDMA devices of the kernel, driven by our program through libibverbs. Each line of output that a test wants is printed when
# what came before it went well. LINK, MTU, HERE, SERVED, MEASURED and HOST come from the test.
set -e
mkdir -p /etc/nvme
echo $HOST >/etc/nvme/hostnqn
echo ${HOST##*:} >/etc/nvme/hostid
ip link set eth0 mtu $MTU
if farlane target --nqn nqn.2026-01.io.farlane:none --ram 1MiB --rdma verbs,$HERE:4421 --insecure 2>/tmp/said; then exit 1; fi
grep -q "no RDMA device is at $HERE\|rdma link" /tmp/said && echo "no device is said to be missing"
rdma link add link0 type $LINK netdev eth0
dd if=/dev/urandom of=/tmp/noise bs=1M count=4 2>/dev/null
run() { farlane "$@" >/tmp/out 2>/tmp/said || { echo "farlane $*"; cat /tmp/out /tmp/said; exit 1; }; }
# Finds, identifies and uses a subsystem: the target's address, the subsystem's name.
use() {
    run discover "nvme-rdma://$1?provider=verbs"
    grep -q $2 /tmp/out
    url="nvme-rdma://$1/$2?provider=verbs&queues=2"
    run identify $url
    run ping $url --count 20
    run write $url --input /tmp/noise
    run read $url --length 4194304 --output /tmp/back
    cmp /tmp/noise /tmp/back
    for size in 512 4k 128k; do
        run bench $url --rw randrw --bs $size --iodepth 64 --runtime 500ms --verify
    done
}

# The kernel's own target.
mkdir -p /sys/kernel/config
mount -t configfs none /sys/kernel/config
cd /sys/kernel/config/nvmet
kernel=nqn.2014-08.org.example:kernel
mkdir subsystems/$kernel
echo 1 > subsystems/$kernel/attr_allow_any_host
mkdir subsystems/$kernel/namespaces/1
echo -n /dev/ram0 > subsystems/$kernel/namespaces/1/device_path
echo 1 > subsystems/$kernel/namespaces/1/enable
mkdir ports/1
echo rdma > ports/1/addr_trtype
echo ipv4 > ports/1/addr_adrfam
echo $HERE > ports/1/addr_traddr
echo 4420 > ports/1/addr_trsvcid
ln -s /sys/kernel/config/nvmet/subsystems/$kernel ports/1/subsystems/$kernel
cd /
use $HERE:4420 $kernel
echo "the kernel's target was used"

# Reads of 4 KiB a second: our host and the kernel's in turn, with the same target over the same device.
nvme connect -t rdma -a $HERE -s 4420 -n $kernel --nr-io-queues=1 --queue-size=128
appears /dev/nvme0n1
for depth in 1 32; do
    for round in 1 2 3 4 5; do
        run bench "nvme-rdma://$HERE:4420/$kernel?provider=verbs&queues=1" --rw randread --bs 4k --iodepth $depth \
            --runtime 500ms --json
        ours=$(tr -d ' \n' </tmp/out | sed 's/.*"iops":\([0-9.]*\).*/\1/')
        theirs=$(fio --name=beside --filename=/dev/nvme0n1 --rw=randread --bs=4k --iodepth=$depth --ioengine=libaio \
            --direct=1 --time_based --runtime=500ms --minimal | cut -d';' -f8)
        echo "beside: $depth $ours $theirs"
    done
done
nvme disconnect -n $kernel >/dev/null
for i in $(seq 100); do [ -e /dev/nvme0 ] || break; sleep 0.1; done

# Our target.
ours=nqn.2026-01.io.farlane:verbs
offer() {
    farlane target --json --nqn $ours --ram 64MiB --rdma verbs,$HERE:4421 --insecure >/tmp/offered 2>/tmp/offer &
    target=$!
    for i in $(seq 100); do [ -s /tmp/offered ] && return 0; sleep 0.1; done
    cat /tmp/offer; exit 1
}
offer
grep -q "NVMe/RDMA by verbs" /tmp/offered
use $HERE:4421 $ours
echo "our target was used by our host"
nvme discover -t rdma -a $HERE -s 4421 >/tmp/found
grep -q "subnqn:  $ours" /tmp/found && grep -q "trtype:  rdma" /tmp/found && echo "the kernel discovers our target"
nvme connect -t rdma -a $HERE -s 4421 -n $ours --nr-io-queues=2 --queue-size=128 --reconnect-delay=1 --keep-alive-tmo=5
appears /dev/nvme0n1
verify() {
    fio --name=$1 --filename=/dev/nvme0n1 --rw=randrw --bsrange=512-256k --iodepth=64 --ioengine=libaio --direct=1 \
        --verify=crc32c --size=16m --minimal >/tmp/fio
}
verify kernel && echo "the kernel verified our target"
nvme reset /dev/nvme0
appears /dev/nvme0n1
verify reset && echo "the kernel reset our controller"
nvme disconnect -n $ours >/dev/null
for i in $(seq 100); do [ -e /dev/nvme0 ] || break; sleep 0.1; done

# The machine's program, which carries RDMA itself, uses our target, and its target is used.
tell "offering"
await "used"
use $SERVED nqn.2026-01.io.farlane:machine
echo "the machine's target was used"

# A target that dies ends the host's connection, and a new one is found.
farlane bench "nvme-rdma://$HERE:4421/$ours?provider=verbs&ctrl-loss-tmo=30" --rw randread --iodepth 16 --runtime 6s \
    >/tmp/out 2>/tmp/said &
bench=$!
sleep 2
kill -9 $target
sleep 1
rm /tmp/offered
offer
wait $bench || { cat /tmp/out /tmp/said; exit 1; }
echo "a target was killed and found again"
kill $target
wait $target
echo "the target ended in order"

# Measurements.
tell "serving"
await "served"
farlane measure rdma serve --json --provider verbs --listen $HERE:18515 >/tmp/serving 2>&1 &
server=$!
for i in $(seq 100); do [ -s /tmp/serving ] && break; sleep 0.1; done
for verb in send write read; do
    run rdma ping --provider verbs $HERE:18515 --verb $verb --iters 200
    run rdma bench --provider verbs $HERE:18515 --verb $verb --iters 200 --size 64k
    run rdma ping --provider verbs $MEASURED --verb $verb --iters 200
    tail -1 /tmp/out
done
for at in $HERE:18515 $MEASURED; do
    rping -c -a ${at%:*} -p ${at##*:} -C 20 -S 60000 -V >/tmp/out 2>&1 || { cat /tmp/out; exit 1; }
done
echo "rping was answered"
tell "measuring"
await "measured"
kill $server
wait $server
echo "measured"
dmesg | grep -E '(nvme|siw|rxe).*(timeout|fail|unexpected|bad)|BUG:|WARNING:' && exit 1
echo "nothing in the kernel's log"
