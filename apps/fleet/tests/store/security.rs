//! etcd with certificates, users and roles.

use std::path::Path;
use std::process::Command;

use fleet::Name;
use fleetd::store::etcd::{Settings, Tls, User, open};
use fleetd::store::{Event, StoreError};

use crate::support::controller::Controller;
use crate::support::{Etcd, settings};

fn openssl(folder: &Path, arguments: &str) {
    let output =
        Command::new("openssl").current_dir(folder).args(arguments.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

/// An authority, and certificates that it has signed: `NAME.pem` and `NAME.key`.
fn certificates(folder: &Path, authority: &str, names: &[&str]) {
    let curve = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    let own = format!("-keyout {authority}.key -out {authority}.pem -days 2 -subj /CN={authority}");
    openssl(folder, &format!("req -x509 {curve} {own}"));
    for name in names {
        openssl(folder, &format!("req {curve} -keyout {name}.key -out {name}.request -subj /CN={name}"));
        let extension = "subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n";
        std::fs::write(folder.join("extension"), extension).unwrap();
        let signed = format!("-CA {authority}.pem -CAkey {authority}.key -CAcreateserial -days 2");
        openssl(folder, &format!("x509 -req -in {name}.request {signed} -extfile extension -out {name}.pem"));
    }
}

fn tls(folder: &Path, ca: &str, name: &str) -> Option<Tls> {
    let path = |name: String| folder.join(name);
    Some(Tls {
        ca: path(format!("{ca}.pem")),
        certificate: path(format!("{name}.pem")),
        key: path(format!("{name}.key")),
    })
}

fn secured() -> Option<Etcd> {
    if Command::new("openssl").arg("version").output().is_err() {
        println!("SKIPPED: openssl is not here, so there are no certificates");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    certificates(folder.path(), "ours", &["server", "controller", "root"]);
    certificates(folder.path(), "theirs", &["stranger"]);
    let arguments = [
        "--cert-file=server.pem",
        "--key-file=server.key",
        "--trusted-ca-file=ours.pem",
        "--client-cert-auth",
    ];
    Etcd::start_with(folder, "https", &arguments)
}

async fn controller(settings: Settings) -> Controller {
    Controller::new(open(settings).await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_prove_both_ends() {
    let Some(etcd) = secured() else { return };
    let folder = etcd.folder.path();
    let with = |tls| Settings { tls, ..etcd.settings() };
    let mut good = controller(with(tls(folder, "ours", "controller"))).await;
    good.elected().await;
    good.list().await;
    let revision = good.set(&[], &[("a", Some(1))]).await;
    assert_eq!(good.change().await, (revision, "a".to_owned(), Some(1)));
    // A controller that another authority has signed, one that trusts another, one without.
    for bad in [tls(folder, "ours", "stranger"), tls(folder, "theirs", "controller"), None] {
        let mut bad = controller(with(bad)).await;
        let reason = bad.away().await;
        assert!(reason.contains(&etcd.endpoint()) || reason.contains("transport"), "{reason}");
        println!("{reason}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_no_certificate_is_named() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.pem"), "hello").unwrap();
    std::fs::write(folder.path().join("a.key"), "hello").unwrap();
    for (ca, expected) in [("none", "No such file"), ("a", "-----BEGIN CERTIFICATE")] {
        let settings =
            Settings { tls: tls(folder.path(), ca, "a"), ..settings(vec!["127.0.0.1:1".to_owned()]) };
        match open(settings).await {
            Err(StoreError::Settings(reason)) => assert!(reason.contains(expected), "{reason}"),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_has_its_own_fleet_only() {
    let Some(etcd) = Etcd::start() else { return };
    for command in [
        "user add root:secret",
        "role add root",
        "user grant-role root root",
        "user add farlane:password",
        "role add farlane",
        "role grant-permission farlane --prefix=true readwrite /farlane/v1/test/",
        "user grant-role farlane farlane",
        "auth enable",
    ] {
        etcd.control(&command.split(' ').collect::<Vec<_>>());
    }
    let user = |password: &str| Some(User { name: "farlane".to_owned(), password: password.to_owned() });
    assert!(!format!("{:?}", user("password")).contains("password"));
    let mut good = controller(Settings { user: user("password"), ..etcd.settings() }).await;
    good.elected().await;
    good.list().await;
    let revision = good.set(&[], &[("a", Some(1))]).await;
    assert_eq!(good.change().await, (revision, "a".to_owned(), Some(1)));
    let other = Name::new("other").unwrap();
    for (settings, expected) in [
        (Settings { user: user("password"), cluster: other, ..etcd.settings() }, "permission denied"),
        (Settings { user: user("wrong"), ..etcd.settings() }, "refuses the user or the password"),
        (etcd.settings(), "user name is empty"),
    ] {
        let reason = controller(settings).await.away().await;
        assert!(reason.contains(expected), "{reason}");
    }
    // The leader goes on beside them, and the lease is renewed.
    tokio::time::sleep(std::time::Duration::from_secs(6)).await;
    good.set(&[("a", revision)], &[("a", Some(2))]).await;
    // A role that is taken away ends the term; one that is given back begins another.
    etcd.control(&["--user=root:secret", "user", "revoke-role", "farlane", "farlane"]);
    good.deposed().await;
    let refused = |event: &Event| match event {
        Event::Reachable(Err(reason)) if reason.contains("permission denied") => Some(()),
        _ => None,
    };
    good.wait("a refusal", refused).await;
    etcd.control(&["--user=root:secret", "user", "grant-role", "farlane", "farlane"]);
    good.elected().await;
    good.list().await;
}
