//! Unix sockets as their users meet them.

use super::*;
use engine::{Buffer, Pool};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

fn directory() -> PathBuf {
    static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("farlane-unix-{}-{number}", std::process::id()));
    fs::create_dir(&path).unwrap();
    path
}

fn receive(connection: &mut Connection, pool: &mut Pool) -> Received {
    let started = Instant::now();
    loop {
        match connection.receive(pool).unwrap() {
            Received::Nothing => assert!(started.elapsed() < Duration::from_secs(10), "nothing comes"),
            received => return received,
        }
    }
}

fn file_with(bytes: &[u8]) -> OwnedFd {
    let mut file = fs::File::from(rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap());
    file.write_all(bytes).unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.into()
}

#[test]
fn descriptors_arrive_with_the_message_they_were_sent_with() {
    let directory = directory();
    let listener = Listener::bind(&directory.join("s")).unwrap();
    let mut client = Connection::connect(listener.path()).unwrap();
    let mut server = listener.accept().unwrap().expect("the client waits");
    assert_eq!(server.peer_process(), i32::try_from(std::process::id()).ok());
    let mut pool = Pool::default();
    client.send(Buffer::from(b"plain ".to_vec()), Vec::new()).unwrap();
    client.send(Buffer::from(b"with two ".to_vec()), vec![file_with(b"one"), file_with(b"two")]).unwrap();
    client.send(Buffer::from(b"plain again".to_vec()), Vec::new()).unwrap();
    assert_eq!(client.flush().unwrap(), 26);
    let mut text = Vec::new();
    let mut contents = Vec::new();
    while text.len() < 26 {
        let Received::Data(bytes, descriptors) = receive(&mut server, &mut pool) else { panic!("closed") };
        text.extend_from_slice(&bytes);
        if !descriptors.is_empty() {
            // The bytes end with the message that the descriptors came with, or within it.
            assert!((7..=15).contains(&text.len()), "{}", text.len());
        }
        for descriptor in descriptors {
            let mut content = String::new();
            fs::File::from(descriptor).read_to_string(&mut content).unwrap();
            contents.push(content);
        }
    }
    assert!(!server.is_closed_by_peer());
    assert_eq!(text, b"plain with two plain again");
    assert_eq!(contents, ["one", "two"]);
    client.send(Buffer::from(b"last".to_vec()), Vec::new()).unwrap();
    client.flush().unwrap();
    drop(client);
    assert!(server.is_closed_by_peer());
    assert!(matches!(receive(&mut server, &mut pool), Received::Data(bytes, _) if &*bytes == b"last"));
    assert!(matches!(receive(&mut server, &mut pool), Received::Closed));
    drop(listener);
    assert!(!directory.join("s").exists());
    fs::remove_dir(directory).unwrap();
}

