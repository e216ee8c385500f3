use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use engine::Rng;
use fleet::Name;
use fleet::object::{Fleet, Key, Kind, Object};
use fleet::store::Event as Change;
use redb::StorageBackend;

use super::*;

/// A disk in memory that fills up, fails, and loses its power.
#[derive(Clone, Debug, Default)]
struct Disk(Arc<Mutex<Platters>>);

#[derive(Debug, Default)]
struct Platters {
    /// What programs read.
    now: Vec<u8>,
    /// What a loss of power leaves.
    durable: Vec<u8>,
    /// What was written since, which a loss of power may leave in part.
    since: Vec<(u64, Vec<u8>)>,
    error: Option<io::ErrorKind>,
    syncs: u64,
}

impl Disk {
    fn fail(&self, error: Option<io::ErrorKind>) {
        self.0.lock().unwrap().error = error;
    }

    /// The disk after a loss of power: of what was not synced, some is there.
    fn without_power(&self, rng: &mut Rng) -> Self {
        let platters = self.0.lock().unwrap();
        let mut left = platters.durable.clone();
        if rng.one_in(2) {
            left.resize(platters.now.len(), 0);
        }
        for (offset, bytes) in &platters.since {
            let from = usize::try_from(*offset).unwrap();
            if rng.one_in(2) && from + bytes.len() <= left.len() {
                left[from..from + bytes.len()].copy_from_slice(bytes);
            }
        }
        let platters = Platters { now: left.clone(), durable: left, ..Platters::default() };
        Self(Arc::new(Mutex::new(platters)))
    }
}

