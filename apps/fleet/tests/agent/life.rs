//! The life of volumes and attachments, without faults.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use fleet::object::Mode;
use fleet::slice::{OwnedVolume, Wish};
use fleetd::agent::find;
use fleetd::wire::Credential;

use crate::machine::{
    Machine, Reported, admission, alone, attachment, farlane, logs_in, name, start_use, use_volume, volume,
};

/// The credential of an attachment.
pub(crate) fn of(reported: &Reported, attachment: &str) -> Vec<Credential> {
    let found: Vec<_> =
        reported.credentials.iter().filter(|one| one.attachment.0 == attachment).cloned().collect();
    assert_eq!(found.len(), 1, "{reported:?}");
    found
}

/// Writes a MiB by the record, and reads it back.
pub(crate) fn write_and_read(farlane: &Path, record: &fleetd::agent::Record) {
    let directory = tempfile::tempdir().unwrap();
    let [written, read] = ["written", "read"].map(|file| directory.path().join(file).display().to_string());
    let bytes: Vec<u8> =
        (0..1u32 << 18).flat_map(|word| (word.wrapping_mul(2_654_435_761)).to_le_bytes()).collect();
    std::fs::write(&written, &bytes).unwrap();
    for (word, options) in [("write", ["--input", &written]), ("read", ["--output", &read])] {
        let options = [&options[..], &["--length", "1MiB"]].concat();
        let output = use_volume(farlane, record, &["use", word], &options);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert!(std::fs::read(&read).unwrap() == bytes, "other data was read than was written");
}

/// Whether a file of `folder`, or of a folder in it, has the secret.
pub(crate) fn holders(folder: &Path, secret: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(holders(&path, secret));
        } else if path.is_file() && String::from_utf8_lossy(&std::fs::read(&path).unwrap()).contains(secret) {
            let mode = std::fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{}", path.display());
            found.push(path.file_name().unwrap().to_string_lossy().into_owned());
        }
    }
    found
}

