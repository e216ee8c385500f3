//! QUIC between the two ends: used, refused and interrupted.

use std::net::UdpSocket;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::support::load::{assert_serves, assert_verified, verified};
use crate::support::outage::Outage;
use crate::support::running::wait_until;
use crate::support::{Export, fail, json, succeed};

/// Starts a far end that speaks QUIC at `address`, with further arguments.
fn export(address: &str, further: &[&str]) -> Export {
    let mut arguments = vec!["--quic", address];
    arguments.extend(further);
    Export::start(&arguments)
}

fn said<'a>(far: &'a Export, key: &str) -> &'a str {
    far.announcement[key].as_str().unwrap()
}

/// The far end's own URL, with its key.
fn url(far: &Export) -> String {
    format!("quic://{}?key={}", said(far, "quic"), said(far, "key"))
}

#[test]
fn a_far_end_is_used_over_quic_and_over_tcp() {
    let far = export("127.0.0.1:0", &["--ram", "16MiB"]);
    let url = url(&far);
    for congestion in ["cubic", "bbr", "newreno"] {
        assert_eq!(
            json(&["measure", "ping", &url, "--count", "10", "--json", "--quic-congestion", congestion])["count"],
            10
        );
    }
    assert!(!assert_verified(verified(&url, "1s", &[])).contains("interrupted"));
    assert!(succeed(&["observe", "lspci", &url]).contains("Non-Volatile memory controller"));
    assert_serves(&far.url());
    assert_serves(&format!("quic://{}?key=any", said(&far, "quic")));
    // The far end as the namespace of another SSD.
    let backing = format!("{url},readonly");
    let front = Export::start(&["--namespace", &backing]);
    assert_serves(&front.url());
}

#[test]
fn another_end_is_not_taken_for_the_far_end() {
    let far = export("127.0.0.1:0", &["--ram", "16MiB"]);
    let (place, print) = (said(&far, "quic"), said(&far, "key"));
    let other = "SHA256:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU";
    let started = Instant::now();
    let errors = fail(&["measure", "ping", &format!("quic://{place}?key={other}"), "--timeout", "60s"]);
    assert!(errors.contains(other) && errors.contains(print), "{errors}");
    assert!(errors.contains("is not the far end"), "{errors}");
    assert!(started.elapsed() < Duration::from_secs(30), "it waited for a miracle");
    for (query, expected) in [
        ("", "key=any accepts any key"),
        ("?cert=1", "'cert=1' is not one of"),
        ("?key=12", "43 characters of base64"),
    ] {
        let errors = fail(&["measure", "ping", &format!("quic://{place}{query}")]);
        assert!(errors.contains(expected), "{errors}");
    }
    // No process listens at the port.
    let absent = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let errors = fail(&["measure", "ping", &format!("quic://{absent}?key=any"), "--timeout", "3s"]);
    assert!(errors.contains("no process listens at this UDP port"), "{errors}");
    // A process listens, and is silent.
    let mute = UdpSocket::bind("127.0.0.1:0").unwrap();
    let url = format!("quic://{}?key=any", mute.local_addr().unwrap());
    let errors = fail(&["measure", "ping", &url, "--timeout", "300ms"]);
    assert!(errors.contains("was not ready within"), "{errors}");
}

#[test]
fn what_can_not_be_offered_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let garbage = directory.path().join("garbage.pem");
    std::fs::write(&garbage, "no key").unwrap();
    let path = |path: &Path| path.display().to_string();
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let taken_at = taken.local_addr().unwrap().to_string();
    let quic = ["export", "--listen", "127.0.0.1:0", "--ram", "1MiB", "--quic"];
    let with = |further: &[&str]| fail(&[&quic, further].concat());
    let said = with(&["127.0.0.1:0", "--key", &path(&garbage)]);
    assert!(said.contains("chmod 600"), "{said}");
    std::fs::set_permissions(&garbage, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    assert!(with(&["127.0.0.1:0", "--key", &path(&garbage)]).contains("no private key in it"));
    assert!(with(&["127.0.0.1:0", "--key", "/proc/far.pem"]).contains("/proc/far.pem"));
    assert!(with(&[&taken_at]).contains(&format!("can't listen on UDP {taken_at}")));
    assert!(with(&["127.0.0.1:0", "--listen", "127.0.0.1:0", "--ram", "1MiB"]).contains("2 far ends"));
    let errors = fail(&["export", "--ram", "1MiB", "--quic", "0.0.0.0:0"]);
    assert!(errors.contains("--insecure"), "{errors}");
}

#[test]
fn a_far_end_that_is_killed_and_started_again_with_its_key_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (key, disk) = (directory.path().join("far.pem"), directory.path().join("disk.img"));
    let (key, spec) = (key.display().to_string(), format!("{},size=16MiB", disk.display()));
    let arguments = ["--namespace", &spec, "--hold", "1s", "--key", &key];
    let mut far = export("127.0.0.1:0", &arguments);
    let url = url(&far);
    let load = verified(&url, "2s", &[]);
    wait_until("writes", || {
        std::fs::metadata(&disk).is_ok_and(|file| std::os::unix::fs::MetadataExt::blocks(&file) > 64)
    });
    far.kill();
    sleep(Duration::from_millis(200));
    let far = export(said(&far, "quic"), &arguments);
    let said = assert_verified(load);
    assert!(said.contains("interrupted: the connection was lost"), "{said}");
    assert_serves(&url);
    // A far end without the key is another one.
    let place = far.announcement["quic"].as_str().unwrap().to_owned();
    drop(far);
    let another = directory.path().join("another.pem").display().to_string();
    let _stranger = export(&place, &["--ram", "1MiB", "--key", &another]);
    assert!(fail(&["measure", "ping", &url]).contains("is not the far end"));
}

#[test]
fn a_host_that_is_killed_makes_room_for_the_next() {
    let far = export("127.0.0.1:0", &["--ram", "16MiB", "--hold", "100ms"]);
    let load = verified(&url(&far), "60s", &[]);
    far.wait_for("link up");
    drop(load);
    // The killed host's machine refuses the next datagram, which the far end notices. Until then
    // another host is refused.
    far.wait_for("link down");
    assert_serves(&url(&far));
    assert!(!far.said().contains("nothing was heard"), "before it would have been missed: {}", far.said());
}

#[test]
fn losses_outages_new_addresses_and_strangers_do_no_harm() {
    let far = export("127.0.0.1:0", &["--ram", "16MiB"]);
    let between = Outage::losing(said(&far, "quic"), 50);
    let load = verified(&format!("quic://{}?key={}", between.address, said(&far, "key")), "3s", &[]);
    far.wait_for("link up");
    let more = |count| {
        let before = between.passed();
        wait_until("datagrams", || between.passed() > before + count);
    };
    more(200);
    between.set_out(true);
    sleep(Duration::from_millis(300));
    between.set_out(false);
    more(200);
    between.rebind();
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut random = 1_u64;
    for length in 0..1_000 {
        let mut byte = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            random.to_be_bytes()[0]
        };
        let bytes: Vec<u8> = (0..length).map(|_| byte()).collect();
        stranger.send_to(&bytes, said(&far, "quic")).unwrap();
        stranger.send_to(&bytes, between.address).unwrap();
    }
    let said = assert_verified(load);
    assert!(!said.contains("interrupted"), "{said}");
    assert!(!far.said().contains("interrupted"), "{}", far.said());
}