impl Platters {
    fn check(&self) -> io::Result<()> {
        self.error.map_or(Ok(()), |kind| Err(kind.into()))
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().unwrap().now.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let from = usize::try_from(offset).unwrap();
        let platters = self.0.lock().unwrap();
        let bytes = platters.now.get(from..from + out.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(bytes);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut platters = self.0.lock().unwrap();
        platters.check()?;
        platters.now.resize(usize::try_from(len).unwrap(), 0);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut platters = self.0.lock().unwrap();
        platters.check()?;
        platters.durable = platters.now.clone();
        platters.since.clear();
        platters.syncs += 1;
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut platters = self.0.lock().unwrap();
        platters.check()?;
        let from = usize::try_from(offset).unwrap();
        platters.now[from..from + data.len()].copy_from_slice(data);
        platters.since.push((offset, data.to_vec()));
        Ok(())
    }
}

fn key(name: &str) -> Key {
    Key { kind: Kind::Fleet, name: Name::new(name).unwrap() }
}

fn write(term: u64, name: &str, number: u64) -> Transaction {
    let object = Object::Fleet(Fleet { incarnation: number });
    Transaction { term, compares: Vec::new(), writes: vec![(key(name), Some(object))] }
}

type Starter = Box<dyn FnMut() -> Result<Database, DatabaseError> + Send>;

fn worker(disk: &Disk, patience: Duration) -> Worker<Starter> {
    let disk = disk.clone();
    let open: Starter = Box::new(move || builder().create_with_backend(disk.clone()));
    Worker::new(Path::new("disk"), open, patience).unwrap()
}

/// A worker on a thread of its own.
fn start(disk: &Disk, patience: Duration) -> Store {
    let mut worker = worker(disk, patience);
    let (requests, incoming) = unbounded_channel();
    let (outgoing, events) = unbounded_channel();
    std::thread::spawn(move || worker.run(incoming, &outgoing));
    Store { requests, events }
}

fn objects(disk: &Disk) -> BTreeMap<String, u64> {
    let content = Content::new(builder().create_with_backend(disk.clone())).unwrap();
    let Change::Listed { objects, .. } = content.list(0).unwrap() else { panic!("no list") };
    let number = |object: &Object| match object {
        Object::Fleet(fleet) => fleet.incarnation,
        other => panic!("{other:?}"),
    };
    objects.iter().map(|(key, _, object)| (key.name.to_string(), number(object))).collect()
}

/// The next event, but for those of the term's beginning and of changes.
fn next(store: &mut Store) -> Event {
    store.events.blocking_recv().expect("the store has ended")
}

fn elected(store: &mut Store) -> u64 {
    loop {
        if let Event::Elected(term) = next(store) {
            return term;
        }
    }
}

#[test]
fn a_full_disk_delays_a_transaction_and_the_term_goes_on() {
    let disk = Disk::default();
    let mut store = start(&disk, Duration::from_secs(60));
    let term = elected(&mut store);
    disk.fail(Some(io::ErrorKind::StorageFull));
    store.requests.send(Request::Transact(1, write(term, "a", 1))).unwrap();
    let Event::Reachable(Err(reason)) = next(&mut store) else { panic!("no reason") };
    assert!(reason.contains("disk: ") && reason.contains("go on"), "{reason}");
    disk.fail(None);
    assert!(matches!(next(&mut store), Event::Reachable(Ok(()))));
    assert!(matches!(next(&mut store), Event::Answered(1, Answer::Done(1))));
    store.requests.send(Request::Transact(2, write(term, "b", 2))).unwrap();
    assert!(matches!(next(&mut store), Event::Answered(2, Answer::Done(2))));
    drop(store.requests);
    assert!(store.events.blocking_recv().is_none());
    assert_eq!(objects(&disk), BTreeMap::from([("a".to_owned(), 1), ("b".to_owned(), 2)]));
}

#[test]
fn a_disk_that_stays_full_makes_transactions_unknown_and_ends_the_term() {
    let disk = Disk::default();
    let mut store = start(&disk, Duration::ZERO);
    let term = elected(&mut store);
    disk.fail(Some(io::ErrorKind::StorageFull));
    store.requests.send(Request::Transact(1, write(term, "a", 1))).unwrap();
    store.requests.send(Request::Resign).unwrap();
    assert!(matches!(next(&mut store), Event::Reachable(Err(_))));
    assert!(matches!(next(&mut store), Event::Answered(1, Answer::Unknown)));
    assert!(matches!(next(&mut store), Event::Deposed));
    // Nothing is elected meanwhile, and nothing is applied.
    store.requests.send(Request::Transact(2, write(term, "b", 2))).unwrap();
    loop {
        match next(&mut store) {
            Event::Answered(2, answer) => break assert_ne!(answer, Answer::Done(1)),
            Event::Elected(term) => panic!("elected in term {term} on a full disk"),
            _ => (),
        }
    }
    disk.fail(None);
    assert!(elected(&mut store) > term);
}

#[test]
fn what_was_acknowledged_survives_a_loss_of_power() {
    for seed in 0..60 {
        let mut rng = Rng::from_seed(seed);
        let disk = Disk::default();
        let mut worker = worker(&disk, Duration::ZERO);
        let (events, mut log) = unbounded_channel();
        worker.stand(&events);
        let term = worker.term.unwrap();
        let mut model = BTreeMap::new();
        let mut terms = vec![term];
        for step in 0..rng.below(30) {
            let batch: Vec<_> =
                (0..=rng.below(3)).map(|one| (format!("n{}", rng.below(20)), 10 * step + one)).collect();
            let transactions =
                batch.iter().map(|(name, number)| (*number, write(term, name, *number))).collect();
            worker.transact(transactions, &events);
            model.extend(batch);
        }
        if rng.one_in(2) {
            // The latest batch is not acknowledged: some of it may be there.
            let after = disk.without_power(&mut rng);
            assert_eq!(objects(&after), model, "seed {seed}");
        }
        let before = disk.without_power(&mut rng);
        let mut again = self::worker(&before, Duration::ZERO);
        again.stand(&events);
        terms.push(again.term.unwrap());
        drop(again);
        assert_eq!(objects(&before), model, "seed {seed}");
        assert!(terms.is_sorted() && terms[0] < terms[1], "seed {seed}: {terms:?}");
        while let Ok(event) = log.try_recv() {
            assert!(
                !matches!(event, Event::Reachable(_) | Event::Answered(_, Answer::Unknown)),
                "seed {seed}"
            );
        }
    }
}

#[test]
fn a_loss_of_power_amid_a_batch_leaves_all_of_it_or_nothing() {
    for seed in 0..60 {
        let mut rng = Rng::from_seed(seed);
        let disk = Disk::default();
        let content = Content::new(builder().create_with_backend(disk.clone())).unwrap();
        let term = content.begin_term().unwrap();
        content.apply(Some(term), &[write(term, "a", 1)]).unwrap();
        // The sync that makes the batch durable never ends.
        let writes = (0..20).map(|one| (key(&format!("n{one}")), write(term, "x", one).writes[0].1.clone()));
        let batch = Transaction { term, compares: Vec::new(), writes: writes.collect() };
        let syncs = disk.0.lock().unwrap().syncs;
        let durable = disk.0.lock().unwrap().durable.clone();
        content.apply(Some(term), &[batch]).unwrap();
        assert!(disk.0.lock().unwrap().syncs > syncs);
        let torn = disk.clone();
        {
            // As before the sync: what was written is in flight.
            let mut platters = torn.0.lock().unwrap();
            let now = platters.now.clone();
            let pages = (0..now.len()).step_by(4096);
            let differs = |from: &usize| durable.get(*from..from + 4096) != now.get(*from..from + 4096);
            platters.since = pages
                .filter(differs)
                .map(|from| (from as u64, now[from..(from + 4096).min(now.len())].to_vec()))
                .collect();
            platters.durable = durable;
        }
        let after = torn.without_power(&mut rng);
        let left = objects(&after).len();
        assert!(left == 1 || left == 21, "seed {seed}: {left} objects");
    }
}

#[test]
fn transactions_that_arrive_together_become_durable_together() {
    let disk = Disk::default();
    let mut worker = worker(&disk, Duration::ZERO);
    let (events, mut log) = unbounded_channel();
    let (requests, incoming) = unbounded_channel();
    worker.stand(&events);
    let term = worker.term.unwrap();
    for number in 0..100 {
        requests.send(Request::Transact(number, write(term, "a", number))).unwrap();
    }
    requests.send(Request::List(7)).unwrap();
    drop(requests);
    let before = disk.0.lock().unwrap().syncs;
    worker.run(incoming, &events);
    assert!(disk.0.lock().unwrap().syncs - before < 10);
    drop((worker, events));
    let (mut answers, mut listed) = (0, 0);
    while let Some(event) = log.blocking_recv() {
        match event {
            Event::Answered(number, Answer::Done(revision)) => {
                assert_eq!(revision, number + 1);
                answers += 1;
            }
            // A list that was asked for after them has them.
            Event::Changed(Change::Listed { number: 7, revision: 100, .. }) => listed += 1,
            _ => (),
        }
    }
    assert_eq!((answers, listed), (100, 1));
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn a_second_user_is_refused_by_name() {
    let folder = folder();
    let path = folder.path().join("store");
    let mut store = open(&path).unwrap();
    std::os::unix::fs::symlink(&path, folder.path().join("alias")).unwrap();
    for name in ["store", "alias"] {
        let error = open(&folder.path().join(name)).unwrap_err().to_string();
        let id = format!("process {}", std::process::id());
        assert!(error.contains(&id) && error.contains("end that first"), "{error}");
    }
    // A hard link has a lock of its own, but the database has its own, too.
    std::fs::hard_link(&path, folder.path().join("other")).unwrap();
    assert!(matches!(open(&folder.path().join("other")), Err(StoreError::Busy { .. })));
    drop(store.requests);
    while store.events.blocking_recv().is_some() {}
    open(&path).unwrap();
}

#[test]
fn a_file_that_is_no_store_is_left_alone() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("text"), "hello".repeat(5000)).unwrap();
    let other = redb::TableDefinition::<u64, u64>::new("other");
    let database = Database::create(path("other")).unwrap();
    let write = database.begin_write().unwrap();
    write.open_table(other).unwrap().insert(1, 1).unwrap();
    write.commit().unwrap();
    drop(database);
    std::fs::create_dir(path("folder")).unwrap();
    for (name, expected) in [
        ("text", "holds no store"),
        ("other", "another program's database"),
        ("folder", "it is a folder"),
        ("none/store", "make the folder first"),
    ] {
        let before = std::fs::read(path(name)).ok();
        let error = open(&path(name)).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains(name), "{error}");
        assert_eq!(std::fs::read(path(name)).ok().map(|now| now.len()), before.map(|before| before.len()));
    }
}

