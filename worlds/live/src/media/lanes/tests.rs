use std::path::PathBuf;

use engine::Buffer;
use nvme::media::MediaError;

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
