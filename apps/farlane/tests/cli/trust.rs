//! Keys: the hosts that reach an SSD, the hosts that do not, and the message to each.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crate::support::load::assert_verified;
use crate::support::outage::Outage;
use crate::support::own_network::{is_within, test_path};
use crate::support::relay::Relay;
use crate::support::running::{Running, wait_until};
use crate::support::{Export, FARLANE, fail, json, succeed};

/// A directory with keys of a far end, of a host, and of another host.
struct Keys {
    directory: tempfile::TempDir,
    far: String,
    host: String,
    other: String,
}

impl Keys {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let key = |name: &str| {
            let path = directory.path().join(name);
            let made = json(&["setup", "key", "new", path.to_str().unwrap(), "--json"]);
            made["key"].as_str().unwrap().to_owned()
        };
        let (far, host, other) = (key("far"), key("host"), key("other"));
        Self { directory, far, host, other }
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    /// A far end that admits the host.
    fn export(&self, further: &[&str]) -> Export {
        let key = self.path("far");
        let mut arguments = vec!["--ram", "16MiB", "--key", &key];
        arguments.extend(further);
        Export::start(&arguments)
    }

    /// The URL of the far end at `address`, with its key.
    fn url(&self, address: &str) -> String {
        format!("tcp://{address}?key={}", self.far)
    }
}

/// A verified load of random writes by the host whose key is `key`.
fn load(url: &str, key: &str, further: &[&str]) -> Running {
    let mut arguments = vec!["bench", url, "--key", key, "--rw", "randwrite", "--iodepth", "8"];
    arguments.extend(["--size", "8MiB", "--verify", "--json"]);
    arguments.extend(further);
    Running::start(&arguments)
}

#[test]
fn only_a_host_with_an_admitted_key_reaches_the_ssd() {
    let keys = Keys::new();
    let far = keys.export(&["--allow", &format!("{},name=lab", keys.host)]);
    let (url, host, other) = (keys.url(&far.address), keys.path("host"), keys.path("other"));
    for further in [&["--runtime", "1s"][..], &["--runtime", "1s", "--spread", "4"]] {
        assert_verified(load(&url, &host, further));
    }
    // Without a key, with another one, and for another far end.
    let said = fail(&["measure", "ping", &format!("tcp://{}", far.address)]);
    assert!(said.contains("prove a key") && said.contains("?key="), "{said}");
    let said = fail(&["measure", "ping", &url, "--key", &other]);
    assert!(said.contains(&format!("the key {} is not admitted", keys.other)), "{said}");
    let wrong = format!("tcp://{}?key={}", far.address, keys.other);
    let said = fail(&["measure", "ping", &wrong, "--key", &host]);
    assert!(said.contains(&keys.far) && said.contains(&keys.other), "{said}");
    // Over several paths to the same far end.
    let second = Relay::to(&far.address);
    assert_verified(load(&url, &host, &["--runtime", "1s", "--second-path", &second.address.to_string()]));
    assert_eq!(json(&["measure", "ping", &url, "--key", &host, "--count", "10", "--json"])["count"], 10);
}

#[test]
fn a_host_sees_and_changes_what_its_permit_says() {
    let keys = Keys::new();
    let (reader, writer) = (format!("{},nsid=2,readonly", keys.host), keys.other.as_str());
    let far = keys.export(&["--ram", "8MiB", "--allow", &reader, "--allow", writer]);
    let (url, host, other) = (keys.url(&far.address), keys.path("host"), keys.path("other"));
    let namespaces = |key: &str| {
        let seen = json(&["nvme", "identify", &url, "--key", key, "--json"]);
        seen["namespaces"].as_array().unwrap().len()
    };
    assert_eq!((namespaces(&host), namespaces(&other)), (1, 2));
    let file = keys.path("block");
    fs::write(&file, [b'w'; 4096]).unwrap();
    let write = ["write", &url, "--input", &file, "--namespace", "2", "--key"];
    succeed(&[&write[..], &[&other]].concat());
    assert!(fail(&[&write[..], &[&host]].concat()).contains("Write Protected"));
    let read = ["read", &url, "--length", "4096", "--output", &file, "--key", &host, "--namespace"];
    fs::remove_file(&file).unwrap();
    succeed(&[&read[..], &["2"]].concat());
    assert!(fs::read(&file).unwrap() == [b'w'; 4096]);
    assert!(fail(&[&read[..], &["1"]].concat()).contains("namespace 1 does not exist"));
}

