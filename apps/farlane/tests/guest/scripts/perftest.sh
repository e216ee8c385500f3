# perftest's programs and rping of rdma-core, on an RDMA device of the kernel, as either end of a measurement. Each line of output
# that a test wants is printed when what came before it went well. LINK, MTU, HERE, THERE, WRITES, SIZE and COUNT come from the test:
# this guest's address, the machine's, and whether the machine's server can be measured with by ib_write_lat.
set -e
ip link set eth0 mtu $MTU
rdma link add link0 type $LINK netdev eth0
programs="ib_send_lat ib_write_lat ib_read_lat ib_send_bw ib_write_bw ib_read_bw"
ib_send_lat --version || true
run() { "$@" >/tmp/out 2>&1 || { echo "$*"; cat /tmp/out; exit 1; }; }
# Waits for the end of a program that was started in the background, whose words are in /tmp/theirs.
ended() { wait $1 || { cat /tmp/theirs; exit 1; }; }

# The machine serves, twice each. Only for ib_write_lat do the sizes of both ends have to be the same.
for program in $programs; do
    [ $program = ib_write_lat ] && [ $WRITES = no ] && continue
    await "$program is served"
    short=64
    [ $program = ib_write_lat ] && short=$SIZE
    for size in $SIZE $short; do
        run $program -F -R -n $COUNT -s $size $THERE
        grep "^ $size" /tmp/out
    done
    tell "measured"
    echo "client $program"
done

# The machine measures.
for program in $programs; do
    $program -F -R -n $COUNT -s $SIZE >/tmp/theirs 2>&1 &
    server=$!
    sleep 1
    tell "$program serves"
    await "$program has served"
    ended $server
    echo "server $program"
done
rping -s -a $HERE -S $SIZE >/tmp/theirs 2>&1 &
server=$!
sleep 1
tell "rping serves"
await "rping has served"
kill $server 2>/dev/null || true
echo "server rping"

# Both ends are here, and our program uses the same device through its library.
for program in ib_write_lat ib_send_bw; do
    farlane measure rdma serve --json --provider verbs --listen $HERE:18515 --perftest $program --size $SIZE --iters $COUNT \
        >/tmp/serving 2>/tmp/ours &
    server=$!
    for i in $(seq 100); do [ -s /tmp/serving ] && break; sleep 0.1; done
    run $program -F -R -n $COUNT -s $SIZE $HERE
    kill $server
    wait $server || { cat /tmp/ours; exit 1; }
    rm /tmp/serving
    echo "verbs client $program"
    case $program in
    *_lat) action=ping ;;
    *_bw) action=bench ;;
    esac
    $program -F -R -n $COUNT -s $SIZE >/tmp/theirs 2>&1 &
    server=$!
    sleep 1
    run farlane measure rdma $action --provider verbs $HERE:18515 --peer perftest --verb $(echo $program | cut -d_ -f2) \
        --size $SIZE --iters $COUNT
    ended $server
    echo "verbs server $program"
done
dmesg | grep -E '(siw|rxe).*(timeout|fail|unexpected|bad)|BUG:|WARNING:' && exit 1
echo "nothing in the kernel's log"
