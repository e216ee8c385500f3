# The kernel's own NVMe/TCP target: two ports of one subsystem, a namespace in memory, ANA.
set -e
mkdir -p /sys/kernel/config
mount -t configfs none /sys/kernel/config
cd /sys/kernel/config/nvmet
nqn=nqn.2014-08.org.example:kernel
mkdir subsystems/$nqn
echo 1 > subsystems/$nqn/attr_allow_any_host
mkdir subsystems/$nqn/namespaces/1
echo -n /dev/ram0 > subsystems/$nqn/namespaces/1/device_path
echo 1 > subsystems/$nqn/namespaces/1/enable
for port in 1 2; do
    mkdir ports/$port
    echo tcp > ports/$port/addr_trtype
    echo ipv4 > ports/$port/addr_adrfam
    echo 0.0.0.0 > ports/$port/addr_traddr
    echo $((4419 + port)) > ports/$port/addr_trsvcid
    ln -s /sys/kernel/config/nvmet/subsystems/$nqn ports/$port/subsystems/$nqn
done
echo "the target is up"
tell ready
for state in inaccessible optimized; do
    await $state
    echo $state > ports/1/ana_groups/1/ana_state
    tell $state
done
# Taking a subsystem from a port drops the connections that came by it.
await cut
rm ports/1/subsystems/$nqn
tell cut
await join
ln -s /sys/kernel/config/nvmet/subsystems/$nqn ports/1/subsystems/$nqn
tell join
await end
dmesg | grep -i nvmet || true
! dmesg | grep -iE "nvmet.*(fail|error|invalid|unexpected|bad)|BUG|WARNING"
echo "nothing in the kernel's log"
