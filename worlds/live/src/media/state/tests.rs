//! Files of state: their contents, and how damaged or edited files are treated.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use nvme::media::MediumId;
use nvme::subsystem::{
    BlockSize, Config, ControllerConfig, Notification, Output, Registrant, ReservationRecord,
    ReservationType, SanitizeRecord, SanitizeStatus, SavedFeature, Subsystem, UnreadableBlocks,
    WriteProtection,
};
use nvme::wire::NamespaceId;
use serde::{Deserialize, Serialize};

use super::ssd::{Origin, Restored, load, restore};
use super::*;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Section {
    name: String,
    numbers: BTreeMap<String, u32>,
    bytes: Hex,
}

/// The text without its digest, as after a change by hand.
fn edited(text: &str) -> String {
    let (body, _) = text.rsplit_once("# end ").unwrap();
    format!("{body}# end\n")
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn section(name: &str) -> Section {
    let numbers = BTreeMap::from([("one".to_owned(), 1)]);
    Section { name: name.to_owned(), numbers, bytes: Hex(vec![0, 0xfe]) }
}

fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ssd.state");
    (folder, path)
}

fn refusal(path: &Path) -> String {
    let error = Store::open(path).unwrap_err();
    assert!(!error.remedy().is_empty());
    assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    error.to_string()
}

#[test]
fn sections_come_back_and_the_file_is_one_processs_at_a_time() {
    let (folder, path) = folder();
    {
        let store = Store::open(&path).unwrap();
        assert_eq!(store.section::<Section>("a").unwrap(), None);
        store.put("a", &section("first"));
        let generation = store.put("b", &section("second"));
        store.wait(generation).unwrap();
        // Replacing the file again and again keeps the lock.
        for _ in 0..3 {
            let generation = store.put("a", &section("third"));
            store.wait(generation).unwrap();
        }
        assert!(refusal(&path).contains("in use"));
        store.put("b", &section("last"));
    }
    let store = Store::open(&path).unwrap();
    assert_eq!(store.section("a").unwrap(), Some(section("third")));
    assert_eq!(store.section("b").unwrap(), Some(section("last")), "the end waits for put sections");
    assert!(store.expect_only(&["a"]).unwrap_err().to_string().contains("[b]"));
    drop(store);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "it, and the generation before it");
    assert!(fs::read_to_string(&path).unwrap().starts_with("# The state of a Farlane"));
}

#[test]
fn a_store_that_was_never_put_into_leaves_nothing() {
    let (folder, path) = folder();
    let store = Store::open(&path).unwrap();
    assert!(refusal(&path).contains("in use"));
    drop(store);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    assert!(refusal(&folder.path().join("missing/ssd.state")).contains("can't make it"));
    assert!(refusal(folder.path()).contains("not a file"));
}

#[test]
fn a_half_written_replacement_and_a_link_do_no_harm() {
    let (folder, path) = folder();
    let store = Store::open(&path).unwrap();
    store.wait(store.put("a", &section("kept"))).unwrap();
    drop(store);
    let new = folder.path().join("ssd.state.new");
    fs::write(&new, "farlane-state = 1\n[a").unwrap();
    for path in [&new, &path] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
    }
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let store = Store::open(&link).unwrap();
    assert_eq!(store.section("a").unwrap(), Some(section("kept")));
    store.wait(store.put("a", &section("changed"))).unwrap();
    drop(store);
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(fs::read_to_string(&path).unwrap().contains("changed"));
    assert_eq!([mode(&path), mode(&folder.path().join("ssd.state.old"))], [0o600; 2]);
}

