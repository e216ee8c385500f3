# What a guest does with an SSD, in the words of its own tools. Each line of output that a test wants is printed when
# what came before it went well.
set -e
AT=$(basename $(readlink -f /sys/class/nvme/nvme0/device))
FUNCTION=/sys/bus/pci/devices/$AT
DISK=/dev/nvme0n1
wait_for_disk() { for i in $(seq 200); do [ -b $DISK ] && return; sleep 0.05; done; echo "$DISK does not come"; exit 1; }

echo "identity $(cat $FUNCTION/class) $(cat $FUNCTION/vendor):$(cat $FUNCTION/device)"
lspci -nn -s $AT
lspci -vv -s $AT | grep -E 'Capabilities: \[|MSI-X: Enable|Kernel driver'
nvme id-ctrl /dev/nvme0 | grep -E '^(sn|mn|vid) '
nvme id-ns $DISK | grep -E '^nsze'
nvme smart-log /dev/nvme0 | grep -E 'critical_warning|available_spare'
nvme error-log /dev/nvme0 >/dev/null && nvme fw-log /dev/nvme0 >/dev/null && echo "logs answered"
nvme get-feature /dev/nvme0 -f 7 -H | head -1

dd if=/dev/urandom of=/tmp/noise bs=1M count=8 2>/dev/null
dd if=/tmp/noise of=$DISK bs=1M seek=4 conv=fsync 2>/dev/null
dd if=$DISK of=/tmp/back bs=1M skip=4 count=8 iflag=direct 2>/dev/null
cmp /tmp/noise /tmp/back && echo "copied and compared"

mkfs.ext4 -q $DISK
mount -t ext4 $DISK /mnt
mkdir /mnt/directory
cp /tmp/noise /mnt/directory/noise
umount /mnt
mount -t ext4 $DISK /mnt
cmp /tmp/noise /mnt/directory/noise && echo "mounted again"
umount /mnt
fsck.ext4 -f -n $DISK >/dev/null 2>&1 && echo "fsck clean"

fio --name=short --filename=$DISK --rw=randrw --bsrange=512-1m --iodepth=64 --numjobs=2 --offset_increment=16m \
    --ioengine=libaio --direct=1 --verify=crc32c --size=16m --io_size=12m --minimal >/tmp/fio && echo "fio verified"
blkdiscard $DISK && echo "discarded"

nvme reset /dev/nvme0
wait_for_disk
dd if=$DISK of=/dev/null bs=4k count=16 iflag=direct 2>/dev/null && echo "controller reset"
[ "$(cat $FUNCTION/reset_method | cut -d' ' -f1)" = flr ] && echo 1 >$FUNCTION/reset
dd if=$DISK of=/dev/null bs=4k count=16 iflag=direct 2>/dev/null && echo "function reset"
for i in $(seq 20); do
    echo $AT >/sys/bus/pci/drivers/nvme/unbind
    echo $AT >/sys/bus/pci/drivers/nvme/bind
    wait_for_disk
done
dd if=$DISK of=/dev/null bs=4k count=16 iflag=direct 2>/dev/null && echo "bound 20 times"
grep -c nvme0q /proc/interrupts
dmesg | grep -iE 'nvme.*(timeout|error|fail|abort|unable|invalid)|AER: |Uncorrect' && exit 1
echo "nothing in the kernel's log"
