//! What namespaces are kept on in the live world.

pub mod file;
pub mod nvme;

use std::io;
use std::os::fd::RawFd;

use ::nvme::media::ram::RamDisk;
use ::nvme::media::{Completion, MediumId, Request};
use ::nvme::subsystem::{Counters, Notification};
use engine::Instant;

pub use file::{FileMedium, Note, OpenError, Options, open};
pub use nvme::NvmeMedium;

use crate::state::{Keeper, Notice};

/// The most media of one process.
pub const MEDIA_MAX: usize = 1024;

/// One medium.
#[expect(
    clippy::large_enum_variant,
    reason = "media are few and live long; a box would cost each request a hop"
)]
pub enum Medium {
    /// Memory: everything ends at once.
    Ram(RamDisk),
    /// A file or block device.
    File(FileMedium),
    /// An NVMe controller of this machine.
    Nvme(NvmeMedium),
    /// What the SSD remembers, rather than its data.
    State(Box<Keeper>),
}

impl From<RamDisk> for Medium {
    fn from(disk: RamDisk) -> Self {
        Self::Ram(disk)
    }
}

impl From<FileMedium> for Medium {
    fn from(file: FileMedium) -> Self {
        Self::File(file)
    }
}

impl From<NvmeMedium> for Medium {
    fn from(controller: NvmeMedium) -> Self {
        Self::Nvme(controller)
    }
}

impl From<Keeper> for Medium {
    fn from(keeper: Keeper) -> Self {
        Self::State(Box::new(keeper))
    }
}

/// The media of a far end, by their names.
#[derive(Default)]
pub struct Media {
    media: Vec<Medium>,
    /// Which of them keeps the SSD's state.
    state: Option<usize>,
}

impl Media {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a medium; its name is the number of those before it.
    ///
    /// # Panics
    /// When there are [`MEDIA_MAX`] already.
    pub fn add(&mut self, medium: impl Into<Medium>) -> MediumId {
        assert!(self.media.len() < MEDIA_MAX, "more than {MEDIA_MAX} media");
        let medium = medium.into();
        if matches!(medium, Medium::State(_)) {
            self.state = Some(self.media.len());
        }
        self.media.push(medium);
        MediumId(u32::try_from(self.media.len() - 1).expect("media are few"))
    }

    /// Takes a request; memory answers it at once through `out`, others in a later [`Media::reap`].
    ///
    /// # Panics
    /// When there is no such medium.
    pub fn submit(&mut self, request: Request, out: &mut impl FnMut(Completion)) {
        let index = request.medium.0 as usize;
        if self.state.is_some_and(|state| state != index)
            && let Some(keeper) = self.keeper()
        {
            keeper.on_use();
        }
        match &mut self.media[index] {
            Medium::Ram(disk) => disk.submit(request, out),
            Medium::File(file) => file.submit(request),
            Medium::Nvme(controller) => controller.submit(request),
            Medium::State(keeper) => keeper.submit(&request, out),
        }
    }

    /// Hands over what has come of the requests, without waiting; returns how much was done, 0 when there is
    /// nothing to do until one of [`Media::poll_fds`] is readable or [`Media::poll_timeout`] is due.
    ///
    /// # Errors
    /// When io_uring itself fails, which a healthy kernel does not.
    pub fn reap(&mut self, out: &mut impl FnMut(Completion)) -> io::Result<usize> {
        self.media.iter_mut().try_fold(0, |done, medium| match medium {
            Medium::Ram(_) => Ok(done),
            Medium::File(file) => Ok(done + file.reap(out)?),
            Medium::Nvme(controller) => Ok(done + controller.reap(out)),
            Medium::State(keeper) => Ok(done + keeper.reap(out)),
        })
    }

    /// Requests that have not ended.
    pub fn in_flight(&self) -> usize {
        let of = |medium: &Medium| match medium {
            Medium::Ram(_) => 0,
            Medium::File(file) => file.in_flight(),
            Medium::Nvme(controller) => controller.in_flight(),
            Medium::State(keeper) => keeper.in_flight(),
        };
        self.media.iter().map(of).sum()
    }