#[test]
fn a_reader_that_is_slow_gets_every_byte_and_no_descriptor_twice() {
    let directory = directory();
    let listener = Listener::bind(&directory.join("s")).unwrap();
    let mut client = Connection::connect(listener.path()).unwrap();
    let mut server = listener.accept().unwrap().unwrap();
    let mut pool = Pool::default();
    let block = Buffer::from((0..=255).cycle().take(100_000).collect::<Vec<u8>>());
    for _ in 0..40 {
        client.send(block.clone(), vec![file_with(b"x")]).unwrap();
    }
    let (mut bytes, mut descriptors) = (0, 0);
    while bytes < 4_000_000 {
        client.flush().unwrap();
        if let Received::Data(data, passed) = server.receive(&mut pool).unwrap() {
            assert!(data.iter().zip(bytes..).all(|(byte, at)| usize::from(*byte) == at % 100_000 % 256));
            bytes += data.len();
            descriptors += passed.len();
        }
    }
    assert_eq!((bytes, descriptors, client.unsent()), (4_000_000, 40, 0));
    drop(listener);
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn the_outbox_has_an_end() {
    let directory = directory();
    let listener = Listener::bind(&directory.join("s")).unwrap();
    let mut client = Connection::connect(listener.path()).unwrap();
    let megabyte = Buffer::zeroed(1 << 20);
    for _ in 0..16 {
        client.send(megabyte.clone(), Vec::new()).unwrap();
    }
    assert_eq!(client.send(megabyte, Vec::new()), Err(SendError::OutboxFull));
    let many = (0..=DESCRIPTORS_MAX).map(|_| file_with(b"")).collect();
    assert_eq!(client.send(Buffer::from(vec![1]), many), Err(SendError::TooManyDescriptors));
    drop(listener);
    fs::remove_dir_all(directory).unwrap();
}

/// A process that is stopped accepts no connections. A process that connects then must not wait for
/// it.
#[test]
fn a_listener_whose_queue_is_full_holds_up_no_client() {
    let directory = directory();
    let listener = Listener::bind(&directory.join("s")).unwrap();
    rustix::net::listen(&listener.socket, 1).unwrap();
    let (done, came) = std::sync::mpsc::channel();
    let path = listener.path().to_owned();
    std::thread::spawn(move || {
        let mut waiting = Vec::new();
        let error = loop {
            match Connection::connect(&path) {
                Ok(connection) => waiting.push(connection),
                Err(error) => break error,
            }
        };
        let taken = Listener::bind(&path).map(drop);
        done.send((error, taken)).unwrap();
    });
    let (error, taken) = came.recv_timeout(Duration::from_secs(10)).expect("no client is blocked");
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{error}");
    assert!(error.to_string().contains("queue of connections is full"), "{error}");
    assert!(matches!(taken, Err(BindError::InUse)), "its listener is alive");
    drop(listener);
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_name_that_is_taken_is_not_stolen_and_a_stale_one_is_replaced() {
    let directory = directory();
    let path = directory.join("s");
    let listener = Listener::bind(&path).unwrap();
    assert!(matches!(Listener::bind(&path), Err(BindError::InUse)));
    // A process that was killed leaves its socket's name behind.
    let stale = directory.join("stale");
    drop(UnixListener::bind(&stale).unwrap());
    assert!(stale.exists());
    let second = Listener::bind(&stale).unwrap();
    Connection::connect(&stale).unwrap();
    // A name that another file has taken meanwhile stays.
    fs::remove_file(&stale).unwrap();
    fs::write(&stale, "no socket").unwrap();
    drop(second);
    assert!(matches!(Listener::bind(&stale), Err(BindError::NotASocket)));
    assert_eq!(fs::read(&stale).unwrap(), b"no socket");
    let deep = directory.join("missing").join("s");
    assert!(matches!(Listener::bind(&deep), Err(BindError::NoDirectory(_))));
    let long = directory.join("x".repeat(120));
    assert!(matches!(Listener::bind(&long), Err(BindError::TooLong(_))));
    drop(listener);
    fs::remove_dir_all(directory).unwrap();
}

/// A stale name has to be removed before another can be made. No other process may do so in
/// between.
#[test]
fn a_stale_name_is_replaced_by_one_process_at_a_time() {
    let directory = directory();
    let (path, lock) = (directory.join("s"), directory.join("s.lock"));
    drop(UnixListener::bind(&path).unwrap());
    // Another process is about to replace it, and was killed before at the same work.
    let other = File::create(&lock).unwrap();
    other.lock().unwrap();
    assert!(matches!(Listener::bind(&path), Err(BindError::InUse)));
    assert!(path.exists() && lock.exists());
    drop(other);
    drop(Listener::bind(&path).unwrap());
    assert!(!path.exists() && !lock.exists(), "nothing is left behind");
    for round in 0..100 {
        drop(UnixListener::bind(&path).unwrap());
        let start = std::sync::Barrier::new(4);
        let bind = || {
            start.wait();
            Listener::bind(&path)
        };
        let bound: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(bind)).collect();
            threads.into_iter().filter_map(|thread| thread.join().unwrap().ok()).collect()
        });
        assert_eq!(bound.len(), 1, "round {round}");
        Connection::connect(&path).unwrap();
        assert!(bound[0].accept().unwrap().is_some(), "round {round}: it has the name");
    }
    fs::remove_dir(directory).unwrap();
}

#[test]
fn a_socket_for_its_owner_has_that_mode_and_a_planted_lock_is_no_way_to_another_file() {
    use std::os::unix::fs::{PermissionsExt, lchown, symlink};
    let directory = directory();
    let (path, victim) = (directory.join("s"), directory.join("victim"));
    let listener = Listener::bind_for_owner(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let mut client = Connection::connect(&path).unwrap();
    client.send(Buffer::from(b"asked".to_vec()), Vec::new()).unwrap();
    assert!(listener.accept().unwrap().is_some());
    drop(listener);
    symlink(&victim, directory.join("s.lock")).unwrap();
    if rustix::process::geteuid().is_root() {
        lchown(directory.join("s.lock"), Some(65_534), None).unwrap();
    }
    drop(Listener::bind(&path).unwrap());
    assert!(!victim.exists() && !path.exists() && !directory.join("s.lock").exists());
    fs::remove_dir(directory).unwrap();
}
