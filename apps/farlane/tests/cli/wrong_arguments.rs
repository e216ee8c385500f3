//! Wrong requests are refused by name and value, with the expected form.

use std::fmt::Write as _;
use std::process::Command;

use crate::support::running::Running;
use crate::support::{Export, FARLANE, fail, farlane};

/// File of the message about each wrong input, for people to read.
const KEPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cli/wrong_arguments.txt");
/// Name of the environment variable that makes the test write [`KEPT`] anew.
const KEEP: &str = "FARLANE_KEEP_MESSAGES";

/// Wrong inputs, one command line each, to be run in a directory with [`FILES`].
const WRONG: &str = "\
export --ram 1MiB --allow-path nowhere
target --listen 0.0.0.0:0 --nqn nqn.2026-01.io.farlane:disk --ram 1MiB
target --nqn nqn.2026-01.io.farlane:disk --ram 1MiB --host nqn.2014-08.org.example:one,fast
target --nqn nqn.2026-01.io.farlane:disk --ram 1MiB --tls-key-file nothing
bench nvme-tcp://127.0.0.1:1/nqn.2026-01.io.farlane:disk --tls-key-file nothing
measure ping tcp://127.0.0.1:1 --tls-key-file nothing
setup key tls . --hash sha512
setup key test nothing
setup key show nothing
setup key trust 127.0.0.1:1
setup key trust tcp://0.0.0.0:1?key=any
record --from generate:1MB --to a.rec --buffer 1
record --from generate:1MB --to /dev/full
record --from generate:1MB --to far://one
record --from generate:1MB --to tcp://127.0.0.1
record --from - --from - --to a.rec
record --from file:odd --to odd --force
record --from file:. --to a.rec
recording verify /dev/zero
fly
help fly
id-ctlr tcp://127.0.0.1:1
nvme ping tcp://127.0.0.1:1
nvme formt tcp://127.0.0.1:1
observe trace export capture.pcapng
measure pnig tcp://127.0.0.1:1
demo --size 0
demo --size much
demo --file missing
export
export --ram 0
export --ram 1000
export --ram 1MiB,block=1
export --ram 1MiB --listen far
export --namespace missing
export --namespace odd
export --namespace .
export --vfio nvme0
attach tcp://127.0.0.1:1
attach far --vfio-user ssd.sock
offer device --vfio-user ssd.sock
offer device --ram 7 --vfio-user ssd.sock
target --ram 1MiB
target --nqn disk --ram 1MiB
target --config missing.toml
target --config broken.toml
target --config wrong.toml
observe lspci
observe lspci far
observe lspci tcp://far
observe lspci tcp://127.0.0.1:1 tcp://127.0.0.1:1
nvme identify http://far:80
nvme identify vfio-user:
nvme identify vfio-user:missing
nvme smart-log nvme-tcp://far:1/disk
nvme smart-log quic://far:1
measure ping tcp://far:0
measure ping tcp://far:70000
measure ping tcp://far:1 --count 0
measure ping tcp://far:1 --timeout soon
use read tcp://far:1 --offset -1
use read tcp://far:1 --iodepth 0
use write tcp://far:1 --length much
use write tcp://far:1 --input missing
use discover
use discover tcp://far:1
bench tcp://far:1 --rw fly
bench tcp://far:1 --bs four
bench tcp://far:1 --bs 8GiB
bench tcp://far:1 --runtime 0
bench tcp://far:1 --rw randread --verify
bench tcp://far:1 --spread 0
bench tcp://far:1 --bssplit 4k/50
bench tcp://far:1 --bssplit 4k/50:8k/50,512/50
bench tcp://far:1 --bssplit 4k/50:8k/50 --verify
bench tcp://far:1 --percentile_list 50:101
bench tcp://far:1 --iodepth 512 --numjobs 64
bench tcp://far:1 --job missing.fio
bench tcp://far:1 --job odd
connect
connect far
connect tcp://127.0.0.1:1 --over floppy
connect tcp://127.0.0.1:1 --iodepth 0
connect tcp://127.0.0.1:1 --timeout 0
connect tcp://127.0.0.1:1 --list
use disconnect /dev/nothing
observe list --of target
observe status missing
model sim
model sim missing.toml
model sim broken.toml
model sim wrong.toml
model sim missing.toml --timeline a.csv
model sim empty.toml --timeline a.txt
recording preflight
recording preflight --rate 1MB --for 1s missing/a.rec
recording preflight --rate fast --for 1s a.rec
recording preflight --rate 1MB --for 0 a.rec
recording preflight --rate 1MB --for 1s --model none a.rec
recording preflight --rate 1MB --for 1s --measure-size 1k a.rec
recording preflight --udp 8 --rate 1MB a.rec
recording preflight --udp 0 a.rec
recording preflight --udp 8 --chunk 64k a.rec
measure nic send loop: --count 0
measure nic receive loop: --count 0
model tsn plan --rate fast
model tsn plan --cycle 2s
model emulate
model emulate --link missing.toml --connect 127.0.0.1:1
model emulate --link broken.toml --connect 127.0.0.1:1
model emulate --link wrong.toml --connect 127.0.0.1:1
";