#[test]
fn no_name_beside_the_file_leads_to_another_one() {
    let (folder, path) = folder();
    let victim = folder.path().join("victim");
    fs::write(&victim, "the victim's").unwrap();
    let ends = [".new", ".old", ".damaged"];
    let plant = || {
        for end in ends {
            let name = folder.path().join(format!("ssd.state{end}"));
            let _ = fs::remove_file(&name);
            std::os::unix::fs::symlink(&victim, &name).unwrap();
            let _ = std::os::unix::fs::lchown(&name, Some(65_534), None);
        }
    };
    plant();
    let store = Store::open(&path).unwrap();
    store.wait(store.put("a", &section("first"))).unwrap();
    for name in ["second", "third"] {
        plant();
        store.wait(store.put("a", &section(name))).unwrap();
    }
    drop(store);
    // Damage makes the third name used.
    plant();
    let old = folder.path().join("ssd.state.old");
    fs::remove_file(&old).unwrap();
    fs::copy(&path, &old).unwrap();
    fs::write(&path, "farlane-state = 2\n").unwrap();
    let store = Store::open(&path).unwrap();
    store.wait(store.put("a", &section("fourth"))).unwrap();
    drop(store);
    assert_eq!(fs::read_to_string(&victim).unwrap(), "the victim's");
    for end in ["", ".old", ".damaged"] {
        let path = folder.path().join(format!("ssd.state{end}"));
        assert!(fs::symlink_metadata(&path).unwrap().is_file(), "{end}");
    }
    assert_eq!([mode(&path), mode(&folder.path().join("ssd.state.damaged"))], [0o600; 2]);
}

