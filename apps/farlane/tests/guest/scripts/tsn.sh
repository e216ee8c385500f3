# Two network namespaces of a guest, joined by a pair of interfaces whose gates follow a plan: a far
# SSD over bare frames in the plan's windows, and others at full rate beside it. CYCLE and ERROR come
# from the test.
set -e
# busybox would take its own.
ip() { /usr/sbin/ip "$@"; }
tc() { /usr/sbin/tc "$@"; }
ip netns add near
ip netns add far
ip link add near numtxqueues 8 numrxqueues 8 type veth peer name far numtxqueues 8 numrxqueues 8
for end in near far; do
    ip link set $end netns $end
    ip -n $end link set lo up
    ip -n $end link set $end up
done
ip -n near addr add 10.1.0.1/24 dev near
ip -n far addr add 10.1.0.2/24 dev far
NEAR="/usr/sbin/ip netns exec near"
FAR="/usr/sbin/ip netns exec far"

frames=$(for i in 1 2 3 4 5 6 7 8 9 10 11 12; do echo --frame 1518; done)
farlane model tsn plan --rate 100Mbit/s --cycle $CYCLE --hops 1 $frames --clock-error $ERROR --software \
    --messages 1 --json >/tmp/plan.json
echo "PLAN $(cat /tmp/plan.json)"

# Gates, launch times, a shaper; and everything undone.
$NEAR farlane model tsn apply /tmp/plan.json --interface near --software --launch-times --shaper 3=10Mbit/s >/tmp/applied
$NEAR tc qdisc show dev near | grep -q "taprio 100: root" && echo "taprio is there"
$NEAR tc qdisc show dev near | grep -q "etf .*parent 100:8" && echo "etf is there"
$NEAR tc qdisc show dev near | grep -q "cbs .*parent 100:4" && echo "cbs is there"
$NEAR farlane model tsn apply --interface near --remove >/tmp/applied
$NEAR tc qdisc show dev near | grep -q taprio || echo "undone"
$NEAR farlane model tsn apply --interface near --shaper 3=10Mbit/s >/tmp/applied 2>&1 || cat /tmp/applied
$NEAR tc qdisc show dev near | grep -q "mqprio 100: root" && echo "mqprio is there"
$NEAR farlane model tsn apply --interface near --remove >/tmp/applied

for end in near far; do
    ip netns exec $end farlane model tsn apply /tmp/plan.json --interface $end --software --launch-times --delta $DELTA \
        >/tmp/applied
done

$FAR farlane export --insecure --no-sandbox --listen 10.1.0.2:4430 --ram 64MiB --eth far,pcp=7 --spin 0ms \
    --launch /tmp/plan.json,lead=$LEAD --json >/tmp/far 2>/tmp/far.err &
for i in $(seq 100); do [ -s /tmp/far ] && break; sleep 0.1; done
[ -s /tmp/far ] || { cat /tmp/far.err; exit 1; }
MAC=$(sed 's/.*"eth":"[^"]*\/\([^"]*\)".*/\1/' /tmp/far)
URL=eth:near,pcp=7/$MAC

$NEAR farlane bench $URL --launch /tmp/plan.json,lead=$LEAD --rw randrw --bs 4k --iodepth 1 --runtime 2s --verify \
    --timeout 60s >/tmp/bench 2>&1 && echo "verified in windows" || cat /tmp/bench

# Others at full rate, and a second flow of the same class, while the windows are watched. Each has a
# far end of its own.
$FAR farlane export --insecure --no-sandbox --listen 10.1.0.2:4431 --ram 64MiB --spin 0ms >/tmp/far2 2>&1 &
$FAR farlane export --insecure --no-sandbox --listen 10.1.0.2:4432 --ram 16MiB --spin 0ms --udp 10.1.0.2:4433 \
    --priority 7 --dscp CS7 --launch /tmp/plan.json,lead=$LEAD >/tmp/far3 2>&1 &
for i in $(seq 200); do [ -s /tmp/far2 ] && [ -s /tmp/far3 ] && break; sleep 0.1; done
$NEAR farlane bench tcp://10.1.0.2:4431 --rw randwrite --bs 128k --iodepth 8 --runtime 60s --spin 0ms --timeout 60s \
    >/tmp/others 2>&1 &
OTHERS=$!
sleep 1
$NEAR farlane measure ping $URL --launch /tmp/plan.json,lead=$LEAD --count 50 --spin 0ms --json --timeout 60s >/tmp/ping 2>/tmp/ping.err &
PING=$!
$NEAR farlane measure ping udp://10.1.0.2:4433 --priority 7 --dscp CS7 --launch /tmp/plan.json,lead=$LEAD --count 50 \
    --spin 0ms --json --timeout 60s >/tmp/ping2 2>/tmp/ping2.err &
SECOND=$!
sleep 2
$NEAR farlane model tsn audit /tmp/plan.json --interface near --for 6s --error $ERROR --json >/tmp/check 2>/tmp/check.err \
    && echo "the plan is kept" || cat /tmp/check.err
wait $PING || cat /tmp/ping.err
wait $SECOND || cat /tmp/ping2.err
kill $OTHERS || true
echo "CHECK $(cat /tmp/check)"
echo "PING $(cat /tmp/ping)"
echo "SECOND $(cat /tmp/ping2)"
grep -h "missed their times" /tmp/far.err /tmp/ping.err /tmp/ping2.err | tail -1 || true
echo "done"