#[test]
fn a_host_stays_below_its_ceiling() {
    let keys = Keys::new();
    let far = keys.export(&["--allow", &format!("{},iops=500", keys.host), "--allow", &keys.other]);
    let url = keys.url(&far.address);
    let rate = |key: &str, further: &[&str]| {
        let bench =
            ["bench", &url, "--rw", "randread", "--iodepth", "16", "--runtime", "2s", "--json", "--key", key];
        json(&[&bench[..], further].concat())["iops"].as_f64().unwrap()
    };
    let limited = rate(&keys.path("host"), &[]);
    assert!((400.0..600.0).contains(&limited), "{limited}");
    assert!(rate(&keys.path("other"), &[]) > 2.0 * limited);
}

#[test]
fn a_far_end_without_keys_is_named_by_a_host_that_expects_one() {
    let keys = Keys::new();
    let far = Export::start(&["--ram", "1MiB"]);
    let said = fail(&["measure", "ping", &keys.url(&far.address), "--key", &keys.path("host")]);
    assert!(said.contains("without TLS") && said.contains("--allow"), "{said}");
}

#[test]
fn a_device_off_loopback_is_not_offered_to_every_host() {
    let keys = Keys::new();
    for further in [&["--listen", "0.0.0.0:0"][..], &["--listen", "[::]:0"], &["--quic", "0.0.0.0:0"]] {
        let said = fail(&[&["export", "--ram", "1MiB"], further].concat());
        assert!(said.contains("--allow FINGERPRINT") && said.contains("--insecure"), "{said}");
    }
    let far = Export::at("0.0.0.0:0", &["--ram", "1MiB", "--insecure"]);
    far.wait_for("has no authentication");
    let socket = keys.path("control");
    let admitted = Export::at(
        "0.0.0.0:0",
        &["--ram", "1MiB", "--key", &keys.path("far"), "--allow", &keys.host, "--control", &socket],
    );
    assert!(succeed(&["observe", "status", &socket]).contains("admits: listed keys"));
    drop(admitted);
}

#[test]
fn flipped_bits_end_connections_and_change_nothing() {
    let keys = Keys::new();
    let far = keys.export(&["--allow", &keys.host]);
    let between = Relay::to(&far.address);
    let url = keys.url(&between.address.to_string());
    let load = load(&url, &keys.path("host"), &["--runtime", "3s"]);
    far.wait_for("link up");
    between.flip_every(300_000);
    assert_verified(load);
    assert!(between.flipped() > 5, "{}", between.flipped());
}

