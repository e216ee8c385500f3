//! The circuit beside the engine.

mod cycles;
mod example;
mod order;
