# What a guest sees of far SSDs that are plugged into a switch and unplugged. ROUNDS comes from the test: how often the
# first one goes and comes back. The second one stays, and its I/O must not notice.
set -e
# The block device of the controller with the serial number $1.
disk_of() {
    for controller in /sys/class/nvme/nvme*; do
        if [ "$(tr -d ' ' <$controller/serial 2>/dev/null)" = "$1" ]; then
            disk=/dev/${controller##*/}n1
            [ -b $disk ] && echo $disk && return 0
        fi
    done
    return 1
}
# Waits until a controller has the serial number $1, and its block device is there.
comes() {
    for i in $(seq 600); do disk_of "$1" >/dev/null && return 0; sleep 0.05; done
    echo "no SSD $1 came"; lspci -t; dmesg | tail -30; exit 1
}
goes() {
    for i in $(seq 600); do [ -d /sys/bus/pci/devices/$1 ] || return 0; sleep 0.05; done
    echo "$1 did not go"; lspci -t; dmesg | tail -30; exit 1
}
mark() { dd if=$1 bs=4k count=1 iflag=direct 2>/dev/null | tr -d '\0'; }

comes FIRST; comes SECOND
echo "tree:"; lspci -t
for port in $(lspci -d ::0604 | cut -d' ' -f1); do
    echo "port $port:"; lspci -vv -s $port | grep -E 'Express|LnkCap:|LnkSta:|SltCap:|SltSta:|Surprise|DLActive|AttnBtn|Advanced Error|Downstream Port'
done
STAYS=$(disk_of SECOND)
fio --name=stays --filename=$STAYS --rw=randrw --bs=4k --iodepth=4 --ioengine=libaio --direct=1 --verify=crc32c \
    --verify_backlog=64 --size=8m --time_based --runtime=100000 --rate_iops=50,50 --minimal >/tmp/stays 2>&1 &
FIO=$!
[ -n "$(ls /sys/bus/pci/slots)" ] && echo "slots: $(ls /sys/bus/pci/slots | wc -l)"
for round in $(seq $ROUNDS); do
    comes FIRST
    disk=$(disk_of FIRST)
    at=$(basename $(readlink -f /sys/class/block/${disk#/dev/}/device/device))
    found=$(mark $disk)
    [ "$found" = "round $((round - 1))" ] || [ $round = 1 ] || { echo "found '$found' in round $round"; exit 1; }
    printf "round $round" | dd of=$disk bs=4k conv=sync oflag=direct 2>/dev/null
    [ "$(mark $disk)" = "round $round" ]
    # Reads are under way when the far end goes. Writes would be, too, but a mark must stay what it is.
    dd if=$disk of=/dev/null bs=64k iflag=direct 2>/dev/null &
    dd if=/dev/zero of=$disk bs=64k seek=1 oflag=direct 2>/dev/null &
    tell "round $round"
    goes $at
    kill -0 $FIO || { echo "I/O to the SSD that stays has ended: $(tail -5 /tmp/stays)"; exit 1; }
    tell "went $round"
done
comes FIRST
# The fifth field of fio's terse output is the first error. An interrupted fio has a status of its own.
kill -INT $FIO
wait $FIO || true
[ "$(grep '^3;fio' /tmp/stays | cut -d';' -f5)" = 0 ] || { echo "I/O to the SSD that stays has failed: $(tail -5 /tmp/stays)"; exit 1; }
echo "the other SSD noticed nothing"
dmesg | grep -E 'pciehp.*(Slot|Link|Card)' | sed 's/^.*pciehp/pciehp/' | sort | uniq -c
dmesg | grep -E 'BUG:|Oops:|blocked for more than|Call Trace' && exit 1
echo "the kernel is well"
