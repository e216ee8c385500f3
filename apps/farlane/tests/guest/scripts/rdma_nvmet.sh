# The kernel's own NVMe/RDMA target, over RDMA that the kernel does in software: a namespace in memory. LINK, MTU and HERE come
# from the test.
set -e
ip link set eth0 mtu $MTU
rdma link add link0 type $LINK netdev eth0
mkdir -p /sys/kernel/config
mount -t configfs none /sys/kernel/config
cd /sys/kernel/config/nvmet
nqn=nqn.2014-08.org.example:kernel
mkdir subsystems/$nqn
echo 1 > subsystems/$nqn/attr_allow_any_host
mkdir subsystems/$nqn/namespaces/1
echo -n /dev/ram0 > subsystems/$nqn/namespaces/1/device_path
echo 1 > subsystems/$nqn/namespaces/1/enable
mkdir ports/1
echo rdma > ports/1/addr_trtype
echo ipv4 > ports/1/addr_adrfam
echo $HERE > ports/1/addr_traddr
echo 4420 > ports/1/addr_trsvcid
ln -s /sys/kernel/config/nvmet/subsystems/$nqn ports/1/subsystems/$nqn
echo "the target is up"
tell ready
await end
dmesg | grep -iE "nvmet|siw|rxe" || true
! dmesg | grep -iE "(nvmet|siw|rxe).*(fail|error|invalid|unexpected|bad)|BUG|WARNING"
echo "nothing in the kernel's log"
