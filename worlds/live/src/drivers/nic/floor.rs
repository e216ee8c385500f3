//! The floor that no card between two processes of this machine can beat, and the kernel's own path
//! for comparison.

use std::io;
use std::net::UdpSocket;
use std::thread;
use std::time::Duration;

use engine::Nanos;
use rustix::event::{EventfdFlags, eventfd};

use crate::reactor::pin;
use crate::sys::clock::Clock;
use crate::sys::doorbells::{Doorbells, memory_file};

/// Offset of the second thread's line: a page away, as processors prefetch neighbours.
const BACK: usize = 4096;
/// Bytes of the shared memory.
const BYTES: u64 = 8192;
/// How often a thread looks before it offers the processor to others.
const LOOKS_A_YIELD: u32 = 2048;
/// How long a side waits for the other before it gives up.
const PATIENCE: Duration = Duration::from_secs(5);

/// The thread that answers, or is woken.
type Answers = thread::JoinHandle<io::Result<()>>;

fn lost() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the other thread of a floor measurement did not answer")
}

/// Waits until `is_there`, for [`PATIENCE`] at most.
fn await_it(clock: Clock, mut is_there: impl FnMut() -> bool) -> io::Result<()> {
    let start = clock.now();
    loop {
        for _ in 0..LOOKS_A_YIELD {
            if is_there() {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        if clock.now() - start > Nanos::from(PATIENCE) {
            return Err(lost());
        }
        thread::yield_now();
    }
}

/// Round trips of a cache line between two threads: each is two crossings.
///
/// # Errors
/// When the system has no memory, descriptors or threads left, or a thread was kept from running.
pub fn crossings(count: u32) -> io::Result<Vec<Nanos>> {
    let file = memory_file("farlane-niq-floor", BYTES)?;
    let map = |file: &_| Doorbells::map(file, 0, BYTES).map_err(io::Error::other);
    let (near, clock) = (map(&file)?, Clock::start());
    let answers = thread::Builder::new().name("floor".into()).spawn(move || {
        let far = map(&file)?;
        for number in 1..=count {
            await_it(clock, || far.look(0) == Some(number))?;
            far.ring(BACK as u64, number);
        }
        Ok(())
    })?;
    let measured = (1..=count)
        .map(|number| {
            let start = clock.now();
            near.ring(0, number);
            await_it(clock, || near.look(BACK) == Some(number))?;
            Ok(clock.now() - start)
        })
        .collect();
    finish(answers, measured)
}

/// Round trips of datagrams of `bytes` over loopback through the kernel, with both ends polling.
///
/// # Errors
/// When the system has no sockets or threads left, or datagrams were lost.
pub fn kernel_udp(bytes: usize, count: u32) -> io::Result<Vec<Nanos>> {
    let open = || {
        let socket = UdpSocket::bind(("127.0.0.1", 0))?;
        socket.set_nonblocking(true)?;
        Ok::<_, io::Error>(socket)
    };
    let (near, far, clock) = (open()?, open()?, Clock::start());
    near.connect(far.local_addr()?)?;
    far.connect(near.local_addr()?)?;
    let answers = thread::Builder::new().name("floor".into()).spawn(move || {
        let mut packet = vec![0; bytes];
        for _ in 0..count {
            await_it(clock, || far.recv(&mut packet).is_ok())?;
            far.send(&packet)?;
        }
        Ok(())
    })?;
    let mut packet = vec![0; bytes];
    let measured = (0..count)
        .map(|_| {
            let start = clock.now();
            near.send(&packet)?;
            await_it(clock, || near.recv(&mut packet).is_ok())?;
            Ok(clock.now() - start)
        })
        .collect();
    finish(answers, measured)
}

/// How long the system takes to run a thread that sleeps on an eventfd, from the moment when a
/// thread on another processor signals it. The signals are `interval` apart.
///
/// # Errors
/// When the system has no descriptors or threads left.
pub fn wakes(count: u32, interval: Duration) -> io::Result<Vec<Nanos>> {
    // The caller's thread is not to be kept on a processor.
    let signaller = thread::Builder::new().name("floor".into());
    let signaller = signaller.spawn(move || signals(count, interval, PATIENCE))?;
    let (answers, measured) = signaller.join().map_err(|_| lost())??;
    finish(answers, measured)
}

/// The thread that is woken, and how long each time took, until one took longer than `patience`.
fn signals(
    count: u32,
    interval: Duration,
    patience: Duration,
) -> io::Result<(Answers, io::Result<Vec<Nanos>>)> {
    let near = eventfd(0, EventfdFlags::CLOEXEC)?;
    let (far, clock) = (near.try_clone()?, Clock::start());
    let (arrived, arrivals) = std::sync::mpsc::channel();
    let answers = thread::Builder::new().name("floor".into()).spawn(move || {
        keep_to(0);
        for _ in 0..count {
            rustix::io::read(&far, &mut [0_u8; 8])?;
            if arrived.send(clock.now()).is_err() {
                // The other side has given up.
                break;
            }
        }
        Ok(())
    })?;
    keep_to(1);
    let measured: io::Result<Vec<_>> = (0..count)
        .map(|_| {
            thread::sleep(interval);
            let start = clock.now();
            rustix::io::write(&near, &1_u64.to_ne_bytes())?;
            // Signals that are not waited for become one.
            Ok(arrivals.recv_timeout(patience).map_err(|_| lost())? - start)
        })
        .collect();
    if measured.is_err() {
        // The thread may sleep, and ends when it finds that no receiver is left.
        drop(arrivals);
        rustix::io::write(&near, &1_u64.to_ne_bytes())?;
    }
    Ok((answers, measured))
}

/// Keeps this thread on one processor, as the ends of a wire are kept: a thread that is woken where
/// its waker runs is woken several times as fast. A machine with one processor has no other.
fn keep_to(processor: usize) {
    let _ = pin(processor);
}

fn finish(answers: Answers, measured: io::Result<Vec<Nanos>>) -> io::Result<Vec<Nanos>> {
    let measured = measured?;
    answers.join().map_err(|_| lost())??;
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_is_given_up_ends() {
        let (answers, measured) = signals(1_000, Duration::ZERO, Duration::ZERO).unwrap();
        assert!(measured.is_err(), "no thread is woken in no time, a thousand times");
        answers.join().unwrap().unwrap();
    }
}
