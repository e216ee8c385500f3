//! `farlane-gateware export`: an SSD in memory behind the circuit's downstream role.

use std::io;
use std::net::TcpListener;
use std::process::ExitCode;

use clap::Args;
use engine::Engine;
use nvme::media::ram::RamDisk;
use nvme::media::{Completion, MediumId};
use nvme_pcie::function::{self, Function};

use super::wire::{Event, Peer, Wire};

/// What to offer, and where.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The address to listen at. There are no keys: give one on loopback or a network of trusted
    /// machines.
    #[arg(long, default_value = "127.0.0.1:4430")]
    listen: String,
    /// MiB of the SSD.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=65_536))]
    ram_mib: u64,
    /// End after the first host has left.
    #[arg(long)]
    once: bool,
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    match serve(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("farlane-gateware export: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(arguments: &Arguments) -> io::Result<()> {
    let listener = TcpListener::bind(&arguments.listen)?;
    listener.set_nonblocking(true)?;
    println!("listening at {}", listener.local_addr()?);
    let bytes = arguments.ram_mib << 20;
    let mut disk = RamDisk::new(bytes);
    let mut wire = Wire::new(Peer::Listener(listener), "circuit");
    let mut function = Function::new(wire.now(), function::Config::new(controller(bytes)));
    let mut ended = false;
    loop {
        loop {
            wire.settle(|_, now, event| match event {
                Event::Tlp(packet) => function.handle_input(now, function::Input::Packet(packet)),
                Event::LinkUp | Event::Reset => function.handle_input(now, function::Input::HotReset),
                Event::LinkDown => {
                    function.handle_input(now, function::Input::HotReset);
                    ended = true;
                }
                Event::Interrupted | Event::Resumed => {}
            });
            if !work(&mut function, &mut disk, &mut wire) {
                break;
            }
        }
        if std::mem::take(&mut ended) {
            println!("a host has left; {} cycles", wire.port.cycles());
            if arguments.once {
                return Ok(());
            }
        }
        wire.wait(function.poll_timeout())?;
    }
}

/// The settings of a controller with one namespace of `bytes`, on the only medium.
fn controller(bytes: u64) -> nvme_pcie::controller::Config {
    let core = nvme::subsystem::Config::new("CIRCUIT").with_namespace(MediumId(0), bytes);
    nvme_pcie::controller::Config::new(core)
}

/// Handles the function's deadlines and outputs. Returns whether any packet went out.
fn work(function: &mut Function, disk: &mut RamDisk, wire: &mut Wire) -> bool {
    let now = wire.now();
    if function.poll_timeout().is_some_and(|at| at <= now) {
        function.handle_timeout(now);
    }
    let mut sent = false;
    while let Some(output) = function.poll_output() {
        match output {
            function::Output::Packet(packet) => {
                wire.port.send(now, &packet);
                sent = true;
            }
            function::Output::Media(request) => {
                let mut answers: Vec<Completion> = Vec::new();
                disk.submit(request, &mut |answer| answers.push(answer));
                answers
                    .into_iter()
                    .for_each(|answer| function.handle_input(now, function::Input::Media(answer)));
            }
            function::Output::Notify(_) | function::Output::ToLane(..) => {}
        }
    }
    sent
}
