# A machine whose NVMe SSD is given to vfio-pci and exported; MODULE is what wants interrupts remapped. Each line of output that the test wants is printed when
# what came before it went well.
set -e
URL=tcp://127.0.0.1:4430
appears /dev/nvme0n1
AT=$(basename $(readlink -f /sys/class/nvme/nvme0/device))
FUNCTION=/sys/bus/pci/devices/$AT
OTHER=$(basename $(ls -d /sys/bus/pci/devices/*:00.0 | head -1))
dd if=/dev/urandom of=/tmp/noise bs=1M count=8 2>/dev/null
dd if=/tmp/noise of=/dev/nvme0n1 bs=1M count=2 conv=fsync 2>/dev/null

# Without its progress.
far() { farlane "$@" --json 2>/tmp/said || { cat /tmp/said; return 1; }; }
refused() { if farlane export --listen 127.0.0.1:4430 --vfio $1 2>/tmp/said; then exit 1; fi; tr -s ' │\n' ' ' </tmp/said; echo; }
refused 0000:7f:1f.7
refused $OTHER
refused $AT

# As the refusal says.
echo vfio-pci > $FUNCTION/driver_override
echo $AT > $FUNCTION/driver/unbind
echo $AT > /sys/bus/pci/drivers_probe

# The harness's IOMMU remaps no interrupts.
refused $AT
echo 1 > /sys/module/$MODULE/parameters/allow_unsafe_interrupts

up() { echo "$1 after $(cut -d' ' -f1 /proc/uptime) s"; }
export_ssd() {
    rm -f /tmp/announced
    farlane export --listen 127.0.0.1:4430 --vfio $AT $* >/tmp/announced 2>/tmp/export &
    EXPORT=$!
    for i in $(seq 400); do grep -q exporting /tmp/announced 2>/dev/null && return; sleep 0.05; done
    echo "no export:"; cat /tmp/export; exit 1
}
up bound
export_ssd
cat /tmp/announced
refused $AT
far identify $URL >/tmp/identity || { cat /tmp/identity /tmp/export; exit 1; }
tr ',' '\n' </tmp/identity | grep nsze
far read $URL --length 2MiB --output /tmp/back
dd if=/tmp/noise of=/tmp/begin bs=1M count=2 2>/dev/null
cmp /tmp/begin /tmp/back && echo "what the kernel wrote is read"
far write $URL --input /tmp/noise --offset 16MiB
far read $URL --offset 16MiB --length 8MiB --bs 64k --output /tmp/back
cmp /tmp/noise /tmp/back && echo "written and compared"
far bench $URL --rw randrw --bs 4k --iodepth 32 --runtime 2s --size 8MiB --verify && echo "bench verified"
far bench $URL --rw randread --bs 4k --runtime 1s --size 8MiB

up used
kill -9 $EXPORT
wait $EXPORT || true
export_ssd --spin 0
far read $URL --offset 16MiB --length 8MiB --output /tmp/back
cmp /tmp/noise /tmp/back && echo "there after a kill"
far write $URL --input /tmp/noise --offset 48MiB
far bench $URL --rw randread --bs 4k --runtime 1s --size 8MiB && echo "bench asleep"
awk '/vfio-msix/ { for (n = 2; n <= 3; n++) sum += $n } END { if (sum > 0) print "interrupts came" }' /proc/interrupts
kill -TERM $EXPORT
wait $EXPORT && echo "ended in order"
cat /tmp/export

up "given back"
echo nvme > $FUNCTION/driver_override
echo $AT > $FUNCTION/driver/unbind
echo $AT > /sys/bus/pci/drivers_probe
appears /dev/nvme0n1
dd if=/dev/nvme0n1 of=/tmp/back bs=1M skip=48 count=8 iflag=direct 2>/dev/null
cmp /tmp/noise /tmp/back && echo "the kernel reads what was written"
dd if=/dev/nvme0n1 of=/tmp/back bs=1M count=2 skip=16 iflag=direct 2>/dev/null
cmp /tmp/begin /tmp/back && echo "all of it"
if dmesg | grep -iE 'dmar.*fault|call trace|vfio.*(error|fail)'; then exit 1; fi
echo "nothing in the kernel's log"
