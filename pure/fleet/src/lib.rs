//! A fleet: far SSDs that are composed from many machines. The engines of the controller, which
//! decides, and of the agents, which own disks and attach them.
//!
//! The README has the objects, the protocol between controller, store and agents, and the promise
//! that each step keeps. Start at [`Controller`] and [`Agent`]; [`placement::rank`] is a function.
//!
//! ```
//! use farlane_fleet::{Epoch, Name};
//!
//! let volume = Name::new("data-1").unwrap();
//! assert_eq!(volume.to_string(), "data-1");
//! assert!(Name::new("Data 1").is_err());
//! // An epoch of a later incarnation of the store is above all epochs of an earlier one.
//! assert!(Epoch { incarnation: 2, number: 1 } > Epoch { incarnation: 1, number: 99 });
//! ```
#![cfg_attr(doc, doc = include_str!("../README.md"))]
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod agent;
pub mod controller;
mod epoch;
mod name;
pub mod object;
pub mod placement;
pub mod slice;
pub mod store;

pub use agent::Agent;
pub use controller::Controller;
pub use epoch::Epoch;
pub use name::{Name, NameError};
