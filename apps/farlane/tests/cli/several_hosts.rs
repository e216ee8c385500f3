//! Several hosts at one far SSD (`export --hosts`).

use std::time::{Duration, Instant};

use crate::support::load::assert_serves;
use crate::support::running::{Running, wait_until};
use crate::support::{Export, fail, json, succeed};
use serde_json::Value;
use tempfile::TempDir;

/// Bytes that each host has of the namespace that all share.
const PART: u64 = 1 << 20;

/// A far SSD for several hosts, and the jobs that use a part of it each.
struct Shared {
    far: Export,
    folder: TempDir,
}

impl Shared {
    fn of(hosts: u64, further: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (count, bytes) = (hosts.to_string(), (hosts * PART).to_string());
        let control = folder.path().join("far");
        let mut arguments = vec!["--hosts", &count, "--ram", &bytes, "--hold", "500ms"];
        arguments.extend(["--control", control.to_str().unwrap()]);
        arguments.extend(further);
        Self { far: Export::start(&arguments), folder }
    }

    /// A verified load on the part of host `number`.
    fn load(&self, number: u64, runtime: &str) -> Running {
        let path = self.folder.path().join(format!("{number}.fio"));
        let job = format!(
            "[part]\nrw=randrw\nbs=4k\niodepth=4\noffset={}\nsize={PART}\ntime_based\nverify=crc32c\n",
            number * PART
        );
        std::fs::write(&path, job).unwrap();
        let (job, url) = (path.to_str().unwrap(), self.far.url());
        Running::start(&["bench", &url, "--job", job, "--runtime", runtime, "--timeout", "60s", "--json"])
    }

    /// The places of the hosts, as the status has them.
    fn seats(&self) -> Vec<Value> {
        let control = self.folder.path().join("far");
        let status = json(&["observe", "status", control.to_str().unwrap(), "--json"]);
        let far_ends = status["far_ends"].as_array().unwrap();
        far_ends[0]["seats"].as_array().unwrap().clone()
    }

    fn taken(&self) -> usize {
        self.seats().iter().filter(|seat| !seat["link"]["peer"].is_null()).count()
    }
}

/// Checks that a load ended without errors, and that all that it read was its own.
fn assert_verified(load: Running) {
    let (report, said) = load.json();
    let ended = (&report["errors"], &report["verified"]);
    assert_eq!(ended, (&Value::from(0), &Value::from(true)), "{report}: {said}");
    assert!(report["compared"].as_u64().unwrap() > 0, "{report}");
}

/// How long hosts are killed: `FARLANE_HOSTS_SECONDS` makes it longer than a test may take.
fn killing_time() -> Duration {
    let seconds = std::env::var("FARLANE_HOSTS_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(2))
}

/// A number below `bound` that looks random.
fn random(state: &mut u64, bound: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % bound
}

#[test]
fn eight_hosts_share_an_ssd_while_each_is_killed() {
    const HOSTS: u64 = 8;
    let shared = Shared::of(HOSTS, &[]);
    let time = killing_time();
    let runtime = format!("{}s", time.as_secs() + 1);
    let mut loads: Vec<_> = (0..HOSTS).map(|number| shared.load(number, &runtime)).collect();
    wait_until("eight hosts", || shared.taken() == 8);
    let ids: Vec<_> = shared.seats().iter().map(|seat| seat["controller_id"].as_u64().unwrap()).collect();
    assert_eq!(ids, (1..=HOSTS).collect::<Vec<_>>());
    let (began, mut state, mut kills) = (Instant::now(), 11, 0);
    while began.elapsed() < time || kills < HOSTS {
        let number = if kills < HOSTS { kills } else { random(&mut state, HOSTS) };
        let place = &mut loads[usize::try_from(number).unwrap()];
        place.signal("KILL");
        *place = shared.load(number, &runtime);
        kills += 1;
        std::thread::sleep(Duration::from_millis(random(&mut state, 200)));
    }
    for load in loads {
        assert_verified(load);
    }
    assert_serves(&shared.far.url());
}

#[test]
fn the_default_is_one_host_and_one_more_than_the_number_is_refused() {
    let shared = Shared::of(2, &[]);
    let loads = [0, 1].map(|number| shared.load(number, "3s"));
    wait_until("two hosts", || shared.taken() == 2);
    let said = fail(&["measure", "ping", &shared.far.url(), "--count", "1", "--timeout", "1s"]);
    assert!(said.contains("2 hosts use this far end") && said.contains("--hosts 3"), "{said}");
    loads.into_iter().for_each(assert_verified);
    let one = Export::start(&["--ram", "1MiB"]);
    let load = Running::start(&["bench", &one.url(), "--runtime", "20s"]);
    one.wait_for("link up");
    let said = fail(&["measure", "ping", &one.url(), "--count", "1", "--timeout", "1s"]);
    assert!(said.contains("in use"), "{said}");
    drop(load);
    let said = fail(&["export", "--ram", "1MiB", "--hosts", "65"]);
    assert!(said.contains("65") && said.contains("1..=64"), "{said}");
}

#[test]
fn each_host_is_seen_in_status_and_metrics() {
    let shared = Shared::of(3, &["--metrics", "127.0.0.1:0"]);
    let loads = [0, 2].map(|number| shared.load(number, "2s"));
    wait_until("two hosts", || shared.taken() == 2);
    let control = shared.folder.path().join("far");
    let text = succeed(&["observe", "status", control.to_str().unwrap()]);
    assert!(text.contains("2 of 3 hosts") && text.contains("controller 1: "), "{text}");
    loads.into_iter().for_each(assert_verified);
    let commands = |seat: &Value| seat["controller"]["commands"].as_u64().unwrap();
    let all: u64 = shared.seats().iter().map(commands).sum();
    let status = json(&["observe", "status", control.to_str().unwrap(), "--json"]);
    assert_eq!(status["far_ends"][0]["commands"].as_u64(), Some(all));
}
