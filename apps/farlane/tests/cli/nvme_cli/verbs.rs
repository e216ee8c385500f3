//! Less common commands that nvme-cli has, too: comparing and copying blocks, further logs, resets.

use std::fs;
use std::path::Path;

use super::{NQN, Served, both};
use crate::support::running::{Running, wait_for_listener};
use crate::support::{fail, farlane, json, succeed};
use serde_json::{Value, json};

fn path(folder: &tempfile::TempDir, name: &str) -> String {
    folder.path().join(name).display().to_string()
}

#[test]
fn blocks_are_read_written_compared_and_copied_in_nvme_clis_words() {
    let folder = tempfile::tempdir().unwrap();
    let (data, out, other) = (path(&folder, "data"), path(&folder, "out"), path(&folder, "other"));
    fs::write(&data, (0..4096_u32).map(|byte| byte.to_le_bytes()[0]).collect::<Vec<_>>()).unwrap();
    fs::write(&other, vec![9; 4096]).unwrap();
    for served in both(&["--ram", "8MiB"]) {
        let blocks = ["-n", "1", "-s", "8", "-c", "7"];
        let long = ["--namespace-id", "1", "--start-block", "8", "--block-count", "7", "--data-size", "4096"];
        served.said("write", &[&long[..], &["--data", &data]].concat());
        served.said("read", &[&blocks[..], &["-z", "4096", "-d", &out]].concat());
        assert_eq!(fs::read(&out).unwrap(), fs::read(&data).unwrap());
        served.said("read", &["--offset", "4096", "--length", "4096", "--output", &out]);
        assert_eq!(fs::read(&out).unwrap(), fs::read(&data).unwrap(), "block 8 is byte 4096");
        let wrong = served.refused("read", &[&blocks[..], &["-z", "512", "-d", &out]].concat());
        assert!(wrong.contains("--data-size 512") && wrong.contains("4096"), "{wrong}");
        assert!(served.refused("read", &["-s", "8", "--offset", "0"]).contains("--offset"));

        let report = served.with("write", &[&blocks[..], &["-d", &data, "-o", "json"]].concat());
        assert_eq!(json(&report)["bytes"], 4096);
        let report = served.with("read", &[&blocks[..], &["-d", &out, "--output-format", "json"]].concat());
        assert_eq!(json(&report)["bytes"], 4096);
        let file = served.refused("read", &["-o", "json"]);
        assert!(file.contains("--output-format json"), "{file}");
        assert!(served.refused("verify", &[]).contains("farlane nvme verify"));

        let same = served.said("compare", &[&blocks[..], &["--data", &data]].concat());
        assert_eq!(same, "compare: Success\n");
        let differs = served.refused("compare", &[&blocks[..], &["--data", &other]].concat());
        assert!(differs.contains("Compare Failure"), "{differs}");
        let short = served.refused("compare", &["-s", "0", "-c", "15", "--data", &other]);
        assert!(short.contains("8192"), "{short}");

        let sources = ["--slbs", "8,12", "--blocks", "3,3"];
        served.said("copy", &[&["--sdlba", "100"], &sources[..]].concat());
        served.said("compare", &["-s", "100", "-c", "7", "--data", &data]);
        served.said("copy", &[&["--sdlba", "200", "-f", "-F", "1"], &sources[..]].concat());
        served.said("compare", &["-s", "200", "-c", "7", "--data", &data]);
        assert!(
            served.refused("copy", &["--sdlba", "0", "-s", "1,2", "-b", "0"]).contains("as many as --slbs")
        );

        served.said("write-uncor", &["-s", "100", "-c", "0"]);
        let unreadable = served.refused("read", &["-s", "100", "-c", "0", "-d", &out]);
        assert!(unreadable.contains("Unrecovered Read Error"), "{unreadable}");
    }
}

#[test]
fn names_and_effects_are_reported_in_every_form() {
    for served in both(&["--ram", "8MiB"]) {
        let names = served.json("ns-descs", &["-n", "1"]);
        let nguid = served.json("id-ns", &[])["nguid"].clone();
        let list = names["ns-descs"].as_array().unwrap();
        let own = list.iter().find(|one| one["Type"] == "nguid").unwrap();
        assert_eq!((&own["nguid"], &own["nidl"]), (&nguid, &16.into()));
        assert!(served.said("ns-descs", &[]).contains("nguid : "));

        let effects = served.json("effects-log", &[]);
        assert_eq!(effects[0]["admin_cmd_set"]["ACS_6 (Identify)"].as_u64().map(|word| word & 1), Some(1));
        assert_eq!(effects[0]["io_cmd_set"]["IOCS_1 (Write)"].as_u64().map(|word| word & 0b11), Some(0b11));
        assert!(served.said("effects-log", &["-H"]).contains("[1:1] 0x1  changes blocks"));
        let pages = served.json("supported-log-pages", &[]);
        assert!(pages["supported_logs"].as_array().unwrap().iter().any(|one| !one["lid_0x2 "].is_null()));
        for (verb, length) in [("ns-descs", 4096), ("effects-log", 4096), ("changed-ns-list-log", 4096)] {
            assert_eq!(farlane(&served.with(verb, &["-b"])).stdout.len(), length, "{verb}");
        }
        assert!(served.said("changed-ns-list-log", &[]).contains("no namespace has changed"));
    }
}

