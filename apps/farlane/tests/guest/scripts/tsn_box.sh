# A box with a far SSD behind gates: eth0 leads to a pair of interfaces that have a plan's gates in
# both directions, and the far end is behind them. Frames come in VLAN 3, and their priority with them.
# MAC comes from the test.
set -e
# busybox would take its own.
ip() { /usr/sbin/ip "$@"; }
tc() { /usr/sbin/tc "$@"; }
ip link set eth0 up
ip link add link eth0 name eth0.3 type vlan id 3 ingress-qos-map 7:7 egress-qos-map 7:7
ip link add switch0 type bridge
ip link add port numtxqueues 8 numrxqueues 8 type veth peer name inner address $MAC numtxqueues 8 numrxqueues 8
ip link set eth0.3 master switch0
ip link set port master switch0
for interface in eth0.3 switch0 port inner; do ip link set $interface up; done

frames=$(for i in 1 2 3 4 5 6 7 8 9 10 11 12; do echo --frame 1518; done)
farlane model tsn plan --rate 100Mbit/s --cycle 10ms --hops 1 $frames --clock-error 1ms --software --messages 1 \
    --json >/tmp/plan.json
for interface in port inner; do
    farlane model tsn apply /tmp/plan.json --interface $interface --software >/tmp/applied
    tc qdisc show dev $interface | grep -q "taprio 100: root"
done
echo "gates are there"

truncate -s 64M /disk.img
farlane export --insecure --no-sandbox --listen 127.0.0.1:0 --namespace /disk.img --serial GATED \
    --eth inner --priority 7 --json >/tmp/far 2>/tmp/far.err &
for i in $(seq 200); do [ -s /tmp/far ] && break; sleep 0.1; done
[ -s /tmp/far ] || { cat /tmp/far.err; exit 1; }
tell "far"
await "over"
tc -s qdisc show dev inner | grep -A1 "taprio" | tail -1
tc -s qdisc show dev port | grep -A1 "taprio" | tail -1
cat /tmp/far.err