#[test]
fn a_host_reads_and_writes_until_it_is_let_out() {
    let Some(farlane) = farlane() else { return };
    let [mut owner, mut host] = ["owner", "host"].map(|node| Machine::new(&farlane, node));
    owner.start();
    host.start();
    owner.enforce(1, &[]);
    let file = owner.pool().join("v.raw");
    assert_eq!(std::fs::metadata(&file).unwrap().len(), 8 << 20);

    let first = alone("a", "host", 2);
    let credentials = of(&owner.enforce(2, std::slice::from_ref(&first)), "a");
    let record = host.connect(&owner, &first, &credentials);
    write_and_read(&farlane, &record);
    let secret = &credentials[0].dhchap;
    assert_eq!(holders(&owner.folder(), secret), ["v.a.E0-2.dhchap"]);
    assert_eq!(holders(&host.folder(), secret), ["a.E0-2.dhchap"]);
    assert!(!owner.logged().contains(secret) && !host.logged().contains(secret));

    // A host that is at work is let out.
    let load = ["--rw", "randwrite", "--iodepth", "8", "--runtime", "60s", "--timeout", "2s"];
    let at_work = start_use(&farlane, &record, &["bench"], &load);
    std::thread::sleep(std::time::Duration::from_secs(1));
    owner.enforce(3, &[]);
    let written = std::fs::read(&file).unwrap();
    assert!(!at_work.wait_with_output().unwrap().status.success());
    assert!(std::fs::read(&file).unwrap() == written, "the host wrote after it was let out");
    assert_eq!(holders(&owner.folder(), secret), [""; 0]);

    // Another host, or the same one in a later epoch, has another secret and another name.
    let second = alone("b", "host", 4);
    let credentials = of(&owner.enforce(4, std::slice::from_ref(&second)), "b");
    let error = logs_in(&farlane, &record).unwrap_err();
    assert!(error.contains("SUBNQN"), "the old name is gone: {error}");
    let renamed = fleetd::agent::Record { url: record.url.replace("E0-2", "E0-4"), ..record.clone() };
    let error = logs_in(&farlane, &renamed).unwrap_err();
    assert!(error.contains("different secrets"), "the old secret is refused: {error}");

    host.slice(Vec::new(), vec![attachment(&owner, &first, Wish::Disconnect)], &[]);
    host.await_report("a's end", |reported| reported.report.attachments.is_empty());
    let new = host.connect(&owner, &second, &credentials);
    write_and_read(&farlane, &new);
    let until = std::time::Instant::now() + crate::machine::PATIENCE;
    while find(&host.folder(), &first.attachment).unwrap().is_some()
        || holders(&host.folder(), secret) != [""; 0]
    {
        assert!(std::time::Instant::now() < until, "the record and the secret of a go");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn hosts_that_must_encrypt_have_keys() {
    let Some(farlane) = farlane() else { return };
    let [mut owner, mut host] = ["owner", "host"].map(|node| Machine::new(&farlane, node));
    owner.encrypt = true;
    owner.start();
    host.start();
    let one = alone("a", "host", 1);
    let credentials = of(&owner.enforce(1, std::slice::from_ref(&one)), "a");
    let record = host.connect(&owner, &one, &credentials);
    assert!(record.tls_key_file.is_some());
    write_and_read(&farlane, &record);
    let clear = fleetd::agent::Record { tls_key_file: None, ..record };
    logs_in(&farlane, &clear).unwrap_err();
}

#[test]
fn hosts_that_share_a_volume_do_not_disturb_each_other() {
    let Some(farlane) = farlane() else { return };
    let [mut owner, mut one, mut two] = ["owner", "one", "two"].map(|node| Machine::new(&farlane, node));
    [&mut owner, &mut one, &mut two].into_iter().for_each(Machine::start);
    let writer = admission("a", "one", Mode::Shared, 1);
    let reader = admission("b", "two", Mode::Read, 2);
    owner.enforce(1, std::slice::from_ref(&writer));
    let reported = owner.enforce(2, &[writer.clone(), reader.clone()]);
    let first = one.connect(&owner, &writer, &of(&reported, "a"));
    let second = two.connect(&owner, &reader, &of(&reported, "b"));
    assert_eq!(first.nqn, second.nqn);
    write_and_read(&farlane, &first);
    let load = ["--rw", "randwrite", "--runtime", "2s", "--timeout", "2s"];
    let refused = use_volume(&farlane, &second, &["bench"], &load);
    assert!(!refused.status.success(), "a host that reads only has written");

    let at_work = start_use(&farlane, &first, &["bench"], &load);
    std::thread::sleep(std::time::Duration::from_millis(500));
    owner.enforce(3, std::slice::from_ref(&writer));
    logs_in(&farlane, &second).unwrap_err();
    let output = at_work.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_volume_is_deleted_and_made_anew() {
    let Some(farlane) = farlane() else { return };
    let mut owner = Machine::new(&farlane, "owner");
    owner.start();
    owner.enforce(1, &[alone("a", "host", 1)]);
    let file = owner.pool().join("v.raw");
    std::fs::write(&file, vec![7; 4096]).unwrap();
    let other = owner.pool().join("other.raw");
    std::fs::write(&other, "of another program").unwrap();
    let delete = OwnedVolume { delete: true, ..volume("v", 2, &[]) };
    owner.slice(vec![delete], Vec::new(), &[]);
    owner.await_report("the deletion", |reported| reported.volume("v").is_some_and(|one| one.deleted));
    assert!(!file.exists() && other.exists());
    owner.slice(Vec::new(), Vec::new(), &[]);
    owner.await_report("the volume's end", |reported| reported.volume("v").is_none());
    owner.enforce(1, &[]);
    assert_eq!(&std::fs::read(&file).unwrap()[..4], [0; 4]);
}

#[test]
fn volumes_without_room_or_pool_stop_no_others() {
    let Some(farlane) = farlane() else { return };
    let mut owner = Machine::new(&farlane, "owner");
    owner.start();
    let large = OwnedVolume { bytes: 1 << 60, ..volume("large", 1, &[alone("c", "host", 1)]) };
    let lost = OwnedVolume { pool: name("elsewhere"), ..volume("lost", 1, &[]) };
    owner.slice(vec![large, lost, volume("v", 1, &[alone("a", "host", 1)])], Vec::new(), &[]);
    let reported = owner.await_report("v", |reported| reported.enforces("v", 1));
    assert!(!reported.enforces("large", 1) && !reported.enforces("lost", 1));
    owner.enforce(2, &[]);
    let logged = owner.logged();
    assert!(logged.contains("1152921504606846976 bytes are wanted"), "{logged}");
    assert!(logged.contains("this machine has no pool elsewhere: the agent's pools are pool"), "{logged}");
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert_eq!(owner.logged().matches("bytes are wanted").count(), 1, "a problem is logged once");
    assert!(!owner.pool().join("large.raw").exists());
}

#[test]
fn a_volume_grows_at_work() {
    let Some(farlane) = farlane() else { return };
    let mut owner = Machine::new(&farlane, "owner");
    owner.start();
    let one = alone("a", "host", 1);
    owner.enforce(1, std::slice::from_ref(&one));
    let target = owner.target();
    let larger = OwnedVolume { bytes: 16 << 20, ..volume("v", 1, &[one]) };
    owner.slice(vec![larger], Vec::new(), &[]);
    let is_larger = |reported: &Reported| reported.volume("v").is_some_and(|one| one.bytes == 16 << 20);
    owner.await_report("16 MiB", |reported| is_larger(reported) && reported.enforces("v", 1));
    assert_eq!(std::fs::metadata(owner.pool().join("v.raw")).unwrap().len(), 16 << 20);
    assert_eq!(owner.target(), target);
}

#[test]
fn a_reservation_of_a_host_that_shares_a_volume_outlives_the_target() {
    let Some(farlane) = farlane() else { return };
    let [mut owner, mut one, mut two] = ["owner", "one", "two"].map(|node| Machine::new(&farlane, node));
    [&mut owner, &mut one, &mut two].into_iter().for_each(Machine::start);
    let sharing = [admission("a", "one", Mode::Shared, 1), admission("b", "two", Mode::Shared, 1)];
    let reported = owner.enforce(1, &sharing);
    let first = one.connect(&owner, &sharing[0], &of(&reported, "a"));
    let second = two.connect(&owner, &sharing[1], &of(&reported, "b"));
    let run = |record, word: &str, options: &[&str]| {
        let output = use_volume(&farlane, record, &["nvme", word], options);
        assert!(output.status.success(), "{word}: {}", String::from_utf8_lossy(&output.stderr));
    };
    // The registration is to persist through power loss.
    run(&first, "resv-register", &["--nrkey", "0xab", "--cptpl", "3"]);
    run(&first, "resv-acquire", &["--crkey", "0xab", "--rtype", "1"]);
    let is_kept_out = || {
        let load = ["--rw", "randwrite", "--runtime", "1s", "--timeout", "3s"];
        let output = use_volume(&farlane, &second, &["bench"], &load);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && text.to_lowercase().contains("reservation conflict"), "{text}");
    };
    is_kept_out();
    owner.kill_target();
    let until = std::time::Instant::now() + crate::machine::PATIENCE;
    while logs_in(&farlane, &second).is_err() {
        assert!(std::time::Instant::now() < until, "the next target lets the host in");
    }
    is_kept_out();
    run(&first, "resv-release", &["--crkey", "0xab", "--rtype", "1"]);
    write_and_read(&farlane, &second);
}