#[test]
fn files_that_are_not_as_they_should_be_are_refused_and_left_alone() {
    let (_folder, path) = folder();
    let store = Store::open(&path).unwrap();
    store.wait(store.put("a", &section("x"))).unwrap();
    drop(store);
    let sound = edited(&fs::read_to_string(&path).unwrap());
    let changed = |from: &str, to: &str| {
        assert!(sound.contains(from), "{sound}");
        sound.replace(from, to)
    };
    let cases = [
        ("hello".to_owned(), "not a state of Farlane's"),
        (String::new(), "not a state of Farlane's"),
        ("[package]\nname = \"x\"\n".to_owned(), "not a state of Farlane's"),
        (changed("state = 2", "state = 3"), "version 3"),
        (changed("state = 2", "state = \"2\""), "expected a version"),
        (changed("# end\n", ""), "cut off"),
        (sound[..sound.len() * 3 / 4].to_owned(), "cut off"),
        (changed("\n[a]", "\nstray = 3\n[a]"), "stray: expected a table"),
        (changed("name = ", "name : "), "damaged"),
    ];
    for (text, words) in cases {
        fs::write(&path, &text).unwrap();
        let said = refusal(&path);
        assert!(said.contains(words), "{said}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
    fs::write(&path, [0xff, 0xfe]).unwrap();
    assert!(refusal(&path).contains("not a state of Farlane's"));
    // An error within a section is shown with its line.
    for (text, words) in [
        (changed("\"00fe\"", "\"00f\""), "bytes = \"00f\""),
        (changed("\"00fe\"", "\"00f\""), "expected pairs of hexadecimal digits"),
        (changed("one = 1", "one = -1"), "one = -1"),
        (changed("name", "title"), "title"),
    ] {
        fs::write(&path, text).unwrap();
        let store = Store::open(&path).unwrap();
        let error = store.section::<Section>("a").unwrap_err().to_string();
        assert!(error.contains(words) && error.contains("line"), "{error}");
    }
}

#[test]
fn a_failure_to_save_is_reported_and_tried_again() {
    let (folder, path) = folder();
    let store = Store::open(&path).unwrap();
    let mut watch = store.watch().unwrap();
    store.wait(store.put("a", &section("x"))).unwrap();
    assert!(watch.has_news() && !watch.has_news() && watch.notice().is_none());
    // The file can't be written where a folder is.
    let obstacle = folder.path().join("ssd.state.new");
    fs::create_dir(&obstacle).unwrap();
    let generation = store.put("a", &section("y"));
    assert!(store.wait(generation).is_err());
    assert!(matches!(watch.outcome(generation), Some(Err(_))));
    assert!(watch.has_news());
    assert!(matches!(watch.notice(), Some(Notice::Failed(_))));
    assert!(watch.notice().is_none());
    assert!(fs::read_to_string(&path).unwrap().contains('x'), "the former contents are there");
    fs::remove_dir(&obstacle).unwrap();
    let later = store.put("a", &section("y"));
    store.wait(later).unwrap();
    assert_eq!(watch.outcome(generation), Some(Ok(())));
    assert!(matches!(watch.notice(), Some(Notice::Recovered(_))));
}

#[test]
fn what_could_not_be_saved_is_an_error_at_the_end() {
    let (folder, path) = folder();
    let store = Store::open(&path).unwrap();
    store.finish().unwrap();
    assert!(!path.exists(), "nothing was put");
    store.wait(store.put("a", &section("x"))).unwrap();
    let obstacle = folder.path().join("ssd.state.new");
    fs::create_dir(&obstacle).unwrap();
    store.put("a", &section("y"));
    let said = store.finish().unwrap_err().to_string();
    assert!(said.contains("can't save it") && said.contains("ssd.state"), "{said}");
    fs::remove_dir(&obstacle).unwrap();
    store.finish().unwrap();
    assert!(fs::read_to_string(&path).unwrap().contains("name = \"y\""));
}

/// In words, the result of a store whose file was damaged in transit to or from its disk. A note is
/// expected with every outcome but that of the text written last.
fn outcome(path: &Path) -> &'static str {
    let Ok(store) = Store::open(path) else { return "refused" };
    match store.section("a") {
        Ok(Some(Section { name, .. })) if name == "second" => "same",
        Ok(Some(found)) if found == section("first") && store.note().is_some() => "before",
        found => panic!("{found:?}, and nothing was said: {:?}", fs::read_to_string(path)),
    }
}

#[test]
fn a_file_that_is_cut_or_flipped_anywhere_never_changes_what_is_remembered_silently() {
    let (folder, path) = folder();
    let store = Store::open(&path).unwrap();
    store.wait(store.put("a", &section("first"))).unwrap();
    store.wait(store.put("a", &section("second"))).unwrap();
    drop(store);
    let sound = fs::read(&path).unwrap();
    let flipped = (0..8 * sound.len()).map(|bit| {
        let mut bytes = sound.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        bytes
    });
    let cut = (0..sound.len()).map(|length| sound[..length].to_vec());
    let all: Vec<_> = flipped.chain(cut).collect();
    let count = |words: &str| {
        let is_so = |bytes: &&Vec<u8>| {
            fs::write(&path, bytes).unwrap();
            outcome(&path) == words
        };
        all.iter().filter(is_so).count()
    };
    let same = count("same");
    // At most, white space at the very end reads as well as the newline.
    assert!(same < 20, "{same} of {}", all.len());
    assert_eq!(count("before") + same, all.len(), "the generation before is there");
    fs::remove_file(folder.path().join("ssd.state.old")).unwrap();
    assert_eq!(count("refused") + same, all.len(), "nothing is there to fall back on");
}

#[test]
fn no_bit_of_an_ssds_state_is_without_its_digest() {
    let (_folder, path) = folder();
    let first = restored(&path, given("S1"), &["file a", "file b"], Some("file p")).unwrap();
    keep(&path, &first);
    let sound = fs::read(&path).unwrap();
    let expected = text::sections_of(std::str::from_utf8(&sound).unwrap()).unwrap().sections;
    for bit in 0..8 * sound.len() {
        let mut bytes = sound.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let Ok(text) = std::str::from_utf8(&bytes) else { continue };
        if let Ok(parsed) = text::sections_of(text) {
            assert_eq!(parsed.sections, expected, "bit {bit}");
        }
    }
}

#[test]
fn what_was_damaged_is_put_aside_and_the_generation_before_it_stays_until_the_next_is_saved() {
    let (folder, path) = folder();
    let store = Store::open(&path).unwrap();
    store.wait(store.put("a", &section("first"))).unwrap();
    store.wait(store.put("a", &section("second"))).unwrap();
    drop(store);
    let changed = fs::read_to_string(&path).unwrap().replace("second", "sekond");
    fs::write(&path, &changed).unwrap();
    let store = Store::open(&path).unwrap();
    let note = store.note().unwrap();
    assert!(note.contains("digest") && note.contains("ssd.state.old") && note.contains("`# end`"), "{note}");
    store.wait(store.put("a", &section("third"))).unwrap();
    let read = |end: &str| fs::read_to_string(folder.path().join(format!("ssd.state{end}"))).unwrap();
    assert_eq!(read(".damaged"), changed);
    assert!(read(".old").contains("first") && read("").contains("third"));
    drop(store);
    // A change by hand, without a digest, is accepted with a note.
    fs::write(&path, edited(&read("").replace("third", "fourth"))).unwrap();
    let store = Store::open(&path).unwrap();
    assert_eq!(store.section("a").unwrap(), Some(section("fourth")));
    assert!(store.note().unwrap().contains("a change by hand"));
    drop(store);
    // A file of the first version has no digest; that needs no note.
    fs::write(&path, read("").replace("state = 2", "state = 1")).unwrap();
    let store = Store::open(&path).unwrap();
    assert_eq!((store.note(), store.section("a").unwrap()), (None, Some(section("fourth"))));
    drop(store);
    // A new life has no generation before it.
    fs::remove_file(&path).unwrap();
    let store = Store::open(&path).unwrap();
    assert_eq!(store.section::<Section>("a").unwrap(), None);
    store.wait(store.put("a", &section("new"))).unwrap();
    assert!(!folder.path().join("ssd.state.old").exists());
}

const DISK: u64 = 1 << 20;

fn given(serial: &str) -> Config {
    let config = Config::new(serial).with_namespace(MediumId(0), DISK).with_namespace(MediumId(1), DISK);
    config.with_pool(MediumId(2), DISK)
}

fn origins(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn restored(path: &Path, config: Config, names: &[&str], pool: Option<&str>) -> Result<Restored, StateError> {
    let store = Store::open(path)?;
    let saved = load(&store)?;
    restore(&store, saved, config, Origin { namespaces: &origins(names), pool, is_numbered: false })
}

/// Saves the state, as a keeper does.
fn keep(path: &Path, restored: &Restored) {
    let store = Store::open(path).unwrap();
    store.wait(store.put(ssd::SECTION, &restored.state)).unwrap();
}

/// The notification of a controller that has created a namespace.
fn created(config: &Config, id: u32, offset: u64) -> Notification {
    let mut namespace = config.namespaces[0];
    (namespace.id, namespace.medium) = (NamespaceId(id), MediumId(2));
    (namespace.offset, namespace.bytes, namespace.attached) = (offset, 8192, false);
    namespace.identity.nguid = [9; 16];
    Notification::NamespaceCreated { namespace: Box::new(namespace), created: 7 }
}

#[test]
fn an_ssd_remembers_what_its_controller_said() {
    let (_folder, path) = folder();
    let mut first = restored(&path, given("S1"), &["file a", "file b"], Some("file p")).unwrap();
    let config = first.config.clone();
    let key = nvme::subsystem::FeatureKey {
        feature: nvme::wire::feature::FeatureId::WriteAtomicity,
        namespace: NamespaceId(0),
        index: 0,
    };
    let record = SanitizeRecord {
        status: SanitizeStatus::InProgress,
        cdw10: 2,
        cdw11: 0,
        passes: 3,
        data_erased: false,
    };
    let unreadable = |lba, blocks| UnreadableBlocks { namespace: NamespaceId(2), lba, blocks };
    let protected =
        |id, protection| Notification::NamespaceProtected { namespace: NamespaceId(id), protection };
    let image = nvme::subsystem::FirmwareImage::new("R9", &[1, 2, 3]);
    let said = [
        created(&config, 3, 4096),
        Notification::NamespaceAttached { namespace: NamespaceId(3), attached: true },
        Notification::NamespaceAttached { namespace: NamespaceId(1), attached: false },
        protected(1, WriteProtection::Protected),
        protected(2, WriteProtection::Protected),
        protected(2, WriteProtection::None),
        protected(3, WriteProtection::Protected),
        Notification::NamespaceFormatted { namespace: NamespaceId(2), block: BlockSize::Bytes4096 },
        Notification::FeatureSaved(SavedFeature { key, value: 0 }),
        Notification::FeatureSaved(SavedFeature { key, value: 1 }),
        Notification::SanitizeChanged(record),
        Notification::BlocksUnreadable(unreadable(10, 10)),
        Notification::BlocksReadable(unreadable(12, 2)),
        Notification::SelfTestStarted { extended: true, namespace: NamespaceId::ALL },
        Notification::SelfTestEnded(Box::default()),
        Notification::FirmwareStored { slot: 3, image: Box::new(image.clone()) },
        Notification::FirmwareSelected { slot: 3 },
    ];
    for notification in &said {
        assert!(first.state.apply(notification));
    }
    // A controller of that configuration reports its state when it starts.
    let mut controller = Subsystem::new(engine::Instant::ZERO, config.clone());
    controller.add_controller(engine::Instant::ZERO, ControllerConfig::pcie(0));
    while let Some(output) = engine::Engine::poll_output(&mut controller) {
        if let Output::Notify(notification) = output {
            first.state.apply(&notification);
        }
    }
    keep(&path, &first);

    let again = restored(&path, given("S1"), &["file a", "file b"], Some("file p")).unwrap();
    assert!(again.notes.is_empty());
    let got = &again.config;
    let ids: Vec<_> = got.namespaces.iter().map(|one| (one.id.0, one.attached, one.block.bytes())).collect();
    assert_eq!(ids, [(1, false, 512), (2, true, 4096), (3, true, 512)]);
    assert_eq!(got.namespaces[0].identity, config.namespaces[0].identity);
    let protections: Vec<_> = got.namespaces.iter().map(|one| one.write_protection).collect();
    assert_eq!(protections, [WriteProtection::Protected, WriteProtection::None, WriteProtection::Protected]);
    let third = &got.namespaces[2];
    assert_eq!((third.offset, third.bytes, third.identity.nguid), (4096, 8192, [9; 16]));
    assert_eq!(got.pool.map(|pool| pool.created), Some(7));
    assert_eq!(got.saved_features, [SavedFeature { key, value: 1 }]);
    assert_eq!(got.sanitize, record);
    assert_eq!(got.unreadable_blocks, [unreadable(10, 2), unreadable(14, 6)]);
    assert_eq!((got.extended_self_test, got.self_test_results.len()), (None, 1));
    assert_eq!((got.firmware.active, &got.firmware.images[1]), (3, &Some(image)));
    assert_eq!((got.events.len(), got.counters.power_cycles), (2, 1));
    assert_eq!(got.counters.unsafe_shutdowns, 0);
    let mut controller = Subsystem::new(engine::Instant::ZERO, again.config.clone());
    assert_eq!(controller.counters().power_cycles, 2);
    while engine::Engine::poll_output(&mut controller).is_some() {}

    let mut again = again;
    again.state.apply(&Notification::NamespaceDeleted(NamespaceId(3)));
    again.state.set_in_use();
    keep(&path, &again);
    let last = restored(&path, given("S1"), &["file a", "file b"], Some("file q")).unwrap();
    assert_eq!((last.config.namespaces.len(), last.config.counters.unsafe_shutdowns), (2, 1));
}

#[test]
fn every_format_of_blocks_outlives_a_restart() {
    let (_folder, path) = folder();
    let mut last = restored(&path, given("S1"), &["file a", "file b"], Some("file p")).unwrap();
    for block in BlockSize::ALL {
        let formatted = Notification::NamespaceFormatted { namespace: NamespaceId(2), block };
        assert!(last.state.apply(&formatted));
        keep(&path, &last);
        last = restored(&path, given("S1"), &["file a", "file b"], Some("file p")).unwrap();
        assert_eq!(last.config.namespaces[1].block, block);
    }
    let text = edited(&fs::read_to_string(&path).unwrap());
    fs::write(&path, text.replacen("block = 4112", "block = 4096", 1)).unwrap();
    let error = restored(&path, given("S1"), &["file a", "file b"], Some("file p")).unwrap_err();
    assert!(error.to_string().contains("4104 or 4112 beside 'unprotected', found 4096"), "{error}");
}

#[test]
fn namespaces_are_known_again_by_their_origins() {
    let (_folder, path) = folder();
    let mut first = restored(&path, given("S1"), &["file a", "file b"], Some("file p")).unwrap();
    let identities: Vec<_> = first.config.namespaces.iter().map(|one| one.identity).collect();
    first.state.apply(&created(&first.config, 3, 0));
    keep(&path, &first);

    let two = |serial: &str| {
        Config::new(serial).with_namespace(MediumId(0), DISK).with_namespace(MediumId(1), DISK)
    };
    let turned = restored(&path, two("S2"), &["file c", "file a"], None).unwrap();
    let ids: Vec<_> = turned.config.namespaces.iter().map(|one| (one.id.0, one.medium.0)).collect();
    assert_eq!(ids, [(1, 1), (4, 0)], "a new namespace gets an unused identifier");
    assert_eq!(turned.config.namespaces[0].identity, identities[0]);
    assert_ne!(turned.config.namespaces[1].identity, identities[1]);
    assert_eq!(turned.notes.len(), 2, "{:?}", turned.notes);
    assert!(turned.notes[0].contains("namespace 2 (file b)") && turned.notes[1].contains("file p"));

    let other = restored(&path, given("S1"), &["file a", "file b"], Some("file q")).unwrap_err();
    assert!(other.to_string().contains("(file p) than the one given (file q)"), "{other}");
    assert!(other.remedy().contains("pool = \"file q\""));
    let small = two("S1").with_pool(MediumId(2), 4096);
    let small = restored(&path, small, &["file a", "file b"], Some("file p")).unwrap_err();
    assert!(small.to_string().contains("beyond the pool's 4096 B"), "{small}");
}

#[test]
fn what_cannot_be_is_refused_with_its_key() {
    let (_folder, path) = folder();
    let mut first = restored(&path, given("S1"), &["file a", "file b"], Some("file p")).unwrap();
    first.state.apply(&created(&first.config, 3, 0));
    first.state.apply(&created(&first.config, 4, 8192));
    let reservation = ReservationRecord {
        namespace: NamespaceId(2),
        persistent: true,
        generation: 5,
        registrants: vec![Registrant { host: [7; 16], key: u64::MAX }],
        reservation: Some((ReservationType::WriteExclusive, [7; 16])),
    };
    first.state.apply(&Notification::ReservationsChanged(Box::new(reservation.clone())));
    keep(&path, &first);
    let again = restored(&path, given("S1"), &["file a", "file b"], Some("file p")).unwrap();
    assert_eq!(again.config.reservations, [reservation]);
    let sound = edited(&fs::read_to_string(&path).unwrap());
    for (from, to, words) in [
        ("offset = 8192", "offset = 4096", "namespace 4, offset: overlaps namespace 3"),
        ("offset = 8192", "offset = 5", "namespace 4, offset: expected a multiple of 4096"),
        ("offset = 8192", "offset = 1099511627776", "beyond the pool"),
        ("id = 4", "id = 3", "namespace 3, id: expected each only once"),
        ("id = 4", "id = 2000", "namespace 2000, id: expected 1 to 1024"),
        ("block = 512", "block = 1024", "block: expected 512, 4096, 4104 or 4112, found 1024"),
        ("nguid = \"0909", "nguid = \"09", "nguid: expected 32 hexadecimal digits"),
        ("active = 1", "active = 9", "firmware.active: expected 1, 2 or 3"),
        ("events = []", "events = [\"00\"]", "events: expected whole persistent events"),
        ("serial = \"S1\"", "serial = \"\"", "serial: expected 1 to 20"),
        ("type = 1", "type = 9", "reservation of namespace 2: expected a type of 1 to 6"),
        ("key = \"ffff", "key = \"ff", "reservation of namespace 2: expected"),
        ("[ssd]", "[subsystem]", "[subsystem"),
        ("created = 7", "created = \"7\"", "created = \"7\""),
        ("shut-down", "shutdown", "shutdown"),
    ] {
        assert!(sound.contains(from), "{from}: {sound}");
        fs::write(&path, sound.replacen(from, to, 1)).unwrap();
        let error = restored(&path, given("S1"), &["file a", "file b"], Some("file p")).unwrap_err();
        assert!(error.to_string().contains(words), "{from} -> {to}: {error}");
    }
}
