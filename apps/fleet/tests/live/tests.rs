//! What users rely on, with each part killed, stopped or absent.

use std::time::{Duration, Instant};

use crate::stage::{Process, Record, Stage, signal};

pub(crate) fn rounds(usual: u32) -> u32 {
    std::env::var("FARLANE_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// Loads with verification, one after the other, until the test ends them.
pub(crate) struct Load {
    /// The name of the file with the loads' reports.
    name: &'static str,
    record: Record,
    current: Process,
    count: u32,
}

impl Load {
    /// The seconds of one load.
    const SECONDS: u64 = 4;

    pub(crate) fn start(stage: &Stage, record: Record) -> Self {
        Self::named("load", stage, record)
    }

    fn named(name: &'static str, stage: &Stage, record: Record) -> Self {
        Self { name, current: Self::next(name, stage, &record), record, count: 0 }
    }

    fn next(name: &str, stage: &Stage, record: &Record) -> Process {
        let runtime = format!("{}s", Self::SECONDS);
        let options = ["--rw", "randrw", "--verify", "--iodepth", "4", "--rate_iops", "200", "--runtime"];
        stage.load(name, record, &[&options[..], &[&runtime]].concat())
    }

    /// A load that has ended must have succeeded, and the next one begins.
    pub(crate) fn look(&mut self, stage: &Stage) {
        if !self.current.is_running() {
            assert!(self.current.wait(Duration::from_secs(1)), "{}\n{}", self.current.text(), stage.logs());
            self.count += 1;
            self.current = Self::next(self.name, stage, &self.record);
        }
    }

    /// Waits for the end of the last load, which must succeed. Returns how long a command took at
    /// most.
    pub(crate) fn end(mut self, stage: &Stage) -> Duration {
        let ended = self.current.wait(Duration::from_secs(60));
        assert!(ended, "{}\n{}", self.current.text(), stage.logs());
        let text = self.current.text();
        let verified = text.matches("verified:").count();
        assert!(verified > usize::try_from(self.count).unwrap(), "{text}");
        let longest = text.lines().filter_map(longest).max().expect("a latency");
        println!("{verified} loads were verified; the longest command took {longest:?}");
        longest
    }
}

/// The longest latency of a line that `farlane bench` prints.
fn longest(line: &str) -> Option<Duration> {
    let (_, after) = line.split_once(" max ")?;
    let mut words = after.split_whitespace();
    let (number, unit): (f64, _) = (words.next()?.parse().ok()?, words.next()?);
    let scale = [("ns", 1e-9), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    let (_, scale) = scale.into_iter().find(|(name, _)| *name == unit)?;
    Some(Duration::from_secs_f64(number * scale))
}

/// Attaches a volume, writes and verifies it, detaches it: then neither the host's old key nor the
/// old name is of any use.
#[test]
fn a_volume_is_attached_used_and_detached() {
    live_and_end("nvme-tcp");
}

#[test]
fn a_volume_is_attached_by_tunnel_used_and_detached() {
    live_and_end("tunnel");
}

/// The life of a volume whose host comes by this transport.
fn live_and_end(transport: &str) {
    let Some(mut stage) = Stage::new(None, 1, 2) else { return };
    let volume = stage.fleet(&["volume", "create", "data", "--size", "64MiB", "--pool", "m0"]);
    assert_eq!(volume["status"]["phase"], "ready", "{volume}");
    let attached = stage.fleet(&["attach", "data", "--node", "m1", "--transport", transport]);
    assert_eq!(attached["status"]["phase"], "attached", "{attached}");
    let record = stage.record(1, "data-m1");
    let secret = std::fs::read_to_string(&record.secret).unwrap();
    // A key's file has lines around the key.
    let secret = secret.lines().nth(1).unwrap_or(secret.trim());
    let mut load =
        stage.load("load", &record, &["--rw", "randrw", "--verify", "--runtime", "2s", "--iodepth", "8"]);
    assert!(load.wait(Duration::from_secs(30)), "{}\n{}", load.text(), stage.logs());
    stage.eventually("the host reports its connection", |stage| {
        stage.fleet(&["get", "attachment", "data-m1"])["status"]["connected"] == true
    });
    stage.fleet(&["detach", "data-m1"]);
    let refused = stage.read_once(&record);
    assert!(!refused.status.success(), "the old host still reads: {refused:?}");
    stage.fleet(&["volume", "delete", "data"]);
    assert!(!stage.path("m0-pool/data.raw").exists());
    for place in ["store", "c0.log", "m0.log", "m1.log", "audit.jsonl"] {
        let bytes = std::fs::read(stage.path(place)).unwrap();
        let found = bytes.windows(secret.len()).any(|part| part == secret.as_bytes());
        assert!(!found, "{place} has the secret of a host");
    }
    assert_eq!(stage.fleet(&["orphans"])["orphans"], serde_json::json!([]));
}

/// A host that is stopped loses its volume to another one. When it goes on, it writes nothing.
#[test]
fn a_stopped_host_never_writes_again() {
    fence("nvme-tcp");
}

#[test]
fn a_stopped_host_of_a_tunnel_never_writes_again() {
    fence("tunnel");
}

/// Stops a host that writes, moves its volume to another one, and lets the first one go on.
fn fence(transport: &str) {
    let Some(mut stage) = Stage::new(None, 1, 3) else { return };
    stage.fleet(&["volume", "create", "data", "--size", "16MiB", "--pool", "m0"]);
    let mut times = Vec::new();
    for round in 0..rounds(3) {
        stage.fleet(&["attach", "data", "--node", "m1", "--transport", transport]);
        let old = stage.record(1, "data-m1");
        let writes = ["--rw", "randwrite", "--iodepth", "16", "--runtime", "600s", "--norandommap"];
        let mut old_load = stage.load(&format!("old{round}"), &old, &writes);
        std::thread::sleep(Duration::from_millis(500));
        assert!(old_load.is_running(), "{}", old_load.text());
        old_load.signal("STOP");
        let began = Instant::now();
        stage.fleet(&["detach", "data-m1"]);
        stage.fleet(&["attach", "data", "--node", "m2", "--transport", transport]);
        times.push(began.elapsed());
        let new = stage.record(2, "data-m2");
        let verified = ["--rw", "randrw", "--verify", "--iodepth", "8", "--runtime", "3s"];
        let mut new_load = stage.load(&format!("new{round}"), &new, &verified);
        std::thread::sleep(Duration::from_millis(500));
        old_load.signal("CONT");
        assert!(new_load.wait(Duration::from_secs(60)), "{}\n{}", new_load.text(), stage.logs());
        drop(old_load);
        stage.fleet(&["detach", "data-m2"]);
    }
    times.sort();
    let (median, worst) = (times[times.len() / 2], times[times.len() * 99 / 100]);
    println!("{} moves: median {median:?}, 99th percentile {worst:?}", times.len());
}

/// Each part is killed beside a load that verifies its data.
#[test]
fn any_part_may_be_killed() {
    let Some(mut stage) = Stage::new(None, 1, 2) else { return };
    stage.fleet(&["volume", "create", "data", "--size", "64MiB", "--pool", "m0"]);
    stage.fleet(&["attach", "data", "--node", "m1"]);
    let record = stage.record(1, "data-m1");
    let mut load = Load::start(&stage, record);
    stage.fleet(&["volume", "create", "far", "--size", "64MiB", "--pool", "m0"]);
    stage.fleet(&["attach", "far", "--node", "m1", "--transport", "tunnel"]);
    let record = stage.record(1, "far-m1");
    let mut by_tunnel = Load::named("tunnel", &stage, record);
    let mut longest = Duration::ZERO;
    for round in 0..rounds(10) {
        match round % 5 {
            0 => {
                stage.controllers[0] = None;
                stage.start_controller(0);
            }
            1 | 2 => {
                let machine = usize::from(round % 5 == 2);
                stage.machines[machine].agent = None;
                stage.start_agent(machine);
            }
            3 => {
                let target = stage.target_of(0).expect("a target");
                signal(target, "KILL");
            }
            _ => {
                let far = stage.daemons_of(0, "export");
                assert_eq!(far.len(), 1, "the far end of the tunnel");
                signal(far[0], "KILL");
            }
        }
        // Each time, the fleet does its work: another volume comes, is attached, and goes.
        let began = Instant::now();
        let name = format!("v{round}");
        stage.eventually("a volume is made", |stage| {
            let words = ["volume", "create", &name, "--size", "1MiB", "--pool", "m0", "--timeout", "20s"];
            stage.try_fleet(&words).is_ok()
        });
        longest = longest.max(began.elapsed());
        stage.fleet(&["attach", &name, "--node", "m1"]);
        stage.fleet(&["detach", &format!("{name}-m1")]);
        stage.fleet(&["volume", "delete", &name]);
        load.look(&stage);
        by_tunnel.look(&stage);
    }
    println!("{} kills; a volume was made within {longest:?}", rounds(10));
    // A host that holds its writes back until a lost target must have ended takes 15 s.
    for longest in [load.end(&stage), by_tunnel.end(&stage)] {
        assert!(longest < Duration::from_secs(10), "{longest:?}");
    }
    assert_eq!(stage.fleet(&["orphans"])["orphans"], serde_json::json!([]));
}

/// A host that comes while the target of its volume starts again waits for it, and is not refused.
#[test]
fn a_host_that_comes_while_its_target_starts_is_served() {
    let Some(mut stage) = Stage::new(None, 1, 2) else { return };
    stage.fleet(&["volume", "create", "data", "--size", "16MiB", "--pool", "m0"]);
    stage.fleet(&["attach", "data", "--node", "m1"]);
    let record = stage.record(1, "data-m1");
    for round in 0..rounds(6) {
        stage.eventually("the target runs", |stage| stage.target_of(0).is_some());
        if round % 2 == 0 {
            stage.machines[0].agent = None;
            stage.start_agent(0);
        }
        signal(stage.target_of(0).expect("a target"), "KILL");
        for _ in 0..8 {
            let read = stage.load("read", &record, &["--io_size", "4k", "--timeout", "20s"]).wait_for_text();
            let log =
                std::fs::read_to_string(stage.machines[0].folder.join("target.log")).unwrap_or_default();
            assert!(read.is_ok(), "round {round}: {read:?}\n{log}\n{}", stage.logs());
        }
    }
}

/// A store that is an old backup makes nothing unsafe: agents refuse it until an operator decides.
#[test]
fn an_old_backup_is_refused_until_it_is_recovered() {
    let Some(mut stage) = Stage::new(None, 1, 3) else { return };
    stage.fleet(&["volume", "create", "data", "--size", "16MiB", "--pool", "m0"]);
    stage.fleet(&["attach", "data", "--node", "m1"]);
    stage.controllers[0] = None;
    let (store, backup) = (stage.path("store"), stage.path("backup"));
    std::fs::copy(&store, &backup).unwrap();
    stage.start_controller(0);
    stage.fleet(&["detach", "data-m1"]);
    stage.fleet(&["attach", "data", "--node", "m2"]);
    stage.fleet(&["volume", "create", "later", "--size", "16MiB", "--pool", "m0"]);
    let record = stage.record(2, "data-m2");
    let load = Load::start(&stage, record);
    stage.controllers[0] = None;
    std::fs::copy(&backup, &store).unwrap();
    stage.start_controller(0);
    stage.eventually("the controller knows that its store is old", |stage| {
        stage.try_fleet(&["status"]).is_ok_and(|health| health["needs_recovery"] == true)
    });
    let old = stage.fleet(&["get", "attachment", "data-m1"]);
    assert_eq!(old["status"]["phase"], "waits-for-recovery", "{old}");
    stage.fleet(&["recover"]);
    stage.eventually("the store has learnt from the owner", |stage| {
        let new = stage.try_fleet(&["get", "attachment", "data-m2"]);
        new.is_ok_and(|new| new["status"]["phase"] == "attached")
    });
    stage.eventually("the later volume is known", |stage| {
        stage.try_fleet(&["get", "volume", "later"]).is_ok_and(|one| one["status"]["phase"] == "ready")
    });
    load.end(&stage);
}

/// The time of an attachment, alone and among a hundred.
#[test]
fn attaching_is_quick() {
    let Some(stage) = Stage::new(None, 1, 2) else { return };
    let count = rounds(20);
    let mut times = Vec::new();
    stage.fleet(&["volume", "create", "v", "--size", "1MiB", "--pool", "m0"]);
    for _ in 0..count {
        let began = Instant::now();
        stage.fleet(&["attach", "v", "--node", "m1"]);
        times.push(began.elapsed());
        stage.fleet(&["detach", "v-m1"]);
    }
    times.sort();
    let many = 100;
    for index in 0..many {
        stage.fleet(&[
            "volume",
            "create",
            &format!("w{index}"),
            "--size",
            "1MiB",
            "--pool",
            "m0",
            "--no-wait",
        ]);
    }
    let began = Instant::now();
    std::thread::scope(|scope| {
        for part in 0..4 {
            let stage = &stage;
            scope.spawn(move || {
                for index in (part..many).step_by(4) {
                    stage.fleet(&["attach", &format!("w{index}"), "--node", "m1", "--no-wait"]);
                }
            });
        }
    });
    loop {
        let all = stage.fleet(&["get", "attachment"]);
        let items = all["items"].as_array().unwrap();
        let is_attached = |item: &&serde_json::Value| item["status"]["phase"] == "attached";
        if items.iter().filter(is_attached).count() == many {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{}", stage.logs());
        std::thread::sleep(Duration::from_millis(20));
    }
    println!(
        "attach: median {:?}, 99th percentile {:?} of {count}; {many} at once {:?}",
        times[times.len() / 2],
        times[times.len() * 99 / 100],
        began.elapsed()
    );
}

/// What `make fleet` runs once it has built the programs.
#[test]
fn the_script_of_make_fleet_works() {
    let Some(farlane) = crate::stage::farlane() else { return };
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/fleet");
    let mut command = std::process::Command::new(script);
    let output = command.arg(farlane).arg(env!("CARGO_BIN_EXE_farlane-fleet")).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&text));
}

/// A volume with a class goes where the simulation of the links says that the class holds.
#[test]
fn a_volume_goes_where_its_class_is_predicted_to_hold() {
    let Some(stage) = Stage::new(None, 1, 3) else { return };
    let hop = |rate: &str| {
        format!(
            "[fabric]\nkind = \"tcp\"\nmedium = \"memory\"\n[[link.hop]]\nkind = \"ethernet\"\nrate = \"{rate}\"\ncable = \"3m\"\n"
        )
    };
    for (far, rate) in [("s0", "100Mbit/s"), ("s1", "10Gbit/s")] {
        let file = stage.path(&format!("{far}.toml"));
        std::fs::write(&file, hop(rate)).unwrap();
        let file = file.display().to_string();
        let ends = ["--between", "site=s2", "--and", &format!("site={far}")];
        stage.fleet(&[&["link", "create", far, "--scenario", &file][..], &ends].concat());
    }
    stage.fleet(&["class", "create", "fast", "--p99", "200us"]);
    let words = ["volume", "create", "data", "--size", "1MiB", "--class", "fast", "--near", "m2"];
    let volume = stage.fleet(&words);
    assert_eq!(volume["pool"], "m1", "{volume}");
    let explanation = stage.fleet(&["explain", "data"]);
    let predicted = explanation["fit"][0]["p99_ns"].as_u64().unwrap();
    assert!((1_000..200_000).contains(&predicted), "{explanation}");
    let path = explanation["fit"][0]["path"][0].as_str().unwrap();
    assert!(path.contains("link s1") && path.contains("seed"), "{path}");
    let unfit = explanation["unfit"].as_array().unwrap();
    let why = |pool: &str| unfit.iter().find(|one| one["pool"] == pool).unwrap()["why"].as_str().unwrap();
    assert!(why("m0").contains("are predicted to end within"), "{}", why("m0"));
    assert!(why("m2").contains("nothing is predicted"), "{}", why("m2"));
    // Nothing holds a class that no network can hold: the volume waits, and says why.
    stage.fleet(&["class", "create", "instant", "--p99", "1us"]);
    let words =
        ["volume", "create", "never", "--size", "1MiB", "--class", "instant", "--near", "m2", "--no-wait"];
    stage.fleet(&words);
    std::thread::sleep(Duration::from_secs(1));
    let never = stage.fleet(&["get", "volume", "never"]);
    assert_eq!(never["status"]["phase"], "unplaced", "{never}");
    assert!(never["status"]["message"].as_str().unwrap().contains("predicted"), "{never}");
}
