# What Linux's own NVMe/RDMA initiator does with a target of ours, over RDMA that the kernel does in software. Each line of
# output that a test wants is printed when what came before it went well. LINK, PROVIDER, THERE, PORT, TCP, NQN and HOST come
# from the test.
set -e
mkdir -p /etc/nvme
echo $HOST >/etc/nvme/hostnqn
echo ${HOST##*:} >/etc/nvme/hostid
rdma link add link0 type $LINK netdev eth0
rdma link show | grep -q link0 && echo "an RDMA link is there"
AT="-t rdma -a $THERE -s $PORT"
DISK=/dev/nvme0n1
wait_until_gone() { for i in $(seq 200); do [ -e /dev/nvme0 ] || return 0; sleep 0.05; done; echo "nvme0 stays"; exit 1; }
leave() { nvme disconnect -n $NQN >/dev/null; wait_until_gone; }
copy() {
    dd if=/dev/urandom of=/tmp/noise bs=1M count=4 2>/dev/null
    dd if=/tmp/noise of=$DISK bs=1M seek=4 conv=fsync 2>/dev/null
    dd if=$DISK of=/tmp/back bs=1M skip=4 count=4 iflag=direct 2>/dev/null
    cmp /tmp/noise /tmp/back
}
verify() {
    fio --name=$1 --filename=$DISK --rw=randrw --bsrange=512-256k --iodepth=64 --ioengine=libaio --direct=1 \
        --verify=crc32c --size=16m --minimal >/tmp/fio
}

nvme discover $AT >/tmp/found
grep -q "subnqn:  $NQN" /tmp/found && grep -q "trtype:  rdma" /tmp/found && grep -q "rdma_prtype: *$PROVIDER" /tmp/found
echo "discovered"
nvme connect $AT -n $NQN.none 2>/dev/null && exit 1
echo "an unknown subsystem is refused"
nvme connect $AT -n $NQN --nr-io-queues=2 --queue-size=128
appears $DISK
nvme list-subsys | grep -q "rdma traddr=$THERE,trsvcid=$PORT" && echo "subsystem listed"
nvme id-ctrl /dev/nvme0 | grep -E '^(sn|cntlid|ioccsz|iorcsz|icdoff|msdbd|sgls) ' && echo "identified"
copy && echo "copied and compared"
verify short && echo "fio verified"
blkdiscard $DISK && echo "discarded"
nvme reset /dev/nvme0
appears $DISK
copy && echo "controller reset"
leave
dmesg | grep -iE 'nvme.*(timeout|error|fail|abort|unable|invalid|mismatch)|(siw|rxe).*(error|fail)' | \
    grep -vE 'Connect Invalid|failed to connect queue: 0 ret=16770' && exit 1
echo "nothing in the kernel's log"

# The target is killed in the middle of this, and comes back.
nvme connect $AT -n $NQN --reconnect-delay=1 --ctrl-loss-tmo=60 --keep-alive-tmo=5 --nr-io-queues=2
appears $DISK
fio --name=through --filename=$DISK --rw=randwrite --bs=4k --iodepth=64 --ioengine=libaio --direct=1 \
    --verify=crc32c --size=16m --rate=3m --minimal >/tmp/fio &
sleep 1
tell "running"
await "restarted"
wait $! && echo "fio verified through a restart"
leave

# Two paths to one disk, by RDMA and by TCP.
nvme connect $AT -n $NQN --nr-io-queues=2
nvme connect -t tcp -a $THERE -s $TCP -n $NQN --nr-io-queues=2
appears $DISK
[ $(nvme list-subsys | grep -c " live") = 2 ] && [ $(ls -d /dev/nvme?n1) = $DISK ] && echo "two paths to one disk"
echo round-robin >/sys/class/nvme-subsystem/nvme-subsys0/iopolicy
verify paths && echo "fio verified by two paths"
leave