const FILES: [(&str, &str); 4] = [
    ("odd", "1000 bytes these are not"),
    ("broken.toml", "[link\n"),
    ("empty.toml", "[[task]]\nkind = \"read\"\n"),
    ("wrong.toml", "[link]\nspeed = \"fast\"\n"),
];

/// Checks that the program says all of `words` and ends with status 2.
fn assert_refused(arguments: &[&str], words: &[&str]) {
    let output = farlane(arguments);
    let said = String::from_utf8_lossy(&output.stderr).replace('│', " ");
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(output.status.code(), Some(2), "farlane {arguments:?}: {said}");
    assert!(output.stdout.is_empty(), "farlane {arguments:?}");
    for word in words {
        assert!(said.contains(word), "farlane {arguments:?}: {word}: {said}");
    }
}

#[test]
fn arguments_that_cannot_be_are_refused_before_anything_is_done() {
    let url = "tcp://127.0.0.1:1";
    let cases: &[(&[&str], &[&str])] = &[
        (&[], &["Usage"]),
        (&["fly"], &["'fly'", "Usage"]),
        (&["observe", "lspci"], &["<URL>"]),
        (&["export", "--vfio", "/dev/nvme0"], &["'/dev/nvme0'", "0000:01:00.0"]),
        (&["export", "--vfio", "ffff:ff:1f.7"], &["no PCI function ffff:ff:1f.7", "lspci"]),
        (&["observe", "lspci", "far"], &["'far'", "tcp://HOST:PORT"]),
        (&["nvme", "identify", "http://far:80"], &["'http'", "tcp://HOST:PORT"]),
        (&["nvme", "smart-log", "tcp://far"], &["'far'", "HOST:PORT"]),
        (&["measure", "ping", "tcp://far:0"], &["'far:0'", "1 to 65535"]),
        (&["measure", "ping", "tcp://far:70000"], &["'far:70000'", "1 to 65535"]),
        (&["measure", "ping", url, "--count", "0"], &["'0'", "--count", "1..=1000000000"]),
        (&["measure", "ping", url, "--rate", "0"], &["'0'", "--rate", "1..=1000000"]),
        (&["measure", "ping", url, "--timeout", "soon"], &["'soon'", "--timeout", "10s"]),
        (&["bench", url, "--iodepth", "0"], &["'0'", "--iodepth", "1..=1024"]),
        (&["bench", url, "--iodepth", "1025"], &["'1025'", "--iodepth", "1..=1024"]),
        (&["bench", url, "--runtime", "0"], &["'0'", "--runtime", "500ms"]),
        (&["bench", url, "--rw", "fly"], &["'fly'", "--rw", "randwrite"]),
        (&["bench", url, "--bs", "four"], &["'four'", "--bs", "4k"]),
        (&["bench", url, "--namespace", "0"], &["'0'", "--namespace"]),
        (&["bench", url, "--bs", "8GiB"], &["--bs", "8589934592", "less than 4 GiB"]),
        (&["use", "read", url, "--iodepth", "0"], &["'0'", "--iodepth"]),
        (&["use", "write", url, "--offset", "-1"], &["'-1'"]),
        (
            &["bench", url, "--rw", "randread", "--verify"],
            &["--verify compares nothing", "randread", "randwrite"],
        ),
        (&["observe", "lspci", url, url], &["127.0.0.1:1 is given twice", "once"]),
        (&["demo", "--size", "0"], &["'0'", "--size", "64MiB"]),
        (
            &["measure", "nic", "send", "loop:", "--count", "0"],
            &["'0'", "--count", "1..18446744073709551615"],
        ),
        (
            &["measure", "nic", "receive", "loop:", "--count", "0"],
            &["'0'", "--count", "1..18446744073709551615"],
        ),
        (&["model", "tsn", "plan", "--rate", "fast"], &["'fast'", "--rate", "100Mbit/s"]),
        (&["model", "tsn", "plan", "--cycle", "2s"], &["'2s'", "--cycle", "500us"]),
    ];
    for (arguments, words) in cases {
        assert_refused(arguments, words);
    }
}

