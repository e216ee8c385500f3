# What a guest does with a far SSD over a network that is not there. Each line of output that a test wants is printed when what
# came before it went well.
set -e
DISK=/dev/nvme0n1
appears $DISK
echo "up after $(cut -d ' ' -f 1 /proc/uptime) s"
dd if=/dev/urandom of=/tmp/noise bs=1M count=1 2>/dev/null
mkfs.ext4 -q $DISK
mount -t ext4 $DISK /mnt
cp /tmp/noise /mnt/noise
umount /mnt
mount -t ext4 $DISK /mnt
cmp /tmp/noise /mnt/noise && echo "a file came back"
umount /mnt
fsck.ext4 -f -n $DISK >/dev/null 2>&1 && echo "fsck clean"
job() { fio --filename=$DISK --ioengine=libaio --direct=1 --bs=4k --minimal "$@"; }
job --name=verified --rw=randwrite --iodepth=8 --size=1m --verify=crc32c >/tmp/fio && echo "fio verified"
# Completion latency, in microseconds.
p50() { grep -o '50.000000%=[0-9]*' | sed -n "$1s/.*=//p"; }
AT=$(basename $(readlink -f /sys/class/nvme/nvme0/device))
FUNCTION=/sys/bus/pci/devices/$AT
comes() { for i in $(seq 600); do [ -b $DISK ] && return; sleep 0.05; done; echo "$DISK does not come"; exit 1; }
verified() { job --name=short --rw=randrw --iodepth=8 --size=512k --verify=crc32c >/tmp/fio; }
blkdiscard $DISK && verified && echo "discarded"
nvme format $DISK --lbaf=0 --force >/dev/null
comes
verified && echo "formatted"
nvme reset /dev/nvme0
comes
verified && echo "controller reset"
echo 1 >$FUNCTION/reset
verified && echo "function reset"
for i in $(seq ${TIMES:-2}); do
    echo $AT >/sys/bus/pci/drivers/nvme/unbind
    echo $AT >/sys/bus/pci/drivers/nvme/bind
    comes
done
verified && echo "bound anew"
for WAY in randread randwrite; do
    job --name=$WAY --rw=$WAY --iodepth=1 --size=8m --runtime=1 --time_based >/tmp/fio
    case $WAY in randread) PLACE=1 ;; *) PLACE=2 ;; esac
    echo "$WAY p50 $(p50 $PLACE </tmp/fio) us"
done
dmesg | grep -iE 'nvme.*(timeout|error|fail|abort|unable|invalid)|AER: |Uncorrect' && exit 1
echo "nothing in the kernel's log"
