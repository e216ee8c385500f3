//! stub
use crate::channel::Link;
use std::net::SocketAddr;
use std::path::PathBuf;
use tokio::sync::watch;
/// x
#[derive(Debug, Clone, Copy)]
pub enum Devices {
    /// a
    Auto,
    /// a
    Kernel,
    /// a
    Ublk,
    /// a
    User,
}
/// x
#[derive(Debug)]
pub struct Settings {
    /// a
    pub folder: PathBuf,
    /// a
    pub listen: Vec<SocketAddr>,
    /// a
    pub farlane: PathBuf,
    /// a
    pub pools: Vec<(fleet::Name, PathBuf)>,
    /// a
    pub devices: Devices,
    /// a
    pub encrypt: bool,
    /// a
    pub node: fleet::Name,
}
/// x
#[derive(Debug, thiserror::Error)]
#[error("x")]
pub struct AgentError;
/// x
pub async fn run(_: Settings, _: Link, _: watch::Receiver<bool>) -> Result<(), AgentError> {
    Ok(())
}
