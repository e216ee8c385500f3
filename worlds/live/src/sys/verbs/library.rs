//! libibverbs and librdmacm, found when they are first wanted.

use std::ffi::{c_int, c_void};
use std::io;
use std::sync::OnceLock;

use super::abi;

/// The packages to install where the libraries are missing.
const REMEDY: &str = "install libibverbs1, librdmacm1 and ibverbs-providers (Debian, Ubuntu) or \
    rdma-core and librdmacm (Fedora, RHEL), or use provider=roce or provider=iwarp, which need none";

/// Declares a library: its file, and the functions of it that are used.
macro_rules! library {
    ($(#[$doc:meta])* $name:ident from $file:literal {
        $($function:ident($($argument:ty),*) $(-> $result:ty)?;)*
    }) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub(super) struct $name {
            $(pub(super) $function: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
            /// The functions are there as long as this is.
            _library: libloading::Library,
        }

        impl $name {
            fn load() -> Result<Self, libloading::Error> {
                // SAFETY: the library's initialisers are those of rdma-core, which have no
                // precondition. Each function has the type that its header declares.
                unsafe {
                    let library = libloading::Library::new($file)?;
                    Ok(Self {
                        $($function: *library.get(concat!(stringify!($function), "\0").as_bytes())?,)*
                        _library: library,
                    })
                }
            }
        }
    };
}

library! {
    /// librdmacm: connections.
    Cm from "librdmacm.so.1" {
        rdma_create_event_channel() -> *mut abi::EventChannel;
        rdma_destroy_event_channel(*mut abi::EventChannel);
        rdma_create_id(*mut abi::EventChannel, *mut *mut abi::CmId, *mut c_void, c_int) -> c_int;
        rdma_destroy_id(*mut abi::CmId) -> c_int;
        rdma_bind_addr(*mut abi::CmId, *mut libc::sockaddr) -> c_int;
        rdma_listen(*mut abi::CmId, c_int) -> c_int;
        rdma_get_src_port(*mut abi::CmId) -> u16;
        rdma_resolve_addr(*mut abi::CmId, *mut libc::sockaddr, *mut libc::sockaddr, c_int) -> c_int;
        rdma_resolve_route(*mut abi::CmId, c_int) -> c_int;
        rdma_create_qp(*mut abi::CmId, *mut abi::ProtectionDomain, *mut abi::QueuePairAttributes) -> c_int;
        rdma_destroy_qp(*mut abi::CmId);
        rdma_connect(*mut abi::CmId, *mut abi::ConnectionParameters) -> c_int;
        rdma_accept(*mut abi::CmId, *mut abi::ConnectionParameters) -> c_int;
        rdma_reject(*mut abi::CmId, *const c_void, u8) -> c_int;
        rdma_disconnect(*mut abi::CmId) -> c_int;
        rdma_get_cm_event(*mut abi::EventChannel, *mut *mut abi::CmEvent) -> c_int;
        rdma_ack_cm_event(*mut abi::CmEvent) -> c_int;
    }
}

library! {
    /// libibverbs: devices, memory and queue pairs.
    Verbs from "libibverbs.so.1" {
        ibv_query_device(*mut abi::Context, *mut abi::DeviceAttributes) -> c_int;
        ibv_alloc_pd(*mut abi::Context) -> *mut abi::ProtectionDomain;
        ibv_dealloc_pd(*mut abi::ProtectionDomain) -> c_int;
        ibv_reg_mr(*mut abi::ProtectionDomain, *mut c_void, usize, c_int) -> *mut abi::MemoryRegion;
        ibv_dereg_mr(*mut abi::MemoryRegion) -> c_int;
        ibv_create_comp_channel(*mut abi::Context) -> *mut abi::CompletionChannel;
        ibv_destroy_comp_channel(*mut abi::CompletionChannel) -> c_int;
        ibv_create_cq(*mut abi::Context, c_int, *mut c_void, *mut abi::CompletionChannel, c_int)
            -> *mut abi::CompletionQueue;
        ibv_destroy_cq(*mut abi::CompletionQueue) -> c_int;
        ibv_get_cq_event(*mut abi::CompletionChannel, *mut *mut abi::CompletionQueue, *mut *mut c_void)
            -> c_int;
        ibv_ack_cq_events(*mut abi::CompletionQueue, u32);
    }
}

/// Both libraries.
#[derive(Debug)]
pub(super) struct Library {
    pub(super) cm: Cm,
    pub(super) verbs: Verbs,
}

/// The libraries, which stay once they are loaded.
///
/// # Errors
/// When the machine does not have them. The text names the packages to install.
pub(super) fn library() -> io::Result<&'static Library> {
    static LOADED: OnceLock<Result<Library, String>> = OnceLock::new();
    let load = || {
        let both = Verbs::load().and_then(|verbs| Ok(Library { cm: Cm::load()?, verbs }));
        both.map_err(|error| format!("RDMA by verbs needs libibverbs and librdmacm: {error}; {REMEDY}"))
    };
    LOADED.get_or_init(load).as_ref().map_err(|why| io::Error::new(io::ErrorKind::Unsupported, why.as_str()))
}