#[test]
fn a_store_of_a_later_version_is_refused() {
    let folder = folder();
    let path = folder.path().join("store");
    let mut store = open(&path).unwrap();
    elected(&mut store);
    drop(store.requests);
    while store.events.blocking_recv().is_some() {}
    let database = Database::open(&path).unwrap();
    let write = database.begin_write().unwrap();
    let numbers = redb::TableDefinition::<&str, u64>::new("numbers");
    write.open_table(numbers).unwrap().insert("format", 2).unwrap();
    write.commit().unwrap();
    drop(database);
    let error = open(&path).unwrap_err().to_string();
    assert!(error.contains("has format 2") && error.contains("format 1"), "{error}");
}

#[test]
fn a_damaged_file_gives_an_error_or_what_was_there() {
    let folder = folder();
    let path = folder.path().join("store");
    let mut store = open(&path).unwrap();
    let term = elected(&mut store);
    for number in 0..50 {
        store.requests.send(Request::Transact(number, write(term, &format!("n{number}"), number))).unwrap();
    }
    drop(store.requests);
    while store.events.blocking_recv().is_some() {}
    let good = std::fs::read(&path).unwrap();
    let mut rng = Rng::from_seed(7);
    for _ in 0..200 {
        let mut bad = good.clone();
        for _ in 0..=rng.below(3) {
            let at = usize::try_from(rng.below(bad.len() as u64)).unwrap();
            bad[at] ^= 1 << rng.below(8);
        }
        if rng.one_in(4) {
            bad.truncate(usize::try_from(rng.below(bad.len() as u64)).unwrap());
        }
        std::fs::write(&path, &bad).unwrap();
        // Debug builds of the database panic where others give an error.
        let result =
            std::panic::catch_unwind(|| open_database(&path).map(|database| Content::new(Ok(database))));
        if let Ok(Ok(Ok(content))) = result
            && let Ok(Change::Listed { objects, .. }) = content.list(0)
        {
            assert!(objects.len() <= 50);
            for (key, _, object) in objects {
                let Object::Fleet(fleet) = object else { panic!("{object:?}") };
                assert_eq!(key.name.to_string(), format!("n{}", fleet.incarnation));
            }
        }
    }
}

