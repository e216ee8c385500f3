# How Linux's initiator proves who it is to a target, and has the target prove who it is. PORT, NQN and HOST come from
# the test, which also puts the secrets of the subsystems into files.
mkdir -p /etc/nvme
echo $HOST >/etc/nvme/hostnqn
echo ${HOST##*:} >/etc/nvme/hostid
AT="-t tcp -a 10.0.2.2 -s $PORT"
wait_until_gone() { for i in $(seq 200); do [ -e /dev/nvme0 ] || return 0; sleep 0.05; done; echo "nvme0 stays"; exit 1; }
leave() { nvme disconnect -n $1 >/dev/null; wait_until_gone; }

# Secrets that this side makes, and that nvme-cli accepts; the test has farlane setup check them.
for hash in 0 1 2 3; do
    secret=$(nvme gen-dhchap-key --hmac=$hash --nqn $HOST) || exit 1
    nvme check-dhchap-key --key "$secret" >/dev/null || exit 1
    echo "made $hash $secret"
done
for secret in $OURS; do nvme check-dhchap-key --key "$secret" >/dev/null || { echo "farlane's secret is refused"; exit 1; }; done
echo "farlane's secrets are accepted"

for subsystem in $SUBSYSTEMS; do
    name=$NQN.$subsystem
    nvme connect $AT -n $name --dhchap-secret "$SECRET" || { echo "$subsystem: not connected"; dmesg | tail -5; exit 1; }
    appears /dev/nvme0n1 && echo "$subsystem: the host has authenticated"
    leave $name
    nvme connect $AT -n $name --dhchap-secret "$SECRET" --dhchap-ctrl-secret "$CONTROLLER" || { dmesg | tail -5; exit 1; }
    appears /dev/nvme0n1
    dd if=/dev/nvme0n1 of=/dev/null bs=64k count=4 iflag=direct 2>/dev/null && echo "$subsystem: both have authenticated"
    cat /sys/class/nvme/nvme0/dhchap_secret >/dev/null
    leave $name
done
set -- $SUBSYSTEMS
name=$NQN.$1
nvme connect $AT -n $name 2>/dev/null && exit 1
echo "without a secret: refused"
nvme connect $AT -n $name --dhchap-secret "$CONTROLLER" 2>/dev/null && exit 1
echo "with a wrong secret: refused"
nvme connect $AT -n $name --dhchap-secret "$SECRET" --dhchap-ctrl-secret "$SECRET" 2>/dev/null && exit 1
echo "a controller with a wrong secret: refused"
wait_until_gone

set -e
nvme connect $AT -n $name --dhchap-secret "$SECRET" --dhchap-ctrl-secret "$CONTROLLER" --nr-io-queues=2
appears /dev/nvme0n1
fio --name=one --filename=/dev/nvme0n1 --rw=randrw --bsrange=4k-64k --iodepth=32 --ioengine=libaio --direct=1 \
    --verify=crc32c --size=8m --minimal >/tmp/fio && echo "fio verified"
# A secret that is written anew authenticates every queue again.
echo "$SECRET" >/sys/class/nvme/nvme0/dhchap_secret
dd if=/dev/nvme0n1 of=/dev/null bs=64k count=4 iflag=direct 2>/dev/null && echo "authenticated again"
nvme reset /dev/nvme0
appears /dev/nvme0n1
dd if=/dev/nvme0n1 of=/dev/null bs=64k count=4 iflag=direct 2>/dev/null && echo "authenticated after a reset"
nvme disconnect -n $name >/dev/null
dmesg | grep -i nvme | tail -20
! dmesg | grep -E "BUG|WARNING|general protection"
echo "done"
