//! `farlane measure rdma serve`: the other end of measurements.

use std::path::PathBuf;

use ::status::{Rdma, Report, Status};
use daemon::{Daemon, NoCaptures, OnlyStatus, Opening, Reply, Settings};
use engine::Instant;
use live::drivers::perftest::{Measured, Mode, Provider, Test, Verb};
use live::reactor::JobSender;
use live::sys::logging;
use live::sys::sandbox::Needs;

use super::usual_size;
use crate::args::{ProgramArg, ProviderArg, ServeArgs};
use crate::commands::listening::Listening;
use crate::commands::{OPENED_BY_LISTENER, report_json};
use crate::error::Error;

pub(super) fn run(args: &ServeArgs) -> Result<(), Error> {
    daemon::run(Server { args, perftest: perftest(args)? })
}

struct Server<'a> {
    args: &'a ServeArgs,
    /// The test of perftest's clients, if they are served.
    perftest: Option<Test>,
}

/// The test of perftest's clients, if they are served.
fn perftest(args: &ServeArgs) -> Result<Option<Test>, Error> {
    let Some((verb, mode)) = args.perftest.map(ProgramArg::test) else { return Ok(None) };
    if let (Verb::Write, Mode::Latency, ProviderArg::Iwarp) = (verb, mode, args.provider) {
        return Err(Error::NoSuchMeasurement {
            why: "ib_write_lat waits for its server's first write, but over iWARP the end that accepts a connection may not be the first to send (RFC 5044)",
            remedy: "let ib_write_lat -R serve, and measure with farlane measure rdma ping --verb write --peer \
                     perftest; or use --provider roce",
        });
    }
    let size = args.size.unwrap_or(usual_size(mode));
    Ok(Some(Test { verb, mode, size, iterations: args.iters, depth: 1 }))
}

impl Daemon for Server<'_> {
    const KIND: &'static str = "rdma";
    const WHAT: &'static str = "the server of measurements";
    type Driver = Measured;
    type Request = OnlyStatus;
    type Status = Report;
    type Captures = NoCaptures;
    type Error = Error;

    fn settings(&self) -> Settings {
        self.args.daemon.settings(OPENED_BY_LISTENER)
    }

    fn needs(&self, needs: &mut Needs) {
        if let ProviderArg::Verbs = self.args.provider {
            needs.folders.push(PathBuf::from("/dev/infiniband"));
        }
    }

    fn open(&mut self, _opening: &Opening) -> Result<Measured, Error> {
        let (listen, provider) = (self.args.listen, Provider::from(self.args.provider));
        let server = Measured::open(provider, listen, self.perftest);
        server.map_err(|error| Error::Listen { address: listen, error })
    }

    fn announce(&mut self, driver: &mut Measured) -> Result<(), Error> {
        let address = driver.address().to_string();
        if self.args.output.json {
            return report_json(&Listening::at(address));
        }
        logging::show(format!("listening at {address}; measure with: farlane measure rdma ping {address}\n"));
        Ok(())
    }

    fn summary(&self, driver: &Measured) -> String {
        format!("measurements at {}", driver.address())
    }

    fn status(
        &mut self,
        driver: &mut Measured,
        _now: Instant,
        _sender: &JobSender<Measured>,
    ) -> Reply<Report> {
        Reply::Now(Report::of(Status::Rdma(Rdma {
            listening: vec![driver.address().to_string()],
            provider: provider_name(self.args.provider).to_owned(),
            connections: driver.connections() as u64,
        })))
    }

    fn end(self, _driver: Measured) -> Result<(), Error> {
        Ok(())
    }
}

const fn provider_name(provider: ProviderArg) -> &'static str {
    match provider {
        ProviderArg::Iwarp => "iwarp",
        ProviderArg::Roce => "roce",
        ProviderArg::Verbs => "verbs",
    }
}
