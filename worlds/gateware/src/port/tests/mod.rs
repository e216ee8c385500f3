//! The circuit beside the engine.

mod example;
mod order;