#[test]
fn events_and_snapshots_of_a_device_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let file = path(&folder, "telemetry");
    for served in both(&["--ram", "8MiB"]) {
        let events = served.json("persistent-event-log", &[]);
        assert_eq!(events["log_id"], 0x0d, "{events}");
        let list = events["list_of_event_entries"].as_array().unwrap();
        assert_eq!(Some(list.len() as u64), events["total_num_of_events"].as_u64());
        let reset = list.iter().any(|one| one["event_type"] == "Power-on or Reset Event");
        assert!(reset, "{events}");
        let bytes = farlane(&served.with("persistent-event-log", &["-o", "binary"])).stdout;
        assert!(bytes.len() >= 512 && bytes[0] == 0x0d);
        assert!(served.said("persistent-event-log", &[]).contains("Power-on or Reset Event"));
        let early = served.refused("persistent-event-log", &["-a", "0"]);
        assert!(early.contains("Command Sequence Error"), "no context was established: {early}");

        let said = served.json("telemetry-log", &["-O", &file, "-d", "1"]);
        let log = fs::read(&file).unwrap();
        assert_eq!((said["bytes"].as_u64(), log[0]), (Some(log.len() as u64), 7));
        assert!(log.len() > 512 && log.len().is_multiple_of(512));
        assert_eq!(farlane(&served.with("telemetry-log", &["-O", "-", "-d", "1"])).stdout.len(), log.len());
        let own = served.refused("telemetry-log", &["-O", &file, "--controller-init"]);
        assert!(own.contains("made on its own"), "{own}");
    }
}

#[test]
fn groups_and_their_states_are_reported() {
    let plain = Served::far(&["--ram", "8MiB"]);
    assert!(plain.refused("ana-log", &[]).contains("Invalid Log Page"));
    let served = Served::target(&["--ram", "8MiB", "--ram", "4MiB", "--ana-groups", "2"]);
    let log = served.json("ana-log", &[]);
    let group = &log["ANA DESC LIST "][0];
    assert_eq!((&group["state"], &group["nnsids"]), (&"optimized".into(), &2.into()), "{log}");
    assert_eq!(group["NSIDS"][1]["nsid"], 2);
    assert!(served.said("ana-log", &[]).contains("optimized, change 0, namespaces 1, 2\n"));
    let alone = served.json("ana-log", &["--groups"]);
    assert_eq!(alone["ANA DESC LIST "][0]["NSIDS"], json!([]));
}

#[test]
fn what_a_controller_has_not_ends_with_its_status() {
    for served in both(&["--ram", "8MiB"]) {
        for (verb, more, status) in [
            ("id-uuid", &[][..], "Invalid Field"),
            ("endurance-log", &["-g", "1"], "Invalid Log Page"),
            ("virt-mgmt", &["-c", "1", "-r", "0", "-a", "8", "-n", "2"], "Invalid Command Opcode"),
            ("lockdown", &["--ofi", "0x84", "--prhbt", "1"], "Invalid Command Opcode"),
        ] {
            let refused = served.refused(verb, more);
            assert!(refused.contains(status), "{verb}: {refused}");
        }
    }
}

#[test]
fn a_reset_is_real_where_it_lasts_and_explained_elsewhere() {
    let [far, target] = both(&["--ram", "8MiB"]);
    assert!(far.said("reset", &[]).contains("was reset"));
    let fabric = target.refused("reset", &[]);
    assert!(
        fabric.contains("is not possible")
            && fabric.contains("ends with it")
            && fabric.contains("nvme reset"),
        "{fabric}"
    );
    assert!(target.said("subsystem-reset", &[]).contains("was reset"));
    assert_eq!(target.json("id-ns", &[])["nsze"], 16384, "and it serves as before");
    let refused = far.refused("subsystem-reset", &[]);
    assert!(refused.contains("no NVM Subsystem Reset (CAP.NSSRS)"), "{refused}");
}

#[test]
fn registers_are_read_through_a_tunnel_and_behind_vfio_user() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("nvme.sock").to_str().unwrap().to_owned();
    let _device = Running::start(&["device", "--ram", "8MiB", "--vfio-user", &socket]);
    wait_for_listener(&socket);
    let far = Served::far(&["--ram", "8MiB"]);
    for url in [far.url.clone(), format!("vfio-user:{socket}")] {
        let served = Served::elsewhere(url);
        let all = served.json("show-regs", &[]);
        assert_eq!((&all["vs"], all["csts"].as_u64().map(|status| status & 1)), (&0x2_0000.into(), Some(1)));
        assert!(all["cap"].as_u64().is_some_and(|value| value > u64::from(u32::MAX)), "all 64 bits: {all}");
        // The queues of the host that reads.
        assert!(all["asq"].as_u64() > Some(0) && all["acq"].as_u64() > Some(0), "{all}");
        let table = served.said("show-regs", &["-H"]);
        assert!(table.contains("[36:36] 0x0  NVM Subsystem Reset Supported (NSSRS)"), "{table}");
        assert_eq!(served.json("get-property", &["-O", "0x8"])["value"], "20000");
        for offset in ["0x9", "0x1000"] {
            let refused = served.refused("get-property", &["-O", offset]);
            assert!(
                refused.contains(offset) && refused.contains("a multiple of 4 below 0x1000"),
                "{refused}"
            );
        }
        let refused = served.refused("subsystem-reset", &[]);
        assert!(refused.contains("no NVM Subsystem Reset (CAP.NSSRS)"), "{refused}");
    }
}

