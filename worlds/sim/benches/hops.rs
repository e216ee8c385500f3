//! Measures how many direct hops a second the world makes on one core.

use std::hint::black_box;

use engine::{Buffer, Instant, Nanos, Rng};
use sim::direct::PortId;
use sim::{Context, Event, Node, World};

/// Passes every packet on to the node's other port, or back if there is no other port.
#[derive(Debug)]
struct Hop {
    start: u32,
    ports: u32,
    hops: u64,
}

/// A packet as large as a transaction-layer packet with a decoded header.
#[derive(Clone, Debug)]
struct Packet {
    header: [u64; 8],
    payload: Buffer,
}

impl Node for Hop {
    type Packet = Packet;
    fn handle(&mut self, context: &mut Context<'_, Packet>, event: Event<Packet>) {
        if let Event::Packet { port, packet } = event {
            self.hops += 1;
            let out = if self.ports == 1 { port } else { PortId(1 - port.0) };
            context.send_packet(out, packet);
        }
    }
    fn settle(&mut self, context: &mut Context<'_, Packet>) -> Option<Instant> {
        for number in 0..std::mem::take(&mut self.start) {
            let payload = Buffer::zeroed(256);
            context.send_packet(PortId(0), Packet { header: [number.into(); 8], payload });
        }
        None
    }
    fn restart(&mut self, _: Instant, _: Rng) {}
    fn fingerprint(packet: &Packet) -> u64 {
        packet.header[0] ^ packet.payload.len() as u64
    }
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn main() {
    let mut world = World::new(1);
    let near = world.add(Hop { start: 32, ports: 1, hops: 0 });
    let switch = world.add(Hop { start: 0, ports: 2, hops: 0 });
    let far = world.add(Hop { start: 0, ports: 1, hops: 0 });
    world.join(near, switch, Nanos::new(150));
    world.join(switch, far, Nanos::new(150));
    let start = std::time::Instant::now();
    world.run(Instant::from_nanos(150 * 100_000));
    let seconds = start.elapsed().as_secs_f64();
    let hops: u64 = [near, switch, far].iter().map(|id| world.node(*id).hops).sum();
    black_box(world.digest());
    let hops = f64::from(u32::try_from(hops).expect("a few million hops"));
    println!(
        "simulation: {:.2} million TLP hops/s on one core ({hops} hops in {seconds:.3} s)",
        hops / seconds / 1e6
    );
    assert!(hops / seconds >= 1e6, "the simulation is to make at least a million hops a second");
}
