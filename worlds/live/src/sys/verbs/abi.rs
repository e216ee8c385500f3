//! The interface of librdmacm and libibverbs: structures and numbers of `rdma/rdma_cma.h` and
//! `infiniband/verbs.h` (rdma-core). The binary interface IBVERBS_1.1 and RDMACM_1.0 keeps them
//! unchanged.
//!
//! Of structures that the libraries allocate, only the members that are used have names.

use std::ffi::{c_int, c_uint, c_void};

/// Declares numbers, each with its name in C.
macro_rules! numbers {
    ($($name:ident: $kind:ty = $value:expr, $c_name:literal;)*) => {
        $(
            #[doc = concat!("`", $c_name, "`.")]
            pub(super) const $name: $kind = $value;
        )*

        /// The numbers by their names in C.
        #[cfg(test)]
        const NUMBERS: &[(&str, i64)] = &[$(($c_name, $name as i64)),*];
    };
}

numbers! {
    TRANSPORT_IWARP: c_int = 1, "IBV_TRANSPORT_IWARP";
    CAN_INVALIDATE: c_uint = 1 << 21, "IBV_DEVICE_MEM_MGT_EXTENSIONS";
    ACCESS_LOCAL_WRITE: c_int = 1, "IBV_ACCESS_LOCAL_WRITE";
    ACCESS_REMOTE_WRITE: c_int = 1 << 1, "IBV_ACCESS_REMOTE_WRITE";
    ACCESS_REMOTE_READ: c_int = 1 << 2, "IBV_ACCESS_REMOTE_READ";
    QP_RELIABLE: c_int = 2, "IBV_QPT_RC";
    WR_WRITE: c_int = 0, "IBV_WR_RDMA_WRITE";
    WR_SEND: c_int = 2, "IBV_WR_SEND";
    WR_SEND_IMMEDIATE: c_int = 3, "IBV_WR_SEND_WITH_IMM";
    WR_READ: c_int = 4, "IBV_WR_RDMA_READ";
    WR_SEND_INVALIDATE: c_int = 9, "IBV_WR_SEND_WITH_INV";
    SEND_SIGNALLED: c_uint = 1 << 1, "IBV_SEND_SIGNALED";
    SEND_INLINE: c_uint = 1 << 3, "IBV_SEND_INLINE";
    WC_IMMEDIATE: c_uint = 1 << 1, "IBV_WC_WITH_IMM";
    WC_INVALIDATED: c_uint = 1 << 3, "IBV_WC_WITH_INV";
    PORT_SPACE_TCP: c_int = 0x0106, "RDMA_PS_TCP";
    EVENT_ADDRESS_RESOLVED: c_int = 0, "RDMA_CM_EVENT_ADDR_RESOLVED";
    EVENT_ADDRESS_ERROR: c_int = 1, "RDMA_CM_EVENT_ADDR_ERROR";
    EVENT_ROUTE_RESOLVED: c_int = 2, "RDMA_CM_EVENT_ROUTE_RESOLVED";
    EVENT_ROUTE_ERROR: c_int = 3, "RDMA_CM_EVENT_ROUTE_ERROR";
    EVENT_REQUEST: c_int = 4, "RDMA_CM_EVENT_CONNECT_REQUEST";
    EVENT_CONNECT_ERROR: c_int = 6, "RDMA_CM_EVENT_CONNECT_ERROR";
    EVENT_UNREACHABLE: c_int = 7, "RDMA_CM_EVENT_UNREACHABLE";
    EVENT_REJECTED: c_int = 8, "RDMA_CM_EVENT_REJECTED";
    EVENT_ESTABLISHED: c_int = 9, "RDMA_CM_EVENT_ESTABLISHED";
    EVENT_DISCONNECTED: c_int = 10, "RDMA_CM_EVENT_DISCONNECTED";
    EVENT_DEVICE_REMOVAL: c_int = 11, "RDMA_CM_EVENT_DEVICE_REMOVAL";
    STATUS_SUCCESS: c_int = 0, "IBV_WC_SUCCESS";
    STATUS_LOCAL_LENGTH: c_int = 1, "IBV_WC_LOC_LEN_ERR";
    STATUS_FLUSHED: c_int = 5, "IBV_WC_WR_FLUSH_ERR";
    STATUS_BAD_RESPONSE: c_int = 7, "IBV_WC_BAD_RESP_ERR";
    STATUS_REMOTE_INVALID_REQUEST: c_int = 9, "IBV_WC_REM_INV_REQ_ERR";
    STATUS_REMOTE_ACCESS: c_int = 10, "IBV_WC_REM_ACCESS_ERR";
    STATUS_REMOTE_OPERATION: c_int = 11, "IBV_WC_REM_OP_ERR";
    STATUS_RETRY_EXCEEDED: c_int = 12, "IBV_WC_RETRY_EXC_ERR";
    STATUS_RECEIVER_NOT_READY: c_int = 13, "IBV_WC_RNR_RETRY_EXC_ERR";
}

