# Two SSDs whose controllers have memory for their hosts' submission queues, on a kernel with peer-to-peer DMA. Each line of
# output that the test wants is printed when what came before it went well.
set -e
uname -r
for number in 0 1; do
    appears /dev/nvme${number}n1
    CONTROLLER=/sys/class/nvme/nvme$number
    SERIAL=$(tr -d ' ' <$CONTROLLER/serial)
    echo $SERIAL $(cat $CONTROLLER/cmb)
    MEMORY=$CONTROLLER/device/p2pmem
    SIZE=$(cat $MEMORY/size)
    USED=$((SIZE - $(cat $MEMORY/available)))
    [ $USED -ge 65536 ]
    echo "$SERIAL of $SIZE bytes, queues have $USED"
    nvme show-regs /dev/nvme$number | grep -i '^cmb'
    fio --name=mixed --filename=/dev/nvme${number}n1 --rw=randrw --bsrange=512-128k --iodepth=32 --numjobs=2 \
        --ioengine=libaio --direct=1 --verify=crc32c --size=16m --offset_increment=16m --io_size=16m --minimal >/tmp/fio
    echo "$SERIAL verified"
    nvme reset /dev/nvme$number
    dd if=/dev/urandom of=/tmp/noise bs=1M count=2 2>/dev/null
    dd if=/tmp/noise of=/dev/nvme${number}n1 bs=64k oflag=direct 2>/dev/null
    dd if=/dev/nvme${number}n1 of=/tmp/back bs=4k count=512 iflag=direct 2>/dev/null
    cmp /tmp/noise /tmp/back
    echo "$SERIAL after a reset"
done
dmesg | grep -i cmb || true
if dmesg | grep -iE 'nvme.*(timeout|error|fail|cmb)|call trace'; then exit 1; fi
echo "nothing in the kernel's log"
