# What a guest does with a far PCIe SSD that a target offers over NVMe/TCP. PORT and NQN come from the test.
set -e
mkdir -p /etc/nvme
echo nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-666666666666 >/etc/nvme/hostnqn
DISK=/dev/nvme0n1
nvme connect -t tcp -a 10.0.2.2 -s $PORT -n $NQN --nr-io-queues=2
appears $DISK
[ $(cat /sys/block/nvme0n1/queue/logical_block_size) = 4096 ] && echo "it has the far end's blocks"
fio --name=short --filename=$DISK --rw=randrw --bsrange=4k-256k --iodepth=64 --ioengine=libaio --direct=1 \
    --verify=crc32c --size=16m --minimal >/tmp/fio && echo "fio verified"
blkdiscard $DISK && echo "discarded"
dd if=$DISK bs=1M count=4 iflag=direct 2>/dev/null | cmp -n 4194304 - /dev/zero && echo "it reads as zeroes"
dmesg -c >/dev/null
fio --name=through --filename=$DISK --rw=randwrite --bs=4k --iodepth=32 --ioengine=libaio --direct=1 \
    --verify=crc32c --size=12m --rate=2m --minimal >/tmp/fio &
sleep 1
tell "writing"
await "restarted"
wait $! && echo "fio verified while the far end was away"
dmesg | grep -iE 'i/o error|timeout|reset' && exit 1
echo "the kernel saw nothing"
nvme disconnect -n $NQN >/dev/null
echo "done"
