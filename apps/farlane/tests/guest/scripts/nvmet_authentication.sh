# The kernel's own NVMe/TCP target, which lets in one host that proves who it is: a subsystem for each hash and group.
set -e
mkdir -p /sys/kernel/config
mount -t configfs none /sys/kernel/config
cd /sys/kernel/config/nvmet
mkdir hosts/$HOST ports/1
echo -n "$SECRET" > hosts/$HOST/dhchap_key
echo -n "$CONTROLLER" > hosts/$HOST/dhchap_ctrl_key
echo tcp > ports/1/addr_trtype
echo ipv4 > ports/1/addr_adrfam
echo 0.0.0.0 > ports/1/addr_traddr
echo 4420 > ports/1/addr_trsvcid
mkdir subsystems/$NQN
echo 0 > subsystems/$NQN/attr_allow_any_host
mkdir subsystems/$NQN/namespaces/1
echo -n /dev/ram0 > subsystems/$NQN/namespaces/1/device_path
echo 1 > subsystems/$NQN/namespaces/1/enable
ln -s /sys/kernel/config/nvmet/hosts/$HOST subsystems/$NQN/allowed_hosts/$HOST
ln -s /sys/kernel/config/nvmet/subsystems/$NQN ports/1/subsystems/$NQN
echo "the target is up"
tell ready
for METHOD in $METHODS; do
    await $METHOD
    echo -n "hmac(${METHOD%-*})" > hosts/$HOST/dhchap_hash
    echo -n ${METHOD#*-} > hosts/$HOST/dhchap_dhgroup
    tell $METHOD
done
await end
! dmesg | grep -iE "BUG|WARNING|call trace"
echo "nothing in the kernel's log"