#[test]
fn a_backup_is_made_while_the_store_runs_and_opens_as_a_store() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    let mut store = open(&path("store")).unwrap();
    let term = elected(&mut store);
    let send = |store: &Store, numbers: std::ops::Range<u64>| {
        for number in numbers {
            store
                .requests
                .send(Request::Transact(number, write(term, &format!("n{number}"), number)))
                .unwrap();
        }
    };
    send(&store, 0..30);
    store.requests.send(Request::Backup(1, path("backup"))).unwrap();
    send(&store, 30..60);
    let mut done = 0;
    let mut backed_up = false;
    while done < 60 || !backed_up {
        match next(&mut store) {
            Event::Answered(_, Answer::Done(_)) => done += 1,
            Event::BackedUp(1, result) => {
                result.unwrap();
                backed_up = true;
            }
            other => panic!("{other:?}"),
        }
    }
    // A backup overwrites nothing, least of all the store.
    for (name, expected) in [("backup", "it exists"), ("store", "it exists"), ("none/backup", "No such file")]
    {
        store.requests.send(Request::Backup(2, path(name))).unwrap();
        let Event::BackedUp(2, Err(reason)) = next(&mut store) else { panic!("no reason") };
        assert!(reason.contains(expected) && reason.contains(name), "{reason}");
    }
    let mut backup = open(&path("backup")).unwrap();
    assert_eq!(elected(&mut backup), term + 1);
    backup.requests.send(Request::List(3)).unwrap();
    let Event::Changed(Change::Listed { revision, objects, .. }) = next(&mut backup) else {
        panic!("no list")
    };
    assert_eq!((revision, objects.len()), (30, 30));
    assert!(!path("backup.partial").exists());
}

#[test]
fn an_object_that_cannot_be_read_is_named_and_nothing_is_decided() {
    let folder = folder();
    let path = folder.path().join("store");
    let mut store = open(&path).unwrap();
    elected(&mut store);
    drop(store.requests);
    while store.events.blocking_recv().is_some() {}
    let objects = redb::TableDefinition::<&str, (u64, &[u8])>::new("objects");
    let database = Database::open(&path).unwrap();
    let write = database.begin_write().unwrap();
    write.open_table(objects).unwrap().insert("node/n", (1, &b"{\"kind\":\"node\"}"[..])).unwrap();
    write.open_table(objects).unwrap().insert("later/n", (1, &b"?"[..])).unwrap();
    write.commit().unwrap();
    drop(database);
    let mut store = open(&path).unwrap();
    let Event::Reachable(Err(reason)) = next(&mut store) else { panic!("no reason") };
    assert!(reason.contains("node/n") && reason.contains("can't be read"), "{reason}");
}
