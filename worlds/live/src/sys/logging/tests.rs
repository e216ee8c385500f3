//! A stream without a reader, and the fate of the messages meanwhile.

use std::sync::{Condvar, Mutex};

use super::*;

/// Whether the stream has a reader, and the bytes that were written.
type Bytes = (bool, Vec<u8>);

/// A stream that takes nothing until it has a reader.
#[derive(Clone, Default)]
struct Pipe(Arc<(Mutex<Bytes>, Condvar)>);

impl Pipe {
    fn read_from_now_on(&self) {
        self.0.0.lock().unwrap().0 = true;
        self.0.1.notify_all();
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.0.lock().unwrap().1.clone()).unwrap()
    }
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut inner = self.0.1.wait_while(self.0.0.lock().unwrap(), |inner| !inner.0).unwrap();
        inner.1.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn stream() -> (StreamQueue, Pipe) {
    let pipe = Pipe::default();
    (StreamQueue::new("test", Streams::new(Box::new(pipe.clone())), |_| {}), pipe)
}

#[test]
fn a_stream_without_a_reader_stops_no_writer_and_its_losses_are_reported_later() {
    let (stream, pipe) = stream();
    // The stream takes nothing until this loop has ended.
    for number in 0..10 * WAITING_MAX {
        stream.send(Item::Text(format!("{number}\n")));
    }
    assert!(!stream.flush(Duration::from_millis(10)), "nothing can have been written");
    assert_eq!(pipe.text(), "");
    pipe.read_from_now_on();
    assert!(stream.flush(Duration::from_secs(60)));
    stream.send(Item::Text("last\n".to_owned()));
    assert!(stream.flush(Duration::from_secs(60)));
    let text = pipe.text();
    assert!(text.starts_with("0\n1\n2\n") && text.contains("\nlast\n"), "{text}");
    let lost = text.lines().find_map(|line| line.strip_prefix("farlane: ")?.split(' ').next()?.parse().ok());
    let written = text.lines().filter(|line| line.parse::<usize>().is_ok()).count();
    assert_eq!(lost, Some(10 * WAITING_MAX - written), "{text}");
}

#[test]
fn the_end_reports_the_counts() {
    let (stream, pipe) = stream();
    pipe.read_from_now_on();
    for _ in 0..7 {
        stream.send(Item::Line(Line::warning("no answer".to_owned())));
    }
    assert!(stream.flush(Duration::from_secs(60)));
    assert_eq!(pipe.text(), "farlane: no answer\nfarlane: no answer (6 more like it in the last 10 s)\n");
}
