use std::path::PathBuf;

use engine::{Buffer, Instant, Nanos};
use nvme::media::MediaError;
use nvme::subsystem::{Config, Counters, Notification};

use super::super::state::{Keeper, Store, ssd};
use super::super::{Options, open};
use super::*;

fn path(name: &str) -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    exe.parent().unwrap().join(format!("farlane-live-lanes-{name}-{}", std::process::id()))
}

fn run(media: &mut Media, medium: MediumId, operation: Operation) -> Result<Vec<u8>, MediaError> {
    let (mut bytes, mut ended) = (Vec::new(), None);
    let mut out = |completion| match completion {
        Completion::Data { data, .. } => bytes.extend_from_slice(&data),
        Completion::Done { result, .. } => ended = Some(result),
    };
    media.submit(Request { id: IoId(1), medium, operation }, &mut out);
    while media.in_flight() > 0 {
        media.reap(&mut out).unwrap();
    }
    ended.expect("it has ended").map(|()| bytes)
}

fn write(offset: u64, fill: u8) -> Operation {
    Operation::Write { offset, data: Buffer::copy_from_slice(&[fill; 4096]), durable: false }
}

const fn read(offset: u64) -> Operation {
    Operation::Read { offset, length: 4096 }
}

#[test]
fn lanes_and_home_see_the_same_bytes_and_lengths() {
    let file = path("same");
    let options = Options { size: Some(1 << 20), ..Options::default() };
    let mut home = Media::new();
    let ram = home.add(RamDisk::new(1 << 20)).unwrap();
    run(&mut home, ram, write(8192, 3)).unwrap();
    let disk = home.add(open(&file, &options).unwrap()).unwrap();
    let gone = home.add(RamDisk::new(512)).unwrap();
    home.remove(gone);
    let lane = home.for_lane().unwrap().expect("all of them can be shared");
    let (to_lane, changes) = std::sync::mpsc::channel::<LaneMediaChange>();
    let (to_home, steps) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let mut media = lane.open().unwrap();
        assert_eq!(run(&mut media, ram, read(8192)), Ok(vec![3; 4096]));
        for medium in [ram, disk] {
            run(&mut media, medium, write(4096, 7)).unwrap();
        }
        to_home.send(media.places.len()).unwrap();
        for change in changes {
            media.apply(change).unwrap();
        }
        assert_eq!(run(&mut media, gone, read(0)), Err(MediaError::Read));
        for medium in [ram, disk] {
            assert_eq!(run(&mut media, medium, read((2 << 20) - 4096)), Ok(vec![0; 4096]));
        }
        let added = MediumId(3);
        assert_eq!(run(&mut media, added, read(0)), Ok(vec![9; 4096]));
    });
    assert_eq!(steps.recv().unwrap(), 3);
    for medium in [ram, disk] {
        assert_eq!(run(&mut home, medium, read(4096)), Ok(vec![7; 4096]));
        home.resize(medium, Some(2 << 20)).unwrap();
    }
    let added = home.add(RamDisk::new(1 << 20)).unwrap();
    run(&mut home, added, write(0, 9)).unwrap();
    let changes = home.changes_for_lanes();
    assert_eq!(changes.len(), 3);
    assert!(home.changes_for_lanes().is_empty());
    changes.into_iter().for_each(|change| to_lane.send(change).unwrap());
    drop(to_lane);
    thread.join().unwrap();
    std::fs::remove_file(&file).unwrap();
}

fn request(id: u32, medium: MediumId, operation: Operation) -> Request {
    Request { id: IoId(id), medium, operation }
}

/// Whether the thread of these media would be woken.
fn is_woken(media: &Media) -> bool {
    let fds: Vec<_> = media.poll_fds().collect();
    fds.into_iter().any(|fd| {
        // SAFETY: the media keep their descriptors open.
        let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) };
        let mut fds = [rustix::event::PollFd::from_borrowed_fd(fd, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut fds, Some(&rustix::event::Timespec::default())).unwrap() > 0
    })
}

/// Hands over results until nothing is in flight, and returns the requests that ended.
fn reap_all(media: &mut Media) -> Vec<(u32, Result<(), MediaError>)> {
    let mut ended = Vec::new();
    while media.in_flight() > 0 {
        media.reap(&mut |completion| note(&mut ended, completion)).unwrap();
    }
    ended
}

fn note(ended: &mut Vec<(u32, Result<(), MediaError>)>, completion: Completion) {
    if let Completion::Done { id, result } = completion {
        ended.push((id.0, result));
    }
}