#[test]
fn properties_of_fabrics_are_shown() {
    let served = Served::target(&["--ram", "8MiB"]);
    let all = served.json("show-regs", &[]);
    assert_eq!((&all["vs"], all["csts"].as_u64().map(|status| status & 1)), (&0x2_0000.into(), Some(1)));
    assert!(all["cap"].as_u64().is_some_and(|value| value > u64::from(u32::MAX)), "all 64 bits: {all}");
    let table = served.said("show-regs", &["-H"]);
    assert!(table.contains("[36:36] 0x1  NVM Subsystem Reset Supported (NSSRS)"), "{table}");
    assert_eq!(served.json("get-property", &["-O", "0x8"])["value"], "20000");
    assert!(served.refused("get-property", &["-O", "0x44"]).contains("Invalid"));
}

#[test]
fn a_hosts_name_is_shown_and_made() {
    let shown = json(&["nvme", "show-hostnqn", "-o", "json"]);
    assert_eq!(succeed(&["nvme", "show-hostnqn"]).trim(), shown["hostnqn"]);
    let made = [succeed(&["nvme", "gen-hostnqn"]), succeed(&["nvme", "gen-hostnqn"])];
    assert_ne!(made[0], made[1]);
    for one in &made {
        let id = one.trim().strip_prefix("nqn.2014-08.org.nvmexpress:uuid:").unwrap();
        assert_eq!((id.len(), &id[14..15]), (36, "4"), "{one}");
    }
}

#[test]
fn a_target_is_discovered_in_nvme_clis_words() {
    let served = Served::target(&["--ram", "8MiB"]);
    let place = served.url.strip_prefix("nvme-tcp://").and_then(|rest| rest.split('/').next()).unwrap();
    let (address, port) = place.rsplit_once(':').unwrap();
    let words = ["discover", "-t", "tcp", "-a", address, "-s", port];
    let log = json(&[&words[..], &["-o", "json"]].concat());
    let found = log["records"].as_array().unwrap().iter().any(|one| one["subnqn"] == NQN);
    assert!(found && log["genctr"].is_u64(), "{log}");
    assert_eq!(log, json(&["use", "discover", &format!("nvme-tcp://{place}"), "--json"]));
    let bytes = farlane(&[&words[..], &["--output-format", "binary"]].concat()).stdout;
    assert_eq!(bytes.len(), 1024 * (1 + log["records"].as_array().unwrap().len()));
    assert_eq!(bytes[..8], log["genctr"].as_u64().unwrap().to_le_bytes());
    for (words, said) in [
        (&["discover", "-a", address][..], "--transport"),
        (&["discover", "-t", "fc", "-a", address], "tcp, rdma"),
        (&["discover", "-t", "tcp", "-a", "a/b"], "a/b"),
        (&["discover", "--mdns", "-o", "binary"], "no bytes to print"),
        (&["connect", "-t", "tcp", "-a", address], "which subsystem"),
        (&["connect", "-n", NQN], "--traddr"),
    ] {
        let refused = fail(words);
        assert!(refused.contains(said), "{words:?}: {refused}");
    }
}

/// The output of a command that finds daemons in `runtime`.
pub(super) fn found(runtime: &Path, arguments: &[&str]) -> Value {
    let mut command = std::process::Command::new(&*crate::support::FARLANE);
    let output = command.args(arguments).env("XDG_RUNTIME_DIR", runtime).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn subsystems_of_daemons_are_listed() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = std::process::Command::new(&*crate::support::FARLANE);
    command.args([
        "target",
        "--listen",
        "127.0.0.1:0",
        "--nqn",
        NQN,
        "--ram",
        "8MiB",
        "--json",
        "--no-sandbox",
    ]);
    command.env("XDG_RUNTIME_DIR", folder.path());
    let target = crate::support::Export::of(command);
    let port = target.address.rsplit_once(':').unwrap().1;
    let list = found(folder.path(), &["list-subsys", "--output-format", "json"]);
    let subsystem = &list[0]["Subsystems"][0];
    assert_eq!(subsystem["NQN"], NQN, "{list}");
    let path = &subsystem["Paths"][0];
    assert_eq!((&path["Transport"], &path["State"]), (&"tcp".into(), &"live".into()));
    assert_eq!(path["Address"], format!("traddr=127.0.0.1,trsvcid={port}"));
    assert!(fail(&["nvme", "list-subsys", "-o", "binary"]).contains("prints no structure"));
}
