# A Debian that systemd starts, in namespaces of its own: the package is installed, its units are
# started, reloaded and upgraded while hosts use them. /debs has the packages; words for each step.
set -e
mkdir -p /newroot
mount -t ext4 /dev/nvme0n1 /newroot
cp /debs/*.deb /newroot/root/
cat >/start <<'END'
mount -t proc proc /newroot/proc
mount -t sysfs sys /newroot/sys
mount -t cgroup2 cgroup /newroot/sys/fs/cgroup
mount -t devtmpfs dev /newroot/dev
mkdir -p /newroot/dev/shm
mount -t tmpfs run /newroot/run
cd /newroot
mount --move . /
exec chroot . /usr/bin/env -i container=guest PATH=/usr/sbin:/usr/bin /usr/lib/systemd/systemd
END
unshare -m -u -i -p -f sh /start >/dev/console 2>&1 &
shell=$!
init=
for i in $(seq 600); do
    init=$(cat /proc/$shell/task/$shell/children 2>/dev/null | cut -d" " -f1)
    [ -n "$init" ] && [ -e /proc/$init/root/run/systemd/private ] && break
    sleep 0.2
done
within() { nsenter -t "$init" -m -u -i -p -r -- /usr/bin/env -i PATH=/usr/sbin:/usr/bin HOME=/root "$@"; }
# Entries of the journal, with those that it was sent and has not written yet.
journal() {
    within journalctl --sync || true
    within journalctl --no-pager "$@"
}
fail() {
    echo "FAILED: $*"
    within systemctl --no-pager status 'farlane-*' || true
    within journalctl --no-pager -n 60 || true
    exit 1
}
within systemctl is-system-running --wait || true
echo "systemd runs: $(within systemctl --version | head -n 1)"

now() { cut -d. -f1 /proc/uptime; }
began=$(now)
within dpkg -i /root/one.deb || fail "the package is not installed"
install=$(($(now) - began))
nqn=nqn.2026-01.io.farlane:disk
mkdir -p /tmp
within sh -c 'cp /usr/share/doc/farlane/examples/target.toml /etc/farlane/target/disk.toml
    cp /usr/share/doc/farlane/examples/export.toml /etc/farlane/export/disk.toml
    sed -i s/2GiB/64MiB/ /etc/farlane/*/disk.toml' || fail "there are no examples"
for kind in target export; do
    within systemctl enable --now farlane-$kind@disk || fail "$kind does not start"
    [ "$(within systemctl show -P ActiveState farlane-$kind@disk)" = active ] || fail "$kind is not active"
    echo "$kind says: $(within systemctl show -P StatusText farlane-$kind@disk)"
    [ "$(within systemctl show -P User farlane-$kind@disk)" = farlane ] || fail "$kind is somebody else"
done
within farlane measure ping tcp://127.0.0.1:4430 --count 10 || fail "the far end does not answer"
within farlane observe status /run/farlane-target-disk/control || fail "the target does not tell"

# nvme-stas: stafd finds subsystems by the discovery service, and stacd connects Linux to them.
within sh -c 'mkdir -p /etc/nvme && stasadm hostnqn -f /etc/nvme/hostnqn && stasadm hostid -f /etc/nvme/hostid
    printf "[Controllers]\ncontroller = transport=tcp;traddr=127.0.0.1;trsvcid=4420\n" >/etc/stas/stafd.conf'
