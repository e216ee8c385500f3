#!/bin/sh
# The guest's first process: mounts the file systems that programs expect, runs the script, reports
# its status, powers off.
#   ttyS0  the console: kernel messages and ours
#   ttyS1  the script's output, nothing else
#   ttyS2  the control line: "ready", "tell WORDS", "status N" to the host; words for `await` from it
export PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/ TERM=${TERM:-linux}
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
mkdir -p /dev/shm /dev/pts /tmp /run /mnt
mount -t tmpfs shm /dev/shm
mount -t devpts pts /dev/pts
ip link set lo up
exec 3<>/dev/ttyS2 4>/dev/ttyS1
for line in 1 2; do stty -F /dev/ttyS$line 115200 raw -echo; done
echo "ready $(cut -d' ' -f1 /proc/uptime)" >&3

for module in $(cat /etc/guest/modules 2>/dev/null); do
    insmod "/lib/modules/$module.ko" || echo "init: module $module could not be inserted"
done
[ -f /etc/guest/prelude ] && . /etc/guest/prelude

if [ -f /etc/guest/script ]; then
    sh /etc/guest/script </dev/null >&4 2>&1
    status=$?
else
    echo "init: a shell on the console; leaving it powers off"
    setsid sh -c 'exec sh -l </dev/ttyS0 >/dev/ttyS0 2>&1'
    status=$?
fi
sync
# stty waits until everything written before it has left.
stty -F /dev/ttyS1 -echo
echo "status $status" >&3
stty -F /dev/ttyS2 -echo
poweroff -f