/// Declares structures of which this process has pointers only.
macro_rules! opaque {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        $($(#[$doc])* #[repr(C)] #[derive(Debug)] pub(super) struct $name { _opaque: [u8; 0] })*
    };
}

opaque! {
    /// `struct ibv_pd`: a protection domain.
    ProtectionDomain;
    /// `struct ibv_cq`: a completion queue.
    CompletionQueue;
    /// `struct ibv_qp`: a queue pair.
    QueuePair;
}

/// `ibv_poll_cq` of a device.
pub(super) type PollCq = unsafe extern "C" fn(*mut CompletionQueue, c_int, *mut WorkCompletion) -> c_int;
/// `ibv_req_notify_cq` of a device.
pub(super) type RequestNotifyCq = unsafe extern "C" fn(*mut CompletionQueue, c_int) -> c_int;
/// `ibv_post_send` of a device.
pub(super) type PostSend =
    unsafe extern "C" fn(*mut QueuePair, *mut SendRequest, *mut *mut SendRequest) -> c_int;
/// `ibv_post_recv` of a device.
pub(super) type PostReceive =
    unsafe extern "C" fn(*mut QueuePair, *mut ReceiveRequest, *mut *mut ReceiveRequest) -> c_int;

/// `struct ibv_context_ops`: functions that each device implements itself.
#[repr(C)]
pub(super) struct Operations {
    _before_poll: [*mut c_void; 11],
    pub(super) poll_cq: Option<PollCq>,
    pub(super) request_notify_cq: Option<RequestNotifyCq>,
    _before_send: [*mut c_void; 12],
    pub(super) post_send: Option<PostSend>,
    pub(super) post_receive: Option<PostReceive>,
    _behind: [*mut c_void; 5],
}

/// `struct ibv_context`: an opened device.
#[repr(C)]
pub(super) struct Context {
    pub(super) device: *mut Device,
    pub(super) operations: Operations,
    pub(super) command_fd: c_int,
    pub(super) async_fd: c_int,
}

/// `struct ibv_device`.
#[repr(C)]
pub(super) struct Device {
    _operations: [*mut c_void; 2],
    pub(super) node_type: c_int,
    pub(super) transport_type: c_int,
}

/// `struct ibv_device_attr`: the limits of a device.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct DeviceAttributes {
    pub(super) firmware: [u8; 64],
    pub(super) node_guid: u64,
    pub(super) system_guid: u64,
    pub(super) max_mr_size: u64,
    pub(super) page_size_cap: u64,
    pub(super) vendor_id: u32,
    pub(super) vendor_part_id: u32,
    pub(super) hardware_version: u32,
    pub(super) max_qp: c_int,
    pub(super) max_qp_wr: c_int,
    pub(super) capabilities: c_uint,
    pub(super) max_sge: c_int,
    pub(super) max_sge_rd: c_int,
    pub(super) max_cq: c_int,
    pub(super) max_cqe: c_int,
    pub(super) max_mr: c_int,
    pub(super) max_pd: c_int,
    pub(super) max_qp_rd_atom: c_int,
    pub(super) max_ee_rd_atom: c_int,
    pub(super) max_res_rd_atom: c_int,
    pub(super) max_qp_init_rd_atom: c_int,
    _behind: [c_int; 16],
    _last: [u8; 4],
}

/// `struct ibv_mr`: a memory region.
#[repr(C)]
pub(super) struct MemoryRegion {
    pub(super) context: *mut Context,
    pub(super) domain: *mut ProtectionDomain,
    pub(super) address: *mut c_void,
    pub(super) length: usize,
    pub(super) handle: u32,
    pub(super) local_key: u32,
    pub(super) remote_key: u32,
}

/// `struct ibv_comp_channel`: reports completions by a descriptor.
#[repr(C)]
pub(super) struct CompletionChannel {
    pub(super) context: *mut Context,
    pub(super) fd: c_int,
    pub(super) references: c_int,
}

/// `struct ibv_qp_cap`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Capacities {
    pub(super) max_send_wr: u32,
    pub(super) max_recv_wr: u32,
    pub(super) max_send_sge: u32,
    pub(super) max_recv_sge: u32,
    pub(super) max_inline_data: u32,
}

