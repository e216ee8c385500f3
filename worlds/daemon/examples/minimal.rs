//! A daemon in one file: it greets each client that connects, and counts the greetings.
//!
//! `minimal SOCKET` takes the path of its control socket.

use std::io::{self, Write};
use std::net::TcpListener;
use std::os::fd::AsRawFd;

use daemon::{Confinement, Daemon, Failure, NoCaptures, OnlyStatus, Opening, Reply, Settings};
use engine::{Instant, Nanos};
use live::reactor::{Attention, Context, Driver, JobSender, Sources, Turn};
use live::sys::sandbox::Needs;
use serde::Serialize;
use status::metrics::{Labels, Metrics, Page};

/// The driver that the loop turns.
struct Greeter {
    listener: TcpListener,
    greetings: u64,
    is_over: bool,
}

impl Driver for Greeter {
    fn start(&mut self, sources: &Sources) -> io::Result<()> {
        sources.add(self.listener.as_raw_fd(), Attention::OnNews)
    }

    fn turn(&mut self, context: &Context<'_>) -> io::Result<Turn> {
        while context.news
            && let Ok((mut client, _)) = self.listener.accept()
        {
            // A client that leaves early misses its greeting.
            let _ = client.write_all(b"hello\n");
            self.greetings += 1;
        }
        Ok(if self.is_over { Turn::Done } else { Turn::Idle })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn on_stop(&mut self, _now: Instant) {
        self.is_over = true;
    }
}

/// The status of the daemon, for JSON and for metrics.
#[derive(Serialize)]
struct Greeted {
    kind: &'static str,
    greetings: u64,
}

impl Metrics for Greeted {
    fn add_to(&self, page: &mut Page) {
        page.add_counters(&Labels::new(), [("greetings", "Clients greeted", self.greetings)]);
    }
}

/// The daemon's options.
struct Greet {
    settings: Settings,
}

impl Daemon for Greet {
    const KIND: &'static str = "greet";
    const WHAT: &'static str = "the greeter";
    type Driver = Greeter;
    type Request = OnlyStatus;
    type Status = Greeted;
    type Captures = NoCaptures;
    type Error = Failure;

    fn settings(&self) -> Settings {
        self.settings.clone()
    }

    fn needs(&self, _needs: &mut Needs) {}

    fn open(&mut self, _opening: &Opening) -> Result<Greeter, Failure> {
        let listener = TcpListener::bind("127.0.0.1:0").map_err(Failure::System)?;
        listener.set_nonblocking(true).map_err(Failure::System)?;
        Ok(Greeter { listener, greetings: 0, is_over: false })
    }

    fn announce(&mut self, driver: &mut Greeter) -> Result<(), Failure> {
        println!("greeting at {}", driver.listener.local_addr().map_err(Failure::System)?);
        Ok(())
    }

    fn summary(&self, driver: &Greeter) -> String {
        format!("{} greetings", driver.greetings)
    }

    fn status(
        &mut self,
        driver: &mut Greeter,
        _now: Instant,
        _sender: &JobSender<Greeter>,
    ) -> Reply<Greeted> {
        Reply::Now(Greeted { kind: Self::KIND, greetings: driver.greetings })
    }

    fn end(self, driver: Greeter) -> Result<(), Failure> {
        println!("greeted {} clients", driver.greetings);
        Ok(())
    }
}

fn main() -> Result<(), Failure> {
    let Some(control) = std::env::args_os().nth(1) else { return Ok(()) };
    daemon::run(Greet {
        settings: Settings {
            cpu: None,
            spin: Nanos::ZERO,
            descriptors: 1,
            confinement: Confinement { user: None, allowed: Vec::new(), is_on: true },
            control: Some(control.into()),
            metrics: None,
        },
    })
}
