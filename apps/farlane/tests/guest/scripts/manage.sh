# What an administrator does with an SSD that has a namespace and room for more, in the words of nvme-cli. Each line of
# output that a test wants is printed when what came before it went well.
set -e
appears /dev/nvme0n1
appears /dev/nvme1n1

manage() {
    NVME=/dev/$1
    DISK=${NVME}n1
    NEW=${NVME}n2
    NAME=$(tr -d ' ' </sys/class/nvme/$1/serial)
    ID=$(cat /sys/class/nvme/$1/cntlid)

    for feature in 1 2 4 5 6 7 8 9 10 11 14; do
        nvme get-feature $NVME -n 1 -f $feature >/dev/null
    done
    nvme set-feature $NVME -f 4 -V 350 >/dev/null
    nvme get-feature $NVME -f 4 | grep -q 0x0000015e
    echo "$NAME features"
    for log in smart error fw effects changed-ns-list supported-log-pages self-test sanitize; do
        case $log in *-log* | *-list*) ;; *) log=$log-log ;; esac
        [ $log != changed-ns-list ] || log=changed-ns-list-log
        nvme $log $NVME >/dev/null
    done
    nvme telemetry-log $NVME --output-file=/tmp/telemetry -g 1 >/dev/null
    [ $(wc -c </tmp/telemetry) -ge 1024 ]
    nvme persistent-event-log $NVME -a 1 -l 512 | grep -q 'Number of Events'
    nvme persistent-event-log $NVME -a 2 >/dev/null
    echo "$NAME logs"

    smartctl -x $NVME >/tmp/smart || { cat /tmp/smart; exit 1; }
    grep -q 'overall-health self-assessment test result: PASSED' /tmp/smart
    grep -q "Serial Number: *$NAME$" /tmp/smart
    smartctl -t short $NVME >/dev/null
    for i in $(seq 100); do
        smartctl -l selftest $NVME >/tmp/smart
        grep -q 'Completed without error' /tmp/smart && break
        sleep 0.1
    done
    grep -q 'Completed without error' /tmp/smart || { cat /tmp/smart; exit 1; }
    echo "$NAME smartctl"

    nvme create-ns $NVME --nsze=16384 --ncap=16384 --flbas=0 >/dev/null
    nvme attach-ns $NVME -n 2 -c $ID >/dev/null
    appears $NEW
    dd if=/dev/urandom of=/tmp/noise bs=1M count=4 2>/dev/null
    dd if=/tmp/noise of=$NEW bs=64k oflag=direct 2>/dev/null
    dd if=$NEW of=/tmp/back bs=64k count=64 iflag=direct 2>/dev/null
    cmp /tmp/noise /tmp/back
    nvme detach-ns $NVME -n 2 -c $ID >/dev/null
    nvme delete-ns $NVME -n 2 >/dev/null
    echo "$NAME namespaces"

    nvme format $DISK --lbaf=1 --force >/dev/null
    [ $(cat /sys/block/$1n1/queue/logical_block_size) = 4096 ]
    nvme format $DISK --lbaf=0 --force >/dev/null
    [ $(cat /sys/block/$1n1/queue/logical_block_size) = 512 ]
    echo "$NAME format"

    nvme device-self-test $NVME -n 1 -s 1 >/dev/null
    for i in $(seq 100); do nvme self-test-log $NVME | grep -q 'Current operation  : 0' && break; sleep 0.1; done
    nvme self-test-log $NVME | grep -A1 'Result\[0\]' | grep -q 'Operation Result             : 0$'
    echo "$NAME self-test"

    dd if=/tmp/noise of=$DISK bs=64k oflag=direct 2>/dev/null
    nvme sanitize $NVME -a 2 >/dev/null
    for i in $(seq 100); do nvme sanitize-log $NVME | grep -q 'SSTAT) :  0x.01' && break; sleep 0.1; done
    dd if=$DISK bs=64k count=64 iflag=direct 2>/dev/null | cmp -n 4194304 - /dev/zero
    echo "$NAME sanitize"

    nvme write-uncor $DISK -s 8 -c 0 >/dev/null
    ! dd if=$DISK of=/dev/null bs=512 skip=8 count=1 iflag=direct 2>/dev/null
    nvme write-zeroes $DISK -s 8 -c 0 >/dev/null
    dd if=$DISK of=/dev/null bs=512 skip=8 count=1 iflag=direct 2>/dev/null
    nvme copy $DISK --sdlba=100 --blocks=7 --slbs=0 >/dev/null
    nvme compare $DISK -s 100 -c 0 -z 512 -d /dev/zero >/dev/null
    nvme verify $DISK -s 0 -c 7 >/dev/null
    nvme dsm $DISK -d 1 -s 0 -b 8 >/dev/null
    nvme flush $DISK >/dev/null
    echo "$NAME commands"
    nvme reset $NVME
    appears $DISK
    echo "$NAME reset"
}

manage nvme0
manage nvme1

# The far end is killed and started anew: its SSD is the same one. Linux looks for both at once, and names them as it finds them.
far() {
    grep -l FAR /sys/class/nvme/*/serial | cut -d/ -f5
}
NVME=/dev/$(far)
LOCAL=/dev/$(grep -l LOCAL /sys/class/nvme/*/serial | cut -d/ -f5)n1
nvme create-ns $NVME --nsze=16384 --ncap=16384 --flbas=0 >/dev/null
nvme attach-ns $NVME -n 2 -c $(cat /sys/class/nvme/$(far)/cntlid) >/dev/null
appears ${NVME}n2
dd if=/tmp/noise of=${NVME}n2 bs=64k oflag=direct 2>/dev/null
nvme set-feature $NVME -f 10 -V 1 -s >/dev/null
nvme id-ns ${NVME}n2 >/tmp/before
AT=$(basename $(readlink -f /sys/class/nvme/$(far)/device))
echo 1 >/sys/bus/pci/devices/$AT/remove
tell remembered
await restarted
echo 1 >/sys/bus/pci/rescan
for i in $(seq 100); do [ -n "$(far)" ] && break; sleep 0.1; done
NVME=/dev/$(far)
appears ${NVME}n1
appears ${NVME}n2
# Namespaces are named as they are found too.
called() {
    grep -lx $1 /sys/block/$(far)n*/nsid | cut -d/ -f4
}
nvme id-ns /dev/$(called 2) | cmp - /tmp/before
dd if=/dev/$(called 2) of=/tmp/back bs=64k count=64 iflag=direct 2>/dev/null
cmp /tmp/noise /tmp/back
nvme get-feature $NVME -f 10 | grep -qi 'value:\(0x\)\?0*1$'
nvme smart-log $NVME | grep -q '^power_cycles.*: 2$'
nvme smart-log $NVME | grep -q '^unsafe_shutdowns.*: 0$'
echo "the far SSD remembers"

load() {
    fio --name=$1 --filename=/dev/$1 --rw=randrw --bsrange=512-1m --iodepth=64 --numjobs=2 --offset_increment=16m \
        --ioengine=libaio --direct=1 --verify=crc32c --size=16m --time_based --runtime=60 --minimal >/tmp/fio.$1
}
load $(basename $LOCAL) &
FIRST=$!
load $(called 1)
wait $FIRST
echo "a minute of mixed blocks verified on both"