/// `struct ibv_qp_init_attr`.
#[repr(C)]
pub(super) struct QueuePairAttributes {
    pub(super) qp_context: *mut c_void,
    pub(super) send_cq: *mut CompletionQueue,
    pub(super) recv_cq: *mut CompletionQueue,
    pub(super) srq: *mut c_void,
    pub(super) capacities: Capacities,
    pub(super) qp_type: c_int,
    pub(super) signal_all: c_int,
}

/// `struct ibv_sge`: a piece of registered memory.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Piece {
    pub(super) address: u64,
    pub(super) length: u32,
    pub(super) local_key: u32,
}

/// `struct ibv_send_wr`.
#[repr(C)]
pub(super) struct SendRequest {
    pub(super) id: u64,
    pub(super) next: *mut Self,
    pub(super) pieces: *mut Piece,
    pub(super) count: c_int,
    pub(super) opcode: c_int,
    pub(super) flags: c_uint,
    /// Immediate data in network order, or the key to invalidate.
    pub(super) word: u32,
    pub(super) remote_address: u64,
    pub(super) remote_key: u32,
    _behind: [u32; 5],
    _windows: [u64; 7],
}

impl SendRequest {
    /// A request that moves nothing yet.
    pub(super) const fn new(id: u64, opcode: c_int, flags: c_uint) -> Self {
        Self {
            id,
            next: std::ptr::null_mut(),
            pieces: std::ptr::null_mut(),
            count: 0,
            opcode,
            flags,
            word: 0,
            remote_address: 0,
            remote_key: 0,
            _behind: [0; 5],
            _windows: [0; 7],
        }
    }
}

/// `struct ibv_recv_wr`.
#[repr(C)]
pub(super) struct ReceiveRequest {
    pub(super) id: u64,
    pub(super) next: *mut Self,
    pub(super) pieces: *mut Piece,
    pub(super) count: c_int,
}

/// `struct ibv_wc`: a completion.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct WorkCompletion {
    pub(super) id: u64,
    pub(super) status: c_int,
    pub(super) opcode: c_int,
    pub(super) vendor_error: u32,
    pub(super) length: u32,
    /// Immediate data in network order, or the key that the peer has invalidated.
    pub(super) word: u32,
    pub(super) queue_pair: u32,
    pub(super) source: u32,
    pub(super) flags: c_uint,
    pub(super) partition: u16,
    pub(super) source_lid: u16,
    pub(super) service_level: u8,
    pub(super) path_bits: u8,
}

/// `struct rdma_event_channel`.
#[repr(C)]
pub(super) struct EventChannel {
    pub(super) fd: c_int,
}

/// `struct rdma_cm_id`: an end of a connection, or a listener.
#[repr(C)]
pub(super) struct CmId {
    pub(super) verbs: *mut Context,
    pub(super) channel: *mut EventChannel,
    pub(super) context: *mut c_void,
    pub(super) queue_pair: *mut QueuePair,
    pub(super) source: libc::sockaddr_storage,
    pub(super) destination: libc::sockaddr_storage,
}

/// `struct rdma_conn_param`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct ConnectionParameters {
    pub(super) private_data: *const c_void,
    pub(super) private_data_length: u8,
    pub(super) responder_resources: u8,
    pub(super) initiator_depth: u8,
    pub(super) flow_control: u8,
    pub(super) retry_count: u8,
    pub(super) rnr_retry_count: u8,
    pub(super) srq: u8,
    pub(super) qp_num: u32,
}

/// `struct rdma_cm_event`, of a connected port space.
#[repr(C)]
pub(super) struct CmEvent {
    pub(super) id: *mut CmId,
    pub(super) listen_id: *mut CmId,
    pub(super) event: c_int,
    pub(super) status: c_int,
    pub(super) parameters: ConnectionParameters,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;
    use std::process::Command;

    /// The layout of a structure in C, and the offsets of its members here.
    struct Layout {
        name: &'static str,
        /// The size, where this process allocates the structure.
        size: Option<usize>,
        members: Vec<(&'static str, usize)>,
    }

    macro_rules! layout {
        ($kind:ty, $name:literal, $size:expr, $($member:literal: $field:ident $(. $inner:ident)*),*) => {
            Layout {
                name: $name,
                size: $size,
                members: vec![$(($member, offset_of!($kind, $field $(. $inner)*))),*],
            }
        };
    }

