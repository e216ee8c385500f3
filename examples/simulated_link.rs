//! A simulated link: what a campus 5G network does to 1,000 round trips of 64 B over TCP, in
//! virtual time.
//!
//! The same model runs live: `farlane model emulate` puts it between two real sockets.
//!
//! ```text
//! cargo run --example simulated_link
//! ```

use std::error::Error;

use engine::{Buffer, Engine, Instant, Nanos, Rng, fire};
use network_models::network::{Config, Input, Network, Output, Side};
use network_models::nr5g::{Cell, Core, CoreSettings, Downlink, Uplink};
use network_models::tcp::Parameters;
use network_models::{AnyHop, Path};

const TRIPS: usize = 1_000;
const BYTES: usize = 64;

fn main() -> Result<(), Box<dyn Error>> {
    // One seed is one run: the same figures every time, on every machine.
    let seed = Rng::from_seed(1);
    let path = |rng: Rng| {
        Path::new([
            AnyHop::from(Uplink::new(Cell::CAMPUS, rng.fork("up"))),
            Core::new(CoreSettings::CAMPUS, rng.fork("core")).into(),
            Downlink::new(Cell::CAMPUS, rng.fork("down")).into(),
        ])
    };
    let config = Config { tcp: [Parameters::LINUX; 2], ..Config::default() };
    let mut network = Network::new(config, [path(seed.fork("there")), path(seed.fork("back"))]);
    let connection = network.open(Instant::ZERO, Side::Near).ok_or("the network takes no connection")?;
    let mut now = Instant::ZERO;
    let mut sent = now;
    let mut arrived = 0;
    let mut times: Vec<Nanos> = Vec::new();
    while times.len() < TRIPS {
        while let Some(output) = network.poll_output() {
            match output {
                Output::Incoming { connection, .. } => network.handle_input(now, Input::Accept(connection)),
                // The first message leaves when the handshake is done.
                Output::Opened { side: Side::Near, .. } => {
                    sent = now;
                    send(&mut network, now, connection, Side::Near);
                }
                Output::Data { connection, side, data } => {
                    let bytes = data.len();
                    network.handle_input(now, Input::Consume { connection, side, bytes });
                    arrived += bytes;
                    if arrived < BYTES {
                        continue;
                    }
                    arrived = 0;
                    if side == Side::Near {
                        times.push(now - sent);
                        sent = now;
                    }
                    // The far side answers; the near side asks again.
                    send(&mut network, now, connection, side);
                }
                _ => {}
            }
        }
        // Virtual time: nothing happens before the next deadline, so the clock goes there at once.
        now = network.poll_timeout().ok_or("the network has nothing to do")?.max(now);
        fire(&mut network, now);
    }
    times.sort_unstable();
    let at = |per_mille: usize| times[(times.len() - 1) * per_mille / 1_000];
    println!("{TRIPS} round trips of {BYTES} B in {}", now - Instant::ZERO);
    println!("min {}, median {}, p99 {}, max {}", at(0), at(500), at(990), at(1_000));
    Ok(())
}

fn send(network: &mut Network, now: Instant, connection: network_models::network::ConnectionId, side: Side) {
    network.handle_input(now, Input::Send { connection, side, data: Buffer::zeroed(BYTES) });
}
