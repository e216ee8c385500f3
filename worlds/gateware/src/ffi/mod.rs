//! The models' functions, each model behind an owner that frees it.

mod digest;
mod niq;
mod port;
mod streamer;

pub(crate) use digest::Crc32cBeat;
pub(crate) use niq::{Inputs as NiqInputs, Niq, Outputs as NiqOutputs};
pub(crate) use port::{PortIn, PortOut, TunnelPort};
pub(crate) use streamer::{Streamer, StreamerIn, StreamerOut};