/// A key is asked for over datagrams as over TCP, also over a network that loses or changes them.
#[test]
fn keys_hold_over_datagrams_that_get_lost_or_changed() {
    let keys = Keys::new();
    let far = keys.export(&["--udp", "127.0.0.1:0", "--allow", &keys.host]);
    let (host, other) = (keys.path("host"), keys.path("other"));
    let place = far.announcement["udp"].as_str().unwrap();
    let url = |place: &str, key: &str| format!("udp://{place}?key={key}");
    let said = fail(&["measure", "ping", &format!("udp://{place}")]);
    assert!(said.contains("prove a key") && said.contains("?key="), "{said}");
    let said = fail(&["measure", "ping", &url(place, &keys.far), "--key", &other]);
    assert!(said.contains(&format!("the key {} is not admitted", keys.other)), "{said}");
    let said = fail(&["measure", "ping", &url(place, &keys.other), "--key", &host]);
    assert!(said.contains(&keys.far) && said.contains(&keys.other), "{said}");
    let open = Export::start(&["--ram", "1MiB", "--udp", "127.0.0.1:0"]);
    let unkeyed = open.announcement["udp"].as_str().unwrap();
    let said = fail(&["measure", "ping", &url(unkeyed, &keys.far), "--key", &host]);
    assert!(said.contains("without TLS") && said.contains("--allow"), "{said}");

    let between = Outage::losing(place, 30);
    let through = url(&between.address.to_string(), &keys.far);
    let running = load(&through, &host, &["--runtime", "2s"]);
    far.wait_for("link up");
    let before = between.passed();
    wait_until("datagrams", || between.passed() > before + 200);
    between.set_out(true);
    thread::sleep(Duration::from_millis(500));
    between.set_out(false);
    let said = assert_verified(running);
    assert!(!said.contains("interrupted"), "{said}");
    // A change on the way ends the connection, and the next one continues.
    let between = Outage::losing(place, u64::MAX);
    let through = url(&between.address.to_string(), &keys.far);
    let running = load(&through, &host, &["--runtime", "3s"]);
    far.wait_for("link up");
    between.flip_one_in(500);
    assert_verified(running);
    assert!(between.flipped() > 5, "{}", between.flipped());
}

#[test]
fn bare_frames_want_no_insecurity_where_hosts_prove_keys() {
    const PAIR: &str = "ip link set lo up && ip link add near type veth peer name far && \
                        ip link set near up && ip link set far up && exec \"$@\"";
    let name = test_path!("bare_frames_want_no_insecurity_where_hosts_prove_keys");
    if !is_within(name, "a pair of interfaces", PAIR) {
        return;
    }
    let keys = Keys::new();
    let far = keys.export(&["--eth", "far", "--allow", &keys.host]);
    let mac = far.announcement["eth"].as_str().unwrap().rsplit('/').next().unwrap();
    let (host, other) = (keys.path("host"), keys.path("other"));
    let url = format!("eth:near/{mac}?key={}", keys.far);
    assert_verified(load(&url, &host, &["--runtime", "500ms"]));
    let said = fail(&["measure", "ping", &url, "--key", &other]);
    assert!(said.contains("is not admitted"), "{said}");
    let said = fail(&["measure", "ping", &format!("eth:near/{mac}")]);
    assert!(said.contains("prove a key"), "{said}");
}