    /// The descriptors that become readable when `reap` has something to do.
    pub fn poll_fds(&self) -> impl Iterator<Item = RawFd> {
        let files = self.media.iter().filter_map(|medium| match medium {
            Medium::File(file) => file.poll_fd(),
            Medium::State(keeper) => Some(keeper.poll_fd()),
            Medium::Ram(_) | Medium::Nvme(_) => None,
        });
        files.chain(self.controllers().flat_map(NvmeMedium::poll_fds))
    }

    /// When `reap` is wanted even though no descriptor is readable.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let keeper = self.media.iter().filter_map(|medium| match medium {
            Medium::State(keeper) => keeper.poll_timeout(),
            _ => None,
        });
        self.controllers().filter_map(NvmeMedium::poll_timeout).chain(keeper).min()
    }

    /// The controller has changed what may be worth remembering.
    pub fn note(&mut self, notification: &Notification) {
        if let Some(keeper) = self.keeper() {
            keeper.note(notification);
        }
    }

    /// Keeps the counters of the health log where state is kept, if it is time to.
    #[inline]
    pub fn keep(&mut self, now: Instant, counters: impl FnOnce() -> Counters) {
        if let Some(keeper) = self.keeper() {
            keeper.keep(now, counters);
        }
    }

    /// Keeps the counters of the health log where state is kept: the last that is heard of them may be this.
    pub fn keep_now(&mut self, counters: &Counters) {
        if let Some(keeper) = self.keeper() {
            keeper.keep_now(counters);
        }
    }

    /// What is to be told of where state is kept, once.
    pub fn notice(&mut self) -> Option<Notice> {
        self.keeper()?.notice()
    }

    #[inline]
    fn keeper(&mut self) -> Option<&mut Keeper> {
        match &mut self.media[self.state?] {
            Medium::State(keeper) => Some(keeper),
            _ => None,
        }
    }

    fn controllers(&self) -> impl Iterator<Item = &NvmeMedium> {
        self.media.iter().filter_map(|medium| match medium {
            Medium::Nvme(controller) => Some(controller),
            Medium::Ram(_) | Medium::File(_) | Medium::State(_) => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use ::nvme::media::{IoId, Operation};
    use engine::Buffer;

    use super::*;

    #[test]
    fn each_medium_has_bytes_of_its_own() {
        let exe = std::env::current_exe().unwrap();
        let path = exe.parent().unwrap().join(format!("farlane-live-media-{}", std::process::id()));
        let file = open(&path, &Options { size: Some(1 << 20), ..Options::default() }).unwrap();
        std::fs::remove_file(&path).unwrap();
        let mut media = Media::new();
        let media_ids = [media.add(RamDisk::new(1 << 20)), media.add(file), media.add(RamDisk::new(1 << 20))];
        for medium in media_ids {
            let fill = u8::try_from(medium.0).unwrap() + 1;
            let data = Buffer::copy_from_slice(&[fill; 4096]);
            let operation = Operation::Write { offset: 4096, data, durable: false };
            assert_eq!(run(&mut media, Request { id: IoId(medium.0), medium, operation }), []);
        }
        for medium in media_ids {
            let fill = u8::try_from(medium.0).unwrap() + 1;
            let operation = Operation::Read { offset: 4096, length: 4096 };
            assert_eq!(run(&mut media, Request { id: IoId(9), medium, operation }), [fill; 4096]);
        }
        assert!(media.poll_fds().count() <= 1);
    }

    fn run(media: &mut Media, request: Request) -> Vec<u8> {
        let (mut bytes, mut ended) = (Vec::new(), 0);
        let mut out = |completion| match completion {
            Completion::Data { data, .. } => bytes.extend_from_slice(&data),
            Completion::Done { result, .. } => {
                result.unwrap();
                ended += 1;
            }
        };
        media.submit(request, &mut out);
        while media.in_flight() > 0 {
            media.reap(&mut out).unwrap();
        }
        assert_eq!(ended, 1);
        bytes
    }
}
