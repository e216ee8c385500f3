//! The part of a capture that is kept: all of it at once, or its latest part at the end.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use captures::{Frame, Sink, Tally};
use live::sys::files::{self, Kind};

/// A frame that waits in the ring.
struct Held {
    at: Duration,
    bytes: Vec<u8>,
    original: usize,
}

/// The latest frames, up to a number of bytes.
struct Ring {
    frames: VecDeque<Held>,
    bytes: usize,
    most: usize,
}

impl Ring {
    const fn size(frame: &Held) -> usize {
        frame.bytes.len() + size_of::<Held>()
    }

    /// Keeps a frame, and forgets the oldest frames for which there is no more room.
    fn push(&mut self, frame: Held) {
        self.bytes += Self::size(&frame);
        self.frames.push_back(frame);
        while self.bytes > self.most
            && let Some(oldest) = self.frames.pop_front()
        {
            self.bytes -= Self::size(&oldest);
        }
    }
}

/// The output of a capture.
pub(super) struct Keeper {
    /// The output, until its first frame or note decides the type of its content.
    out: Option<Box<dyn Write>>,
    sink: Option<Sink<Box<dyn Write>>>,
    notes: Vec<String>,
    ring: Option<Ring>,
    link: u32,
    /// Frames and bytes that were written.
    pub(super) frames: u64,
    pub(super) bytes: u64,
}

impl Keeper {
    /// Keeps a capture at `out`, `-` for standard output; `ring` bytes of its end, or all of it.
    pub(super) fn open(out: &Path, ring: Option<usize>, link: u32) -> io::Result<Self> {
        let out: Box<dyn Write> = match out.as_os_str() == "-" {
            true => Box::new(io::stdout()),
            false => Box::new(files::write(out, Kind::Private)?),
        };
        let ring = ring.map(|most| Ring { frames: VecDeque::new(), bytes: 0, most });
        Ok(Self { out: Some(out), sink: None, notes: Vec::new(), ring, link, frames: 0, bytes: 0 })
    }

    /// Keeps the daemon's note about its controllers.
    pub(super) fn note(&mut self, note: &str) {
        self.notes.push(note.to_owned());
    }

    /// Keeps the current notes about the controllers, instead of the earlier ones.
    pub(super) fn learn(&mut self, notes: Vec<String>) -> io::Result<()> {
        match &mut self.sink {
            Some(sink) => sink.note(&notes),
            None => {
                self.notes = notes;
                Ok(())
            }
        }
    }

    pub(super) fn frame(&mut self, frame: &Frame<'_>) -> io::Result<()> {
        let at = Duration::from_nanos(frame.at.as_nanos());
        if let Some(ring) = &mut self.ring {
            ring.push(Held { at, bytes: frame.bytes.to_vec(), original: frame.original });
            return Ok(());
        }
        self.write(at, frame.bytes, frame.original)
    }

    fn begin(&mut self) -> io::Result<()> {
        if let Some(out) = self.out.take() {
            self.sink = Some(Sink::begin(out, self.link, &self.notes)?);
        }
        Ok(())
    }

    fn write(&mut self, at: Duration, bytes: &[u8], original: usize) -> io::Result<()> {
        self.begin()?;
        self.frames += 1;
        self.bytes += bytes.len() as u64;
        self.sink.as_mut().map_or(Ok(()), |sink| sink.put(at, bytes, original))
    }

    /// Hands on the written bytes, for a reader that follows.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        if self.ring.is_none() {
            self.begin()?;
        }
        self.sink.as_mut().map_or(Ok(()), Sink::flush)
    }

    /// Ends the output, with the tally of passed and lost packets.
    pub(super) fn finish(&mut self, tally: Tally) -> io::Result<()> {
        self.begin()?;
        for Held { at, bytes, original } in self.ring.take().into_iter().flat_map(|ring| ring.frames) {
            self.write(at, &bytes, original)?;
        }
        self.sink.take().map_or(Ok(()), |sink| sink.finish(tally))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_holds_the_latest_frames_and_never_more_than_it_may() {
        let most = 10 * (100 + size_of::<Held>());
        let mut ring = Ring { frames: VecDeque::new(), bytes: 0, most };
        for number in 0..64_u64 {
            let frame = Held { at: Duration::from_nanos(number), bytes: vec![0; 100], original: 100 };
            ring.push(frame);
            assert!(ring.bytes <= most);
        }
        let times: Vec<_> = ring.frames.iter().map(|frame| frame.at.as_nanos()).collect();
        assert_eq!(times, (54..64).collect::<Vec<_>>());
        ring.push(Held { at: Duration::ZERO, bytes: vec![0; most], original: most });
        assert_eq!((ring.frames.len(), ring.bytes), (0, 0), "a frame that is too long is not kept");
    }
}