#[test]
fn what_does_not_fit_the_device_is_refused_by_its_measures() {
    let far = Export::start(&["--ram", "1MiB,block=4096", "--ram", "2MiB"]);
    let url = &far.url();
    let directory = tempfile::tempdir().unwrap();
    let large = directory.path().join("large");
    std::fs::File::create(&large).unwrap().set_len(3 << 20).unwrap();
    let large = large.to_str().unwrap();
    // The commands follow each other at once: a host that is refused leaves the device to the next.
    let cases: &[(&[&str], &[&str])] = &[
        (&["bench", url, "--bs", "512"], &["--bs 512", "block size 4096"]),
        (&["bench", url, "--bs", "6000"], &["--bs 6000", "block size 4096"]),
        (&["bench", url, "--bs", "0"], &["--bs 0", "block size 4096"]),
        (&["bench", url, "--bs", "2MiB"], &["--size 1048576", "at least --bs"]),
        (&["bench", url, "--namespace", "7"], &["namespace 7", "there are: 1, 2"]),
        (&["bench", url, "--size", "0"], &["--size 0", "at least --bs"]),
        (&["bench", url, "--size", "2MiB"], &["--size 2097152", "1048576 bytes"]),
        (&["use", "read", url, "--namespace", "3"], &["namespace 3", "there are: 1, 2"]),
        (
            &["use", "read", url, "--offset", "1MiB"],
            &["--offset 1048576", "below the namespace's size 1048576"],
        ),
        (&["use", "read", url, "--offset", "100"], &["--offset 100", "block size 4096"]),
        (&["use", "read", url, "--length", "2MiB"], &["--length 2097152", "at most 1048576"]),
        (&["use", "read", url, "--bs", "100"], &["--bs 100", "block size 4096"]),
        (&["use", "write", url, "--offset", "2MiB"], &["--offset 2097152", "1048576"]),
        (&["use", "write", url, "--input", large], &["length 3145728", "at most 1048576"]),
    ];
    for (arguments, words) in cases {
        assert_refused(arguments, words);
    }
    let said = Running::fed(&["use", "write", url, "--namespace", "2"], vec![1; 3 << 20]).fail();
    assert!(said.contains("the namespace is full: 2097152 B are written"), "{said}");
    for (arguments, words) in [
        (["use", "write", url, "--input", "/nonexistent/file"], "/nonexistent/file: No such file"),
        (["use", "write", url, "--input", "/"], "/: Is a directory"),
        (["use", "read", url, "--output", "/nonexistent/file"], "/nonexistent/file: No such file"),
    ] {
        let said = fail(&arguments);
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn what_cannot_be_exported_is_refused_by_its_name() {
    let far = Export::start(&["--ram", "1MiB"]);
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (missing, odd, file) = (at("missing"), at("odd,size=1000"), at("file"));
    std::fs::File::create(&file).unwrap().set_len(1 << 20).unwrap();
    let other_size = format!("{file},size=2MiB");
    // An address that another process has is no wrong usage.
    let taken = farlane(&["export", "--ram", "1MiB", "--listen", &far.address]);
    let said = String::from_utf8_lossy(&taken.stderr);
    assert_eq!(taken.status.code(), Some(1), "{said}");
    assert!(said.contains("can't listen on") && said.contains("choose another"), "{said}");
    let cases: &[(&[&str], &[&str])] = &[
        (&[], &["--namespace", "--ram"]),
        (&["--ram", "0"], &["'0'", "positive multiple", "512"]),
        (&["--ram", "1000"], &["'1000'", "512"]),
        (&["--ram", "much"], &["'much'", "64MiB"]),
        (&["--ram", "1MiB,block=1"], &["'1'", "512 or 4096"]),
        (&["--ram", "1MiB,fast"], &["'fast'", "block=512"]),
        (&["--pool", "1000"], &["1000 bytes", "multiple of 4096"]),
        (&["--namespace", ""], &["path"]),
        (&["--namespace", &at("")], &["is a directory", "give a file"]),
        (&["--namespace", "/dev/null"], &["/dev/null", "neither a file nor a block device"]),
        (&["--namespace", &missing], &["missing: does not exist", "give size="]),
        (&["--namespace", &odd], &["size 1000 B", "512 and 1024"]),
        (&["--namespace", &at("none,size=0")], &["0 B", "less than one block"]),
        (&["--namespace", &at("file,block=100")], &["'100'", "512 or 4096"]),
        (&["--namespace", &at("file,fast")], &["'fast'", "readonly"]),
        (&["--namespace", &other_size], &["1048576 B", "size=2097152"]),
        (&["--namespace", &file, "--namespace", &file], &["file: is in use"]),
        (
            &["--ram", "1MiB", "--cpu", "99999"],
            &["--cpu", "no processor 99999", "this process may use", "leave --cpu out"],
        ),
        (&["--ram", "1MiB", "--listen", "far"], &["'far'", "--listen"]),
        (&["--listen", "127.0.0.1:0", "--listen", "127.0.0.1:0", "--ram", "1MiB"], &["nothing to offer"]),
        (
            &["--ram", "1MiB", "--serial", "S", "--listen", "127.0.0.1:0", "--listen", "127.0.0.1:0"],
            &["--serial S", "2 far ends", "leave it out"],
        ),
        (&["--ram", "1MiB", "--serial", "123456789012345678901"], &["--serial", "1 to 20"]),
    ];
    for (arguments, words) in cases {
        assert_refused(&[&["export"], *arguments].concat(), words);
    }
    assert!(!std::path::Path::new(&at("odd")).exists(), "nothing is left behind");
}

/// [`KEPT`] is for a reviewer to read: does each message name the value, the expected form, and the
/// remedy?
#[test]
fn what_is_said_of_wrong_inputs_is_what_was_kept() {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in FILES {
        std::fs::write(directory.path().join(name), text).unwrap();
    }
    let mut said = String::new();
    for line in WRONG.lines() {
        let mut command = Command::new(&*FARLANE);
        command.current_dir(directory.path()).args(line.split(' '));
        let output = command.stdin(std::process::Stdio::null()).output().unwrap();
        let code = output.status.code().expect("an end of its own");
        assert!(code != 0 && output.stdout.is_empty(), "farlane {line}");
        let errors = String::from_utf8_lossy(&output.stderr);
        writeln!(said, "$ farlane {line}\n{}\n[exit {code}]\n", errors.trim_end()).unwrap();
    }
    if std::env::var_os(KEEP).is_some() {
        std::fs::write(KEPT, &said).unwrap();
    }
    let kept = std::fs::read_to_string(KEPT).unwrap();
    for (kept, said) in kept.split("$ ").zip(said.split("$ ")) {
        assert_eq!(said, kept, "read it, and then keep it with {KEEP}=1");
    }
    assert_eq!(said.len(), kept.len(), "{KEEP}=1 keeps all");
}