#[test]
fn a_request_of_another_lane_waits_for_the_change_of_the_same_bytes() {
    let file = path("order");
    let options = Options { size: Some(8 << 20), ring: false, ..Options::default() };
    let mut home = Media::new();
    let disk = home.add(open(&file, &options).unwrap()).unwrap();
    let mut lane = home.for_lane().unwrap().unwrap().open().unwrap();
    std::fs::remove_file(&file).unwrap();
    let (one, other) = (Some(ControllerKey(1)), Some(ControllerKey(2)));
    let mut ended = Vec::new();
    // The change of the home thread spans two zones.
    let long = Operation::WriteZeroes { offset: 0, length: 2 << 20, deallocate: false, durable: false };
    home.submit_for(one, request(1, disk, long), &mut |_| ());
    let mut submit = |lane: &mut Media, id, owner, operation| {
        lane.submit_for(owner, request(id, disk, operation), &mut |completion| note(&mut ended, completion));
    };
    submit(&mut lane, 2, other, write(1 << 20, 7));
    submit(&mut lane, 3, other, read(4096));
    submit(&mut lane, 4, one, write(0, 8));
    submit(&mut lane, 5, other, write(4 << 20, 9));
    submit(&mut lane, 6, None, read(0));
    submit(&mut lane, 7, other, write(8192, 7));
    lane.disown(IoId(7), &mut |completion| note(&mut ended, completion));
    lane.reap(&mut |completion| note(&mut ended, completion)).unwrap();
    ended.sort_unstable_by_key(|(id, _)| *id);
    let free = [(4, Ok(())), (5, Ok(())), (6, Ok(())), (7, Err(MediaError::Unreachable))];
    assert_eq!((&ended[..], lane.in_flight(), is_woken(&lane)), (&free[..], 2, false));
    assert_eq!(reap_all(&mut home), [(1, Ok(()))]);
    assert!(is_woken(&lane));
    let mut ended = reap_all(&mut lane);
    ended.sort_unstable_by_key(|(id, _)| *id);
    assert_eq!((&ended[..], is_woken(&lane)), (&[(2, Ok(())), (3, Ok(()))][..], false));
    assert_eq!(run(&mut home, disk, read(1 << 20)), Ok(vec![7; 4096]));
    // The end of a lane lets the requests of others begin.
    lane.submit_for(one, request(1, disk, write(0, 1)), &mut |_| ());
    home.submit_for(other, request(2, disk, write(0, 2)), &mut |_| ());
    assert_eq!(home.reap(&mut |_| ()).unwrap(), 0);
    drop(lane);
    assert_eq!(reap_all(&mut home), [(2, Ok(()))]);
    assert_eq!(run(&mut home, disk, read(0)), Ok(vec![2; 4096]));
}

#[test]
fn overlapping_requests_of_many_threads_all_end() {
    let file = path("many");
    let options = Options { size: Some(8 << 20), ..Options::default() };
    let mut home = Media::new();
    let disk = home.add(open(&file, &options).unwrap()).unwrap();
    let threads: Vec<_> = (1..=4_u16)
        .map(|number| {
            let lane = home.for_lane().unwrap().unwrap();
            std::thread::spawn(move || {
                let (mut media, mut rng) = (lane.open().unwrap(), engine::Rng::from_seed(number.into()));
                let mut ended = Vec::new();
                for id in 0..1500 {
                    let offset = rng.below(12) * (1 << 18);
                    let length = 4096 << rng.below(9);
                    let operation = match rng.below(3) {
                        0 => Operation::WriteZeroes { offset, length, deallocate: true, durable: false },
                        1 => write(offset, u8::try_from(number).unwrap()),
                        _ => read(offset),
                    };
                    let owner = Some(ControllerKey(u16::try_from(rng.below(3)).unwrap()));
                    media.submit_for(owner, request(id, disk, operation), &mut |_| ());
                    if rng.one_in(10) {
                        let victim = IoId(id - u32::try_from(rng.below(u64::from(id.min(8)) + 1)).unwrap());
                        media.disown(victim, &mut |completion| note(&mut ended, completion));
                    }
                    while media.in_flight() > 20 {
                        media.reap(&mut |completion| note(&mut ended, completion)).unwrap();
                    }
                }
                ended.append(&mut reap_all(&mut media));
                ended.sort_unstable_by_key(|(id, _)| *id);
                ended
            })
        })
        .collect();
    for thread in threads {
        let ended = thread.join().unwrap();
        assert!(ended.iter().map(|(id, _)| *id).eq(0..1500), "each request ends once");
        let refused = |result: &Result<(), MediaError>| *result == Err(MediaError::Unreachable);
        assert!(ended.iter().all(|(_, result)| result.is_ok() || refused(result)));
    }
    std::fs::remove_file(&file).unwrap();
}

/// Home media with one memory and a state file.
fn home_with_state(folder: &tempfile::TempDir) -> (Media, MediumId, Store) {
    let store = Store::open(&folder.path().join("ssd.state")).unwrap();
    let origin = ssd::Origin { namespaces: &[], pool: None, is_numbered: true };
    let restored = ssd::restore(&store, None, Config::new("LANES1"), origin).unwrap();
    let mut home = Media::new();
    let ram = home.add(RamDisk::new(1 << 20)).unwrap();
    home.add(Keeper::new(store.clone(), restored.state).unwrap()).unwrap();
    home.reap(&mut |_| ()).unwrap();
    (home, ram, store)
}

#[test]
fn the_first_use_by_a_lane_is_use_of_the_ssd() {
    let folder = tempfile::tempdir().unwrap();
    let (mut home, ram, store) = home_with_state(&folder);
    let mut lane = home.for_lane().unwrap().unwrap().open().unwrap();
    let is_used = |home: &mut Media| {
        home.reap(&mut |_| ()).unwrap();
        home.poll_timeout().is_some()
    };
    assert!(!is_used(&mut home));
    run(&mut lane, ram, read(0)).unwrap();
    assert!(is_woken(&home) && is_used(&mut home), "the lane has woken the home thread");
    run(&mut lane, ram, read(0)).unwrap();
    let later = Instant::ZERO + Nanos::from_secs(100);
    home.keep(later, Counters::default);
    assert!(!is_used(&mut home), "the counters are saved: an idle SSD wakes no thread");
    run(&mut lane, ram, read(0)).unwrap();
    assert!(is_used(&mut home));
    home.note(&Notification::ReadyForPowerLoss(Box::default()));
    assert!(!is_used(&mut home));
    run(&mut lane, ram, read(0)).unwrap();
    assert!(is_used(&mut home), "use after the notice of a shutdown counts again");
    drop((home, lane));
    store.finish().unwrap();
}
