//! perftest's programs and rping of rdma-core, on a guest's kernel that does RDMA in software, as
//! clients of our server and as servers of our client: over UDP datagrams (rxe) and over TCP (siw).

use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use guest::{Guest, Kit, Running, skip};

use crate::support::{Export, FARLANE, fail, json, own_network, stripped};

/// Script of what the guest does.
const SCRIPT: &str = include_str!("scripts/perftest.sh");
/// How long a guest may take for one thing.
const LIMIT: Duration = Duration::from_secs(120);
const PROGRAMS: [&str; 6] =
    ["ib_send_lat", "ib_write_lat", "ib_read_lat", "ib_send_bw", "ib_write_bw", "ib_read_bw"];
/// Bytes at a time: several packets. perftest's reads and writes go round in a page.
const SIZE: &str = "8192";
const COUNT: &str = "200";

/// Modules that Debian's kernel needs. Where a kernel has one built in, nothing is inserted.
const MODULES: [&str; 4] = ["crc32_generic", "rdma_rxe", "ib_uverbs", "rdma_ucm"];

/// One guest at a time: guests are interpreted, and their servers are given a second to listen.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wait(guest: &mut Running, words: &str) {
    guest.expect(words, LIMIT).unwrap_or_else(|error| panic!("{words}: {error}"));
}

/// Measures with `ib_VERB_MODE` of the guest.
fn measure(program: &str, provider: &str) {
    let mut parts = program.split('_').skip(1);
    let (verb, mode) = (parts.next().unwrap(), parts.next().unwrap());
    let action = if mode == "lat" { "ping" } else { "bench" };
    let at = format!("{}:18515", own_network::GUEST);
    let given = ["rdma", action, &at, "--provider", provider, "--peer", "perftest", "--verb", verb];
    let row = &json(&[&given[..], &["--size", SIZE, "--iters", COUNT, "--json"]].concat())["rows"][0];
    assert_eq!((&row["verb"], &row["bytes"]), (&verb.into(), &8192.into()), "{row}");
    println!("farlane measure rdma {action} --peer perftest --verb {verb}: {row}");
}

/// Lets all programs be both ends, over `link` of the guest and our `provider`.
fn meet(kit: &Kit, (link, mtu, provider): (&str, u16, &str)) {
    let directory = tempfile::tempdir().unwrap();
    let (here, there) = (own_network::HERE, own_network::GUEST);
    // Over iWARP, who accepts may not write first, as ib_write_lat's server does.
    let writes = if provider == "roce" { "yes" } else { "no" };
    let known =
        format!("LINK={link} MTU={mtu} HERE={there} THERE={here} WRITES={writes} SIZE={SIZE} COUNT={COUNT}");
    let builder = Guest::builder(kit).unwrap().modules(MODULES).unwrap().memory_mib(1024).limit(LIMIT * 3);
    let builder = builder.tap_network(own_network::INTERFACE, own_network::GUEST_WITH_PREFIX).unwrap();
    let mut builder = builder.rdma().unwrap().tools(PROGRAMS).unwrap().tools(["rping"]).unwrap();
    builder.initramfs().program("usr/bin/farlane", &stripped(directory.path())).unwrap();
    let mut guest = builder.script(format!("{known}\n{SCRIPT}")).start().unwrap();
    let mut said = vec!["server rping".to_owned(), "nothing in the kernel's log".to_owned()];
    let at = format!("{here}:18515");
    for program in PROGRAMS {
        let mut command = Command::new(&*FARLANE);
        command.args(["measure", "rdma", "serve", "--provider", provider, "--listen", &at, "--json"]);
        command.args(["--perftest", program, "--size", SIZE, "--iters", COUNT]);
        if program == "ib_write_lat" && writes == "no" {
            let given = ["rdma", "serve", "--provider", "iwarp", "--listen", &at, "--perftest", program];
            assert!(fail(&given).contains("RFC 5044"));
            continue;
        }
        let served = Export::of(command);
        guest.tell(&format!("{program} is served")).unwrap();
        guest
            .expect("measured", LIMIT)
            .unwrap_or_else(|error| panic!("{program}: {error}\n{}", served.said()));
        said.push(format!("client {program}"));
    }
    for program in PROGRAMS {
        wait(&mut guest, &format!("{program} serves"));
        measure(program, provider);
        guest.tell(&format!("{program} has served")).unwrap();
        said.push(format!("server {program}"));
    }
    wait(&mut guest, "rping serves");
    let at = format!("{there}:7174");
    let given = ["rdma", "ping", &at, "--provider", provider, "--peer", "rping", "--size", SIZE];
    let row = &json(&[&given[..], &["--iters", COUNT, "--json"]].concat())["rows"][0];
    assert_eq!((&row["verb"], &row["iterations"]), (&"rping".into(), &200.into()), "{row}");
    guest.tell("rping has served").unwrap();
    for (role, program) in ["client", "server"]
        .into_iter()
        .flat_map(|role| ["ib_write_lat", "ib_send_bw"].map(|one| (role, one)))
    {
        said.push(format!("verbs {role} {program}"));
    }
    let outcome = guest.finish().unwrap().expect_success();
    println!("{}", outcome.output);
    for line in said {
        assert!(outcome.output.lines().any(|one| one == line), "{line:?} in {}", outcome.output);
    }
}

#[test]
fn perftest_over_rxe_and_ours_measure_each_other() {
    let Some(kit) = skip::full_kit_or_skip("perftest's programs over rxe") else { return };
    let _turn = turn();
    if own_network::is_inside(own_network::test_path!("perftest_over_rxe_and_ours_measure_each_other")) {
        meet(kit, ("rxe", 4200, "roce"));
    }
}

#[test]
fn perftest_over_siw_and_ours_measure_each_other() {
    let Some(kit) = skip::built_kit_or_skip("perftest's programs over siw") else { return };
    let _turn = turn();
    if own_network::is_inside(own_network::test_path!("perftest_over_siw_and_ours_measure_each_other")) {
        meet(kit, ("siw", 1500, "iwarp"));
    }
}
