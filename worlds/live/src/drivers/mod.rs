//! An engine together with its sockets, memory and media, run by a reactor.
//!
//! [`near`] and [`far`] are the two ends of a tunnel; [`guest`] is a near end that serves a virtual
//! machine, and [`hot_plug`] plugs its function into a port of QEMU. [`fabrics`] has the subsystems
//! and the host of NVMe over Fabrics, and [`vfio_user_client`] drives a function that another
//! process offers. [`driver_thread`] runs a driver on a thread of its own. [`emulate`] puts a
//! modelled network between two live ends. A driver answers requests through [`control`]. [`roce`]
//! carries RDMA over UDP, [`verbs`] by devices of this machine, and [`perftest`] measures RDMA.
//! [`nic`] has low-latency network cards. [`record`] records streams to files and reads recordings,
//! [`secret_file`] reads the secrets by which an end proves its identity, [`ublk`] makes a
//! namespace a block device of this machine, [`tap`] sees the frames of an interface, and [`mdns`]
//! announces discovery controllers.

pub mod control;
pub mod driver_thread;
pub mod emulate;
pub mod fabrics;
pub mod far;
pub mod guest;
pub mod hot_plug;
pub mod mdns;
pub mod near;
pub mod nic;
pub mod perftest;
pub mod record;
pub mod roce;
pub mod secret_file;
pub mod tap;
pub mod ublk;
pub mod verbs;
pub mod vfio_user_client;
