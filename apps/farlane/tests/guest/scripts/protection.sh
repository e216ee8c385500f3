# Namespaces with protection information, as Linux uses them: /dev/nvme0n1 and so on are told apart
# by the serial numbers of their controllers.
fail() { echo "FAILED: $*"; dmesg | tail -20; exit 1; }

device_of() {
    for controller in /sys/class/nvme/nvme*; do
        [ "$(tr -d ' ' < "$controller/serial")" = "$1" ] && basename "$controller"
    done
}

for number in 0 1 2; do appears /dev/nvme${number}n1; done
for serial in GUARD16 GUARD64; do
    controller=$(device_of $serial)
    block=${controller}n1
    integrity=/sys/block/$block/integrity
    echo "$serial: $(cat $integrity/format), verify $(cat $integrity/read_verify), generate $(cat $integrity/write_generate)"

    # Block 3 was written by another host, and rotted; its neighbours did not.
    dd if=/dev/$block of=/dev/null bs=4096 skip=2 count=1 iflag=direct 2> /dev/null || fail "block 2"
    dd if=/dev/$block of=/dev/null bs=4096 skip=4 count=4 iflag=direct 2> /dev/null || fail "block 4"
    if dd if=/dev/$block of=/tmp/rotten bs=4096 skip=3 count=1 iflag=direct 2> /tmp/why; then
        fail "a rotten block was read"
    fi
    [ -s /tmp/rotten ] && fail "a rotten block came as data"
    echo "$serial: a rotten block ends as $(grep -o 'Protection error\|Input/output error\|Invalid or incomplete[a-z -]*' /tmp/why | head -1)"

    fio --name=protected --filename=/dev/$block --rw=randrw --bsrange=4k-128k --bs_unaligned=0 \
        --blockalign=4k --iodepth=16 --ioengine=libaio --direct=1 --size=24m --offset=1m \
        --verify=crc32c --verify_fatal=1 > /tmp/fio 2>&1 || { cat /tmp/fio; fail "fio"; }
    echo "$serial: fio verified"

    # What Linux generated, the controller checks once more.
    nvme verify /dev/$block --start-block=256 --block-count=31 --prinfo=5 --ref-tag=256 > /tmp/verify 2>&1 \
        || { cat /tmp/verify; fail "verify"; }
    echo "$serial: the controller found what Linux generated right"
done

# A namespace becomes protected by a format.
controller=$(device_of PLAIN)
block=${controller}n1
[ -e /sys/block/$block/integrity/format ] && [ "$(cat /sys/block/$block/integrity/format)" != none ] \
    && fail "protected before"
nvme format /dev/$block --lbaf=2 --pi=1 --force > /tmp/format 2>&1 || { cat /tmp/format; fail "format"; }
echo "PLAIN: formatted, now $(cat /sys/block/$block/integrity/format)"
mkfs.ext4 -q -F /dev/$block && mount /dev/$block /mnt && dd if=/dev/urandom of=/mnt/file bs=64k count=100 2> /dev/null \
    && sum=$(sha256sum < /mnt/file) && umount /mnt && mount /dev/$block /mnt \
    && [ "$sum" = "$(sha256sum < /mnt/file)" ] || fail "a file system"
umount /mnt
echo "PLAIN: a file system keeps its file"

# More than the default of 128 KiB passes in one command. Linux maps 512 KiB of a program at most.
echo "PLAIN: one command moves $(cat /sys/block/$block/queue/max_hw_sectors_kb) KiB"
nvme format /dev/$block --lbaf=1 --force > /tmp/format 2>&1 || { cat /tmp/format; fail "format"; }
dd if=/dev/urandom of=/tmp/data bs=256k count=1 2> /dev/null
nvme write /dev/$block --start-block=3 --block-count=63 --data-size=262144 --data=/tmp/data > /tmp/write 2>&1 \
    || { cat /tmp/write; fail "a write of 256 KiB"; }
nvme read /dev/$block --start-block=3 --block-count=63 --data-size=262144 --data=/tmp/again > /tmp/read 2>&1 \
    || { cat /tmp/read; fail "a read of 256 KiB"; }
cmp /tmp/data /tmp/again || fail "256 KiB are others"

# A namespace gets metadata that mean nothing to the controller.
for format in 2:8 3:16; do
    bytes=${format#*:}
    nvme format /dev/$block --lbaf=${format%:*} --pi=0 --force > /tmp/format 2>&1 \
        || { cat /tmp/format; fail "format with metadata"; }
    dd if=/dev/urandom of=/tmp/data bs=4096 count=2 2> /dev/null
    dd if=/dev/urandom of=/tmp/metadata bs=$((2 * bytes)) count=1 2> /dev/null
    nvme write /dev/$block --start-block=7 --block-count=1 --data-size=8192 --data=/tmp/data \
        --metadata-size=$((2 * bytes)) --metadata=/tmp/metadata > /tmp/write 2>&1 || { cat /tmp/write; fail "write"; }
    rm -f /tmp/again /tmp/tags # nvme-cli leaves what is longer
    nvme read /dev/$block --start-block=7 --block-count=1 --data-size=8192 --data=/tmp/again \
        --metadata-size=$((2 * bytes)) --metadata=/tmp/tags > /tmp/read 2>&1 || { cat /tmp/read; fail "read"; }
    cmp /tmp/data /tmp/again && cmp /tmp/metadata /tmp/tags || fail "other metadata"
    dd if=/dev/$block of=/tmp/block bs=4096 skip=7 count=2 iflag=direct 2> /dev/null || fail "a plain read"
    cmp /tmp/data /tmp/block || fail "a plain read"
    echo "PLAIN: metadata are kept with $bytes bytes"
done
