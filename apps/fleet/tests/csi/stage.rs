//! A driver at a socket, and a client of it.

use std::path::PathBuf;
use std::time::Duration;

use fleetd::csi::proto::controller_client::ControllerClient;
use fleetd::csi::proto::identity_client::IdentityClient;
use fleetd::csi::proto::node_client::NodeClient;
use fleetd::csi::proto::volume_capability::access_mode::Mode;
use fleetd::csi::proto::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
use fleetd::csi::proto::{
    CapacityRange, ControllerPublishVolumeRequest, CreateVolumeRequest, VolumeCapability,
};
use fleetd::csi::{NodeSettings, Role, Settings, serve};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::transport::{Channel, Endpoint};

use crate::machine::Fake;
use crate::memory::Memory;

/// The bytes of the pool.
pub(crate) const POOL: u64 = 100 << 30;
/// How long the driver waits for fleet and devices.
const PATIENCE: Duration = Duration::from_millis(600);

/// A driver for machine `b`, at a fleet in memory.
pub(crate) struct Stage {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) fleet: Memory,
    pub(crate) machine: Fake,
    pub(crate) controller: ControllerClient<Channel>,
    pub(crate) node: NodeClient<Channel>,
    pub(crate) identity: IdentityClient<Channel>,
    sockets: tempfile::TempDir,
    stop: Option<oneshot::Sender<()>>,
    driver: JoinHandle<()>,
}

impl Stage {
    pub(crate) async fn set() -> Self {
        let machine = Fake::default();
        let fleet = Memory::new(POOL, machine.clone());
        Self::with(fleet, machine, 0).await
    }

    /// A driver that attaches so many volumes to a node.
    pub(crate) async fn with(fleet: Memory, machine: Fake, volumes_max: u64) -> Self {
        let (folder, sockets) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (stop, stopped) = oneshot::channel();
        let settings = settings(sockets.path().join("csi.sock"), volumes_max);
        let socket = settings.socket.clone();
        let served = serve(settings, fleet.clone(), machine.clone(), async {
            let _ = stopped.await;
        });
        let driver = tokio::spawn(async { served.await.unwrap() });
        while !socket.exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let endpoint = Endpoint::try_from(format!("unix://{}", socket.display())).unwrap();
        let channel = endpoint.connect_lazy();
        Self {
            folder,
            fleet,
            machine,
            controller: ControllerClient::new(channel.clone()),
            node: NodeClient::new(channel.clone()),
            identity: IdentityClient::new(channel),
            sockets,
            stop: Some(stop),
            driver,
        }
    }

    /// The driver's socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.sockets.path().join("csi.sock")
    }

    /// Ends the driver, and starts another one at the same machine and the same fleet.
    pub(crate) async fn restart(mut self) -> Self {
        self.stop.take();
        let (fleet, machine) = (self.fleet.clone(), self.machine.clone());
        self.driver.abort();
        let fresh = Self::with(fleet, machine, 0).await;
        Self { folder: self.folder, ..fresh }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        std::fs::canonicalize(self.folder.path()).unwrap().join(name)
    }

    /// Creates a volume, and attaches it to machine `b`. Returns its subsystem.
    pub(crate) async fn attached(&mut self, name: &str, capability: &VolumeCapability) -> String {
        let mut wanted = volume(name, 1 << 30);
        wanted.volume_capabilities = vec![capability.clone()];
        self.controller.create_volume(wanted).await.unwrap();
        let answer = self.controller.controller_publish_volume(attachment(name, "b", capability)).await;
        answer.unwrap().into_inner().publish_context["csi.farlane.io/nqn"].clone()
    }
}

/// What a driver for machine `b` is to do.
pub(crate) fn settings(socket: PathBuf, volumes_max: u64) -> Settings {
    let node = NodeSettings {
        node: fleet::Name::new("b").unwrap(),
        labels: std::collections::BTreeMap::new(),
        volumes_max,
        patience: PATIENCE,
    };
    Settings { socket, role: Role::All, patience: PATIENCE, node }
}

/// A file system, used in this way.
pub(crate) fn mount(mode: Mode) -> VolumeCapability {
    let access_type = Some(AccessType::Mount(MountVolume::default()));
    VolumeCapability { access_mode: Some(AccessMode { mode: mode.into() }), access_type }
}

/// A block device, used in this way.
pub(crate) fn block(mode: Mode) -> VolumeCapability {
    let access_type = Some(AccessType::Block(BlockVolume {}));
    VolumeCapability { access_mode: Some(AccessMode { mode: mode.into() }), access_type }
}

/// A wish for a volume of so many bytes.
pub(crate) fn volume(name: &str, bytes: i64) -> CreateVolumeRequest {
    CreateVolumeRequest {
        name: name.to_owned(),
        capacity_range: Some(CapacityRange { required_bytes: bytes, limit_bytes: 0 }),
        volume_capabilities: vec![mount(Mode::SingleNodeWriter)],
        ..Default::default()
    }
}

/// A wish for an attachment.
pub(crate) fn attachment(
    id: &str,
    node: &str,
    capability: &VolumeCapability,
) -> ControllerPublishVolumeRequest {
    ControllerPublishVolumeRequest {
        volume_id: id.to_owned(),
        node_id: node.to_owned(),
        volume_capability: Some(capability.clone()),
        ..Default::default()
    }
}
