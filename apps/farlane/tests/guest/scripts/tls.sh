# How Linux's NVMe/TCP encrypts: its initiator with farlane's target, and its target with farlane's host. PORT, NQN, HOST,
# KEY (a text that farlane made), IDENTITY and PSK (version 0, derived by farlane) come from the test.
mkdir -p /etc/nvme /sys/kernel/config
echo $HOST >/etc/nvme/hostnqn
echo ${HOST##*:} >/etc/nvme/hostid
printf '[debug]\nloglevel=1\n[authenticate]\nkeyrings=.nvme\n[authenticate.client]\n[authenticate.server]\n' >/etc/tlshd.conf
tlshd -s >/tmp/tlshd.log 2>&1 &
AT="-t tcp -a 10.0.2.2 -s $PORT"
wait_until_gone() { for i in $(seq 200); do [ -e /dev/nvme0 ] || return 0; sleep 0.05; done; echo "nvme0 stays"; exit 1; }
leave() { nvme disconnect -n $NQN >/dev/null; wait_until_gone; }
insert() { nvme check-tls-key --insert --hostnqn $HOST --subsysnqn $1 --identity 1 --keydata "$2" >/dev/null; }
fail() { echo "$1"; tail -20 /tmp/tlshd.log; dmesg | tail -5; exit 1; }

nvme discover $AT | grep -A12 "subnqn:  $NQN" | grep -q "sectype: tls13" && echo "discovered: TLS 1.3"
nvme connect $AT -n $NQN 2>/dev/null && fail "connected without TLS"
echo "without TLS: refused"

# Version 0, by the PSK that the specification says.
keyctl link %:.nvme @s 2>/dev/null
echo -n "$PSK" | sed 's/../\\x&/g' | xargs -0 printf "%b" | keyctl padd psk "$IDENTITY" %:.nvme >/tmp/id || fail "no key"
nvme connect $AT -n $NQN --tls || fail "not connected by version 0"
appears /dev/nvme0n1
dd if=/dev/nvme0n1 of=/dev/null bs=64k count=4 iflag=direct 2>/dev/null && echo "encrypted by identity version 0"
leave
keyctl unlink $(cat /tmp/id) %:.nvme >/dev/null

# Version 1, by nvme-cli.
insert $NQN "$KEY" || fail "nvme-cli refuses the key"
nvme connect $AT -n $NQN --tls --nr-io-queues=2 || fail "not connected by version 1"
appears /dev/nvme0n1
fio --name=one --filename=/dev/nvme0n1 --rw=randrw --bsrange=4k-128k --iodepth=32 --ioengine=libaio --direct=1 \
    --verify=crc32c --size=8m --minimal >/tmp/fio && echo "fio verified, encrypted by identity version 1"
nvme reset /dev/nvme0
appears /dev/nvme0n1
dd if=/dev/nvme0n1 of=/dev/null bs=64k count=4 iflag=direct 2>/dev/null && echo "encrypted after a reset"
leave
# Another key has another identity of version 1, which the target does not know.
other=$(nvme gen-tls-key --hmac=1) || fail "no other key"
echo "made $other"
keyctl clear %:.nvme 2>/dev/null
insert $NQN "$other" || fail "its own key is refused"
nvme connect $AT -n $NQN --tls 2>/dev/null && fail "connected by a wrong key"
echo "by a wrong key: refused"

# The kernel's own target, for farlane's host.
kernel=nqn.2014-08.org.example:kernel
insert $kernel "$KEY" || fail "no key for the kernel's target"
set -e
mount -t configfs none /sys/kernel/config
cd /sys/kernel/config/nvmet
mkdir subsystems/$kernel
echo 1 >subsystems/$kernel/attr_allow_any_host
mkdir subsystems/$kernel/namespaces/1
echo -n /dev/ram0 >subsystems/$kernel/namespaces/1/device_path
echo 1 >subsystems/$kernel/namespaces/1/enable
mkdir ports/1
echo tcp >ports/1/addr_trtype
echo ipv4 >ports/1/addr_adrfam
echo 0.0.0.0 >ports/1/addr_traddr
echo 4420 >ports/1/addr_trsvcid
echo tls1.3 >ports/1/addr_tsas
echo required >ports/1/addr_treq
ln -s /sys/kernel/config/nvmet/subsystems/$kernel ports/1/subsystems/$kernel
tell "the target is up"
await "end"
dmesg | grep -i nvmet | tail -10 || true
! dmesg | grep -E "BUG|WARNING|general protection"
echo "done"