/// Passes one connection on to `far`, and returns what came from the host.
fn record(far: &str) -> (String, thread::JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mut right = TcpStream::connect(far).unwrap();
    let recorder = thread::spawn(move || {
        let mut left = listener.accept().unwrap().0;
        let (mut back, mut to) = (right.try_clone().unwrap(), left.try_clone().unwrap());
        thread::spawn(move || {
            let _ = std::io::copy(&mut back, &mut to);
            let _ = to.shutdown(Shutdown::Both);
        });
        let (mut recorded, mut bytes) = (Vec::new(), vec![0; 64 << 10]);
        while let Ok(count @ 1..) = left.read(&mut bytes) {
            recorded.extend_from_slice(&bytes[..count]);
            if right.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        let _ = right.shutdown(Shutdown::Both);
        recorded
    });
    (address, recorder)
}

#[test]
fn recorded_sessions_that_are_sent_again_put_no_old_block_back() {
    let keys = Keys::new();
    let far = keys.export(&["--allow", &keys.host]);
    let (key, file) = (keys.path("host"), keys.path("block"));
    let write = |url: &str, byte: u8| {
        fs::write(&file, [byte; 4096]).unwrap();
        succeed(&["use", "write", url, "--key", &key, "--input", &file, "--offset", "0"]);
    };
    let (between, recorder) = record(&far.address);
    write(&keys.url(&between), b'o');
    let recorded = recorder.join().unwrap();
    assert!(recorded.len() > 4096 && !recorded.windows(64).any(|bytes| bytes == [b'o'; 64]));
    write(&keys.url(&far.address), b'n');
    let places = (0..recorded.len()).step_by(recorded.len() / 40);
    for from in places {
        let mut stranger = TcpStream::connect(&far.address).unwrap();
        // The far end may close at once.
        let _ = stranger.write_all(&recorded[from..]);
        let _ = stranger.shutdown(Shutdown::Write);
        let mut said = Vec::new();
        stranger.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let _ = stranger.read_to_end(&mut said);
    }
    let block = keys.path("read");
    let url = keys.url(&far.address);
    succeed(&["use", "read", &url, "--key", &key, "--length", "4096", "--output", &block]);
    assert!(fs::read(&block).unwrap() == [b'n'; 4096]);
}

#[test]
fn a_key_that_is_struck_off_the_file_loses_its_session_and_the_next_one_gets_the_device() {
    let keys = Keys::new();
    let list = keys.path("hosts");
    fs::write(&list, format!("# hosts\n{},name=first\n", keys.host)).unwrap();
    let far = keys.export(&["--allow-file", &list]);
    let (url, host, other) = (keys.url(&far.address), keys.path("host"), keys.path("other"));
    let load = load(&url, &host, &["--runtime", "60s", "--timeout", "2s"]);
    far.wait_for("link up");
    assert!(fail(&["measure", "ping", &url, "--key", &other]).contains("is not admitted"));
    // A list that can't be read changes nothing.
    fs::write(&list, "nonsense\n").unwrap();
    far.wait_for("the former list stays in force");
    fs::write(&list, format!("{}\n", keys.other)).unwrap();
    far.wait_for("the list of admitted hosts was read again");
    let said = load.fail();
    assert!(said.contains("no longer admitted") || said.contains("is not admitted"), "{said}");
    wait_until("the other host", || {
        let output =
            crate::support::farlane(&["measure", "ping", &url, "--key", &other, "--count", "10", "--json"]);
        output.status.success()
    });
}

#[test]
fn a_far_end_is_remembered_and_a_changed_key_is_refused_with_both() {
    let keys = Keys::new();
    let far = keys.export(&["--allow", &keys.host]);
    let (plain, host) = (format!("tcp://{}", far.address), keys.path("host"));
    // A later far end at this port has another key, so no other test shares these keys.
    let user = tempfile::tempdir().unwrap();
    let done = |arguments: &[&str]| {
        let output = of_user(user.path(), arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{arguments:?}: {said}");
        String::from_utf8(output.stdout).unwrap()
    };
    let refused = |arguments: &[&str]| {
        let output = of_user(user.path(), arguments);
        assert!(!output.status.success(), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    done(&["setup", "key", "trust", &far.address, &keys.far]);
    let pinged = done(&["measure", "ping", &plain, "--key", &host, "--count", "10", "--json"]);
    assert_eq!(serde_json::from_str::<serde_json::Value>(&pinged).unwrap()["count"], 10);
    let said = refused(&["setup", "key", "trust", &far.address, &keys.other]);
    assert!(said.contains(&keys.far) && said.contains(&keys.other) && said.contains("--replace"), "{said}");
    done(&["setup", "key", "trust", &far.address, &keys.other, "--replace"]);
    let said = refused(&["measure", "ping", &plain, "--key", &host]);
    assert!(said.contains(&keys.far) && said.contains(&keys.other), "{said}");
}

#[test]
fn a_key_that_others_may_read_is_not_used() {
    let keys = Keys::new();
    let path = PathBuf::from(keys.path("host"));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let said = fail(&["setup", "key", "show", path.to_str().unwrap()]);
    assert!(said.contains("0644") && said.contains("chmod 600"), "{said}");
    let far = keys.export(&["--allow", &keys.host]);
    assert!(
        fail(&["measure", "ping", &keys.url(&far.address), "--key", path.to_str().unwrap()])
            .contains("chmod 600")
    );
}

#[test]
fn garbage_in_the_form_of_tls_does_no_harm() {
    let keys = Keys::new();
    let far = keys.export(&["--allow", &keys.host]);
    let mut random = 7_u64;
    for length in (1..400).step_by(3) {
        let mut byte = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            random.to_be_bytes()[0]
        };
        let mut bytes: Vec<u8> = (0..length).map(|_| byte()).collect();
        bytes[..length.min(3)].copy_from_slice(&[22, 3, 1][..length.min(3)]);
        let mut stranger = TcpStream::connect(&far.address).unwrap();
        let _ = stranger.write_all(&bytes);
    }
    assert_verified(load(&keys.url(&far.address), &keys.path("host"), &["--runtime", "1s"]));
}

/// Runs a command as a user without keys.
fn of_user(folder: &Path, arguments: &[&str]) -> std::process::Output {
    let mut command = std::process::Command::new(&*FARLANE);
    command.args(arguments).env("XDG_CONFIG_HOME", folder).output().unwrap()
}

#[test]
fn a_far_ends_key_is_remembered_from_the_url_that_it_prints() {
    let keys = Keys::new();
    let user = tempfile::tempdir().unwrap();
    let said = |arguments: &[&str]| {
        let output = of_user(user.path(), arguments);
        let text = [output.stdout, output.stderr].concat();
        (output.status.code().unwrap(), String::from_utf8(text).unwrap())
    };
    for (url, name) in [
        (format!("tcp://192.0.2.1:4430?key={}", keys.far), "192.0.2.1:4430"),
        (format!("quic://far.example:4431?key={}", keys.far), "far.example:4431"),
        (format!("udp://[2001:db8::1]:4432?key={}", keys.far), "[2001:db8::1]:4432"),
        (format!("eth:eth0/02:00:5e:00:53:01?key={}", keys.far), "eth0/02:00:5e:00:53:01"),
    ] {
        let (status, reported) = said(&["setup", "key", "trust", &url]);
        assert!(status == 0 && reported.contains(name) && reported.contains(&keys.far), "{url}: {reported}");
        // Once more with the same key, which is given on its own.
        let url = url.split('?').next().unwrap();
        assert_eq!(said(&["setup", "key", "trust", url, &keys.far]).0, 0, "{url}");
    }
    let known = std::fs::read_to_string(user.path().join("farlane/known-ends")).unwrap();
    assert_eq!(known.lines().count(), 4, "{known}");
    let url = format!("tcp://192.0.2.1:4430?key={}", keys.far);
    for (arguments, expected) in [
        (&[url.as_str(), keys.host.as_str()][..], "two keys"),
        (&["tcp://192.0.2.1:4430"], "no key is given for 192.0.2.1:4430"),
        (&["tcp://192.0.2.1:4430?key=any"], "key=any names no key"),
        (&["shm:/run/far", &keys.far], "has no keys"),
        (&["tcp://0.0.0.0:4430", &keys.far], "every address"),
        (&["quic://[::]:4430", &keys.far], "every address"),
        (&["tcp://192.0.2.1:4430?dscp=EF", &keys.far], "leave priority= and dscp= out"),
        (&["tcp://192.0.2.1:4430", &keys.other], "--replace"),
    ] {
        let (status, reported) = said(&[&["setup", "key", "trust"], arguments].concat());
        assert!(status == 2 && reported.contains(expected), "{arguments:?}: {reported}");
    }
}

#[test]
fn a_missing_key_is_made_by_the_command_that_the_message_names() {
    let user = tempfile::tempdir().unwrap();
    let shown = of_user(user.path(), &["key", "show"]);
    let reported = String::from_utf8(shown.stderr).unwrap();
    let path = user.path().join("farlane/key.pem");
    let named_command = format!("farlane setup key new {}", path.display());
    assert!(
        !shown.status.success() && reported.contains(&named_command) && !reported.contains("--key"),
        "{reported}"
    );
    assert!(of_user(user.path(), &["key", "new", path.to_str().unwrap()]).status.success());
    assert!(of_user(user.path(), &["key", "show"]).status.success());
}