within systemctl start stafd stacd || fail "nvme-stas does not start"
found() { for one in /sys/class/nvme/*; do [ "$(cat $one/subsysnqn)" != $nqn ] || echo "$one"; done; }
# An interpreted processor takes its time to start what is written in Python.
for i in $(seq 300); do [ -n "$(found)" ] && break; sleep 0.2; done
[ -n "$(found)" ] || { within journalctl --no-pager -n 60 -u stafd -u stacd; fail "stacd finds no disk"; }
within stafctl ls | grep -q 127.0.0.1 || fail "stafd has no discovery controller"
within stacctl ls | grep -q $nqn || fail "stacd does not know the disk"

# A block device, whose unit runs as root but reaches little. It is gone when its unit has ended.
within cp /usr/share/doc/farlane/examples/connect.toml /etc/farlane/connect/disk.toml
within systemctl start farlane-connect@disk || fail "connect does not start"
echo "connect says: $(within systemctl show -P StatusText farlane-connect@disk)"
within sh -c 'head -c 1M /dev/urandom >/root/random && dd if=/root/random of=/dev/ublkb0 bs=64k oflag=direct status=none &&
    dd if=/dev/ublkb0 bs=64k count=16 iflag=direct status=none | cmp - /root/random' || fail "the block device does not keep what is written"
within systemctl restart farlane-connect@disk || fail "connect does not start again"
within systemctl stop farlane-connect@disk || fail "connect does not end"
[ ! -e /proc/$init/root/dev/ublkb0 ] || fail "the block device stays"

# Reload: what the file says by now, and a wrong file.
within sh -c 'printf "\n[[subsystem.namespace]]\nram = \"1MiB\"\n" >>/etc/farlane/target/disk.toml
    echo "ram = \"1MiB\"" >>/etc/farlane/export/disk.toml'
for kind in target export; do
    within systemctl reload farlane-$kind@disk || fail "$kind does not reload"
    journal -o cat -u farlane-$kind@disk | grep -q "has namespace 2" || fail "$kind has no namespace 2"
    within sh -c "echo 'speed = 7' >>/etc/farlane/$kind/disk.toml"
    ! within systemctl reload farlane-$kind@disk || fail "$kind takes a wrong file"
    within sed -i '/speed/d' /etc/farlane/$kind/disk.toml
    [ "$(within systemctl show -P ActiveState farlane-$kind@disk)" = active ] || fail "$kind has ended"
done
for i in $(seq 50); do [ "$(ls -d "$(found)"/nvme*n* | wc -l)" = 2 ] && break; sleep 0.2; done
[ "$(ls -d "$(found)"/nvme*n* | wc -l)" = 2 ] || fail "Linux does not hear of the new namespace"
within systemctl stop stacd stafd
for one in /sys/class/nvme/*; do [ "$(cat $one/transport)" != tcp ] || echo 1 >$one/delete_controller; done
echo "stafd and stacd have found the disk, and a namespace that came later"
# Saved by root: the service itself may not write there.
within farlane export add --ram 2MiB --control /run/farlane-export-disk/control || fail "nothing was added"
within farlane export save --control /run/farlane-export-disk/control || fail "nothing was saved"
within grep -q 2097152 /etc/farlane/export/disk.toml || fail "the file does not say it"
echo "reloaded and saved"

# Entries of the journal have fields.
journal -o json -u farlane-target@disk | grep -q '"SYSLOG_IDENTIFIER":"farlane"' || fail "no fields"
journal -o json -t farlane FARLANE_NSID=3 | grep -q 'has namespace 3' || fail "no field for the namespace"

# Idle services take no processor time.
spent() { within systemctl show -P CPUUsageNSec farlane-$1@disk; }
for kind in target export; do eval "before_$kind=$(spent $kind)"; done
sleep 10
for kind in target export; do
    eval "took=\$((($(spent $kind) - before_$kind) / 1000))"
    echo "$kind idle for 10 s: $took us of processor time"
    [ "$took" -lt 200000 ] || fail "$kind is busy while idle"
done

# An upgrade under load: no command fails. The load has to outlast the upgrade, which takes as long
# as the machine that interprets this one lets it, and leaves it most of the processors.
load() { within farlane bench "$1" --namespace 1 --rw randrw --verify --iodepth 4 --rate_iops 40 --runtime $((40 + 3 * install))s --timeout 90s; }
load nvme-tcp://127.0.0.1:4420/$nqn >/tmp/target.load 2>&1 & one=$!
load tcp://127.0.0.1:4430 >/tmp/export.load 2>&1 & two=$!
sleep 8
pids() { for kind in target export; do within systemctl show -P MainPID farlane-$kind@disk; done; }
old=$(pids | tr '\n' ' ')
began=$(now)
within dpkg -i /root/two.deb || fail "the upgrade failed"
new=$(pids | tr '\n' ' ')
echo "processes before: $old after: $new; installed in $install s, upgraded in $(($(now) - began)) s"
for pid in $new; do case " $old" in *" $pid "*) fail "a service was not restarted" ;; esac; done
kill -0 $one && kill -0 $two || fail "the load had ended before the upgrade"
wait $one || { cat /tmp/target.load; fail "a command of the target failed"; }
wait $two || { cat /tmp/export.load; fail "a command of the far end failed"; }
cat /tmp/target.load /tmp/export.load
for kind in target export; do
    [ "$(within systemctl show -P NRestarts farlane-$kind@disk)" = 0 ] || fail "$kind was restarted by systemd"
done
within dpkg -r farlane || fail "the package stays"
[ "$(within systemctl show -P ActiveState farlane-target@disk)" = inactive ] || fail "the target outlives its package"
# What the guest's end would wait for is waited for here.
kill -9 "$init"
wait $shell || true
sync
echo "upgraded with no failed command"
