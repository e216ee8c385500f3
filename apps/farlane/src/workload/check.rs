//! Whether loads can be run as they are described, and which books they share.

use super::book::{Book, CHUNKS_MAX};
use super::job::{Job, Kind};
use super::run::Copy;
use crate::error::Error;
use crate::session::Session;

/// The most ranges of a trim that this host sends.
const RANGES_MAX: u32 = 256;

/// Checks that the job can be run.
pub(super) fn check(session: &Session, job: &Job) -> Result<(), Error> {
    let limit = session.identity()?.transfer_bytes_max;
    let block = job.namespace.block_bytes;
    let used = job.kinds().iter().map(|kind| job.sizes[*kind as usize]);
    let wrong = used.flat_map(|sizes| sizes.each().collect::<Vec<_>>());
    if let Some(wrong) = wrong.into_iter().find(|bytes| *bytes == 0 || !bytes.is_multiple_of(block)) {
        let expected = format!("a multiple of the block size {block}");
        return Err(Error::Range { what: "--bs", value: wrong.into(), expected });
    }
    if limit < block {
        let expected = format!("at least the block size {block}");
        return Err(Error::Range {
            what: "the controller's largest transfer",
            value: limit.into(),
            expected,
        });
    }
    if job.ranges > RANGES_MAX || job.ranges > 1 && (job.check.is_some() || job.kinds() != [Kind::Trim]) {
        let expected = format!("1 to {RANGES_MAX}, and 1 unless the load is --rw trim or randtrim");
        return Err(Error::Range { what: "--num_range", value: job.ranges.into(), expected });
    }
    places(job)?;
    if job.check.is_some() { verified(job) } else { Ok(()) }
}

/// Checks that the job's places are in the namespace, at its blocks.
fn places(job: &Job) -> Result<(), Error> {
    let block = u64::from(job.namespace.block_bytes);
    let size = job.namespace.blocks * block;
    let longest = job.kinds().iter().map(|kind| u64::from(job.sizes[*kind as usize].longest())).max();
    let zones = job.choice.zones;
    for (what, value) in [
        ("--offset", job.offset),
        ("--offset_increment", job.increment),
        ("the number behind --rw", job.choice.step.unsigned_abs()),
        ("--blockalign", job.choice.align.unwrap_or(block)),
        ("--zonerange", zones.map_or(0, |zones| zones.range)),
        ("--zoneskip", zones.map_or(0, |zones| zones.skip)),
    ] {
        if !value.is_multiple_of(block) {
            let expected = format!("a multiple of the block size {block}");
            return Err(Error::Range { what, value, expected });
        }
    }
    for number in [0, job.jobs - 1] {
        let (offset, range) = job.region(number);
        let fits = offset.checked_add(range).is_some_and(|end| end <= size);
        if offset >= size && offset > 0 {
            let expected = format!("less than the namespace's {size} bytes");
            return Err(Error::Range { what: "--offset", value: offset, expected });
        }
        if !fits || range < longest.unwrap_or_default() {
            let expected = match offset {
                0 => format!("at least --bs and at most the namespace's {size} bytes"),
                _ => {
                    format!("at least --bs and at most the {} bytes behind --offset {offset}", size - offset)
                }
            };
            return Err(Error::Range { what: "--size", value: range, expected });
        }
    }
    match zones.filter(|zones| zones.range < longest.unwrap_or_default()) {
        None => Ok(()),
        Some(zones) => {
            let expected = "at least --bs".to_owned();
            Err(Error::Range { what: "--zonerange", value: zones.range, expected })
        }
    }
}

/// Checks that the job's operations have one length, and places that are multiples of it.
fn verified(job: &Job) -> Result<(), Error> {
    let chunk = u64::from(job.chunk());
    let one = |kind: &Kind| {
        let sizes = job.sizes[*kind as usize];
        sizes.is_one() && u64::from(sizes.longest()) == chunk
    };
    if !job.kinds().iter().all(one) {
        let expected = "operations of one length with --verify".to_owned();
        return Err(Error::Range { what: "--bs", value: chunk, expected });
    }
    let zones = job.choice.zones;
    for (what, value) in [
        ("the number behind --rw", job.choice.step.unsigned_abs()),
        ("--blockalign", job.choice.align.unwrap_or(chunk)),
        ("--zonerange", zones.map_or(0, |zones| zones.range)),
        ("--zoneskip", zones.map_or(0, |zones| zones.skip)),
    ] {
        if !value.is_multiple_of(chunk) {
            let expected = format!("a multiple of --bs {chunk} with --verify");
            return Err(Error::Range { what, value, expected });
        }
    }
    let (_, length) = area(job, 0);
    if length / chunk > CHUNKS_MAX {
        let expected = format!("at most {} bytes with --verify", CHUNKS_MAX.saturating_mul(chunk));
        return Err(Error::Range { what: "--size", value: length, expected });
    }
    Ok(())
}

/// The part of the namespace in the book of a job's copy `number`.
fn area(job: &Job, number: u32) -> (u64, u64) {
    match job.increment.is_multiple_of(job.chunk().max(1).into()) {
        true => job.area(),
        false => job.region(number),
    }
}

/// The book of a job's copy `number`: that of another job with the same part and length, or a new
/// one. None for a load that is not verified.
fn book(books: &mut Vec<Book>, job: &Job, number: u32) -> Option<usize> {
    job.check?;
    let ((base, length), chunk) = (area(job, number), u64::from(job.chunk()));
    let chunks = length / chunk;
    Some(books.iter().position(|book| book.covers(base, chunk, chunks)).unwrap_or_else(|| {
        books.push(Book::new(base, chunk, chunks, job.seed));
        books.len() - 1
    }))
}

/// Gives each copy of each job its book. `books` are those of jobs before.
pub(super) fn copies(jobs: &[Job], books: &mut Vec<Book>) -> Vec<Copy> {
    let each = |(index, job): (usize, &Job)| (0..job.jobs).map(move |number| (index, number));
    let all: Vec<_> = jobs.iter().enumerate().flat_map(each).collect();
    let one = |(job, number): (usize, u32)| Copy { job, number, book: book(books, &jobs[job], number) };
    let copies: Vec<_> = all.into_iter().map(one).collect();
    for (number, book) in books.iter().enumerate() {
        book.set_loads(copies.iter().filter(|copy| copy.book == Some(number)).count());
    }
    forget(books, jobs, &copies);
    copies
}

/// Forgets the blocks that jobs with other books are to write over.
fn forget(books: &[Book], jobs: &[Job], copies: &[Copy]) {
    for copy in copies.iter().filter(|copy| jobs[copy.job].has_writes()) {
        let (start, length) = jobs[copy.job].area();
        for (number, book) in books.iter().enumerate() {
            if copy.book != Some(number) {
                book.forget(start, length);
            }
        }
    }
}