    fn layouts() -> Vec<Layout> {
        vec![
            layout!(Context, "ibv_context", None, "device": device, "ops.poll_cq": operations.poll_cq,
                "ops.req_notify_cq": operations.request_notify_cq, "ops.post_send": operations.post_send,
                "ops.post_recv": operations.post_receive, "cmd_fd": command_fd, "async_fd": async_fd),
            layout!(Device, "ibv_device", None, "node_type": node_type, "transport_type": transport_type),
            layout!(DeviceAttributes, "ibv_device_attr", Some(size_of::<DeviceAttributes>()),
                "node_guid": node_guid, "max_mr_size": max_mr_size, "vendor_id": vendor_id,
                "max_qp_wr": max_qp_wr, "device_cap_flags": capabilities, "max_cqe": max_cqe, "max_mr": max_mr,
                "max_qp_rd_atom": max_qp_rd_atom, "max_qp_init_rd_atom": max_qp_init_rd_atom),
            layout!(MemoryRegion, "ibv_mr", None, "addr": address, "length": length, "handle": handle,
                "lkey": local_key, "rkey": remote_key),
            layout!(CompletionChannel, "ibv_comp_channel", None, "context": context, "fd": fd),
            layout!(QueuePairAttributes, "ibv_qp_init_attr", Some(size_of::<QueuePairAttributes>()),
                "send_cq": send_cq, "recv_cq": recv_cq, "srq": srq, "cap": capacities,
                "cap.max_inline_data": capacities.max_inline_data, "qp_type": qp_type,
                "sq_sig_all": signal_all),
            layout!(Piece, "ibv_sge", Some(size_of::<Piece>()), "addr": address, "length": length,
                "lkey": local_key),
            layout!(SendRequest, "ibv_send_wr", Some(size_of::<SendRequest>()), "wr_id": id, "next": next,
                "sg_list": pieces, "num_sge": count, "opcode": opcode, "send_flags": flags, "imm_data": word,
                "invalidate_rkey": word, "wr.rdma.remote_addr": remote_address, "wr.rdma.rkey": remote_key),
            layout!(ReceiveRequest, "ibv_recv_wr", Some(size_of::<ReceiveRequest>()), "wr_id": id,
                "next": next, "sg_list": pieces, "num_sge": count),
            layout!(WorkCompletion, "ibv_wc", Some(size_of::<WorkCompletion>()), "wr_id": id,
                "status": status, "opcode": opcode, "vendor_err": vendor_error, "byte_len": length,
                "imm_data": word, "invalidated_rkey": word, "qp_num": queue_pair, "wc_flags": flags,
                "dlid_path_bits": path_bits),
            layout!(EventChannel, "rdma_event_channel", None, "fd": fd),
            layout!(CmId, "rdma_cm_id", None, "verbs": verbs, "channel": channel, "context": context,
                "qp": queue_pair, "route.addr.src_storage": source, "route.addr.dst_storage": destination),
            layout!(ConnectionParameters, "rdma_conn_param", Some(size_of::<ConnectionParameters>()),
                "private_data": private_data, "private_data_len": private_data_length,
                "responder_resources": responder_resources, "initiator_depth": initiator_depth,
                "flow_control": flow_control, "retry_count": retry_count,
                "rnr_retry_count": rnr_retry_count, "srq": srq, "qp_num": qp_num),
            layout!(CmEvent, "rdma_cm_event", None, "id": id, "listen_id": listen_id, "event": event,
                "status": status, "param.conn": parameters),
        ]
    }

    /// A C compiler that reads the libraries' own headers finds every structure as it is here.
    #[test]
    fn structures_are_those_of_the_headers() {
        use std::fmt::Write;
        let mut source = String::from("#include <stddef.h>\n#include <rdma/rdma_cma.h>\n");
        for Layout { name, size, members } in layouts() {
            if let Some(size) = size {
                let _ = writeln!(source, "_Static_assert(sizeof(struct {name}) == {size}, \"{name}\");");
            }
            for (member, offset) in members {
                let _ = writeln!(
                    source,
                    "_Static_assert(offsetof(struct {name}, {member}) == {offset}, \"{name}.{member}\");"
                );
            }
        }
        for (name, number) in NUMBERS {
            let _ = writeln!(source, "_Static_assert({name} == {number}, \"{name}\");");
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("layout.c");
        let compile = |text: &str| {
            std::fs::write(&path, text).unwrap();
            Command::new("cc").arg("-fsyntax-only").arg(&path).output()
        };
        let headers = compile("#include <rdma/rdma_cma.h>\n");
        if !headers.is_ok_and(|output| output.status.success()) {
            eprintln!("SKIPPED: no C compiler, or no headers (libibverbs-dev and librdmacm-dev)");
            return;
        }
        let output = compile(&source).unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}
