//! The kernel's interface to VFIO (`linux/vfio.h`) and to iommufd (`linux/iommufd.h`): structures,
//! numbers, and the calls themselves.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};

/// The version of the VFIO interface that is used.
pub(super) const API_VERSION: libc::c_int = 0;
/// The IOMMU model of all of today's hardware: `VFIO_TYPE1v2_IOMMU`.
pub(super) const TYPE1_V2: libc::c_ulong = 3;
/// `VFIO_GROUP_FLAGS_VIABLE`: all devices of the group have the driver VFIO, or none.
pub(super) const GROUP_VIABLE: u32 = 1 << 0;
/// `VFIO_DEVICE_FLAGS_RESET`: the device can be reset.
pub(super) const DEVICE_RESETS: u32 = 1 << 0;
/// `VFIO_REGION_INFO_FLAG_MMAP`: the region can be mapped.
pub(super) const REGION_MAPS: u32 = 1 << 2;
/// `VFIO_PCI_BAR0_REGION_INDEX`: the region of BAR0.
pub(super) const BAR0: u32 = 0;
/// `VFIO_PCI_CONFIG_REGION_INDEX`: the region of configuration space.
pub(super) const CONFIGURATION: u32 = 7;
/// `VFIO_PCI_MSIX_IRQ_INDEX`: the interrupts of MSI-X.
pub(super) const MSIX: u32 = 2;
/// `VFIO_IRQ_SET_DATA_EVENTFD` and `VFIO_IRQ_SET_ACTION_TRIGGER`: the given descriptors signal
/// interrupts.
const TRIGGER_EVENTFD: u32 = 1 << 2 | 1 << 5;
/// `VFIO_DMA_MAP_FLAG_READ` and `VFIO_DMA_MAP_FLAG_WRITE`, from the device's point of view.
const READ_WRITE: u32 = 1 << 0 | 1 << 1;
/// `IOMMU_IOAS_MAP_WRITEABLE` and `IOMMU_IOAS_MAP_READABLE`, from the device's point of view.
/// Without `IOMMU_IOAS_MAP_FIXED_IOVA` the kernel chooses the address that the device uses.
const WRITEABLE_READABLE: u32 = 1 << 1 | 1 << 2;
/// The most vectors that one call of [`set_msix`] can name.
pub(super) const VECTORS_MAX: usize = 2;

/// `_IO(VFIO_TYPE, VFIO_BASE + number)`.
const fn request(number: libc::Ioctl) -> libc::Ioctl {
    (b';' as libc::Ioctl) << 8 | (100 + number)
}

const GET_API_VERSION: libc::Ioctl = request(0);
const CHECK_EXTENSION: libc::Ioctl = request(1);
const SET_IOMMU: libc::Ioctl = request(2);
const GROUP_GET_STATUS: libc::Ioctl = request(3);
const GROUP_SET_CONTAINER: libc::Ioctl = request(4);
const GROUP_GET_DEVICE_FD: libc::Ioctl = request(6);
const DEVICE_GET_INFO: libc::Ioctl = request(7);
const DEVICE_GET_REGION_INFO: libc::Ioctl = request(8);
const DEVICE_GET_IRQ_INFO: libc::Ioctl = request(9);
const DEVICE_SET_IRQS: libc::Ioctl = request(10);
const DEVICE_RESET: libc::Ioctl = request(11);
const IOMMU_MAP_DMA: libc::Ioctl = request(13);
const DEVICE_BIND_IOMMUFD: libc::Ioctl = request(18);
const DEVICE_ATTACH_IOMMUFD_PT: libc::Ioctl = request(19);
// `_IO(IOMMUFD_TYPE, IOMMUFD_CMD_IOAS_ALLOC)` and so on. The type is that of VFIO, and the commands
// begin at 80h.
const IOAS_ALLOC: libc::Ioctl = request(0x1d);
const IOAS_MAP: libc::Ioctl = request(0x21);

/// A structure that begins with its own size, which the kernel fills in or reads.
///
/// # Safety
/// The type must be `repr(C)`, its first field `argsz: u32`, and every pattern of bits valid.
unsafe trait Sized32: Default {
    fn set_size(&mut self, bytes: u32);
}

/// Defines the structures, each with its size in front.
macro_rules! structures {
    ($($(#[$meta:meta])* $name:ident { $($field:ident: $type:ty,)* })*) => {
        $(
            $(#[$meta])*
            #[derive(Clone, Copy, Debug, Default)]
            #[repr(C)]
            pub(super) struct $name {
                argsz: u32,
                $(pub(super) $field: $type,)*
            }
            // SAFETY: as the definition above says; all fields are integers.
            unsafe impl Sized32 for $name {
                fn set_size(&mut self, bytes: u32) {
                    self.argsz = bytes;
                }
            }
        )*
    };
}

structures! {
    /// `struct vfio_group_status`.
    GroupStatus { flags: u32, }
    /// `struct vfio_device_info`.
    DeviceInfo { flags: u32, regions: u32, interrupts: u32, capabilities: u32, padding: u32, }
    /// `struct vfio_region_info`.
    RegionInfo { flags: u32, index: u32, capabilities: u32, size: u64, offset: u64, }
    /// `struct vfio_irq_info`.
    InterruptInfo { flags: u32, index: u32, count: u32, }
    /// `struct vfio_irq_set` with room for eventfds.
    InterruptSet { flags: u32, index: u32, start: u32, count: u32, eventfds: [i32; VECTORS_MAX], }
    /// `struct vfio_iommu_type1_dma_map`.
    DmaMap { flags: u32, virtual_address: u64, iova: u64, size: u64, }
    /// `struct vfio_device_bind_iommufd`, with the fields of its first version.
    BindIommufd { flags: u32, iommufd: i32, device_id: u32, }
    /// `struct vfio_device_attach_iommufd_pt`, with the fields of its first version.
    AttachIommufd { flags: u32, page_table: u32, }
    /// `struct iommu_ioas_alloc`.
    AddressSpaceAllocation { flags: u32, id: u32, }
    /// `struct iommu_ioas_map`.
    AddressSpaceMap { flags: u32, id: u32, reserved: u32, virtual_address: u64, length: u64, iova: u64, }
}

fn answer(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn call_plain(file: &File, number: libc::Ioctl, argument: libc::c_ulong) -> io::Result<libc::c_int> {
    // SAFETY: the calls that come here take an integer or nothing, and touch no memory of ours.
    answer(unsafe { libc::ioctl(file.as_raw_fd(), number, argument) })
}

fn call<T: Sized32>(file: &File, number: libc::Ioctl, argument: &mut T) -> io::Result<()> {
    argument.set_size(u32::try_from(size_of::<T>()).expect("the structures are small"));
    // SAFETY: the call takes a pointer to this structure, reads its size first, and writes no more
    // than that.
    answer(unsafe { libc::ioctl(file.as_raw_fd(), number, std::ptr::from_mut(argument)) }).map(drop)
}

/// Whether the kernel's VFIO has the version that we use, and `container` knows the IOMMU model.
pub(super) fn check(container: &File) -> io::Result<bool> {
    let version = call_plain(container, GET_API_VERSION, 0)?;
    Ok(version == API_VERSION && call_plain(container, CHECK_EXTENSION, TYPE1_V2)? == 1)
}

pub(super) fn set_iommu(container: &File) -> io::Result<()> {
    call_plain(container, SET_IOMMU, TYPE1_V2).map(drop)
}

pub(super) fn group_status(group: &File) -> io::Result<GroupStatus> {
    let mut status = GroupStatus::default();
    call(group, GROUP_GET_STATUS, &mut status)?;
    Ok(status)
}

pub(super) fn set_container(group: &File, container: &File) -> io::Result<()> {
    let mut descriptor = container.as_raw_fd();
    // SAFETY: the call reads one integer behind the pointer.
    answer(unsafe { libc::ioctl(group.as_raw_fd(), GROUP_SET_CONTAINER, &raw mut descriptor) }).map(drop)
}

/// The descriptor of the device called `name` in `group`; the caller owns it.
pub(super) fn device(group: &File, name: &std::ffi::CStr) -> io::Result<RawFd> {
    // SAFETY: the call reads a string that ends with a zero byte.
    answer(unsafe { libc::ioctl(group.as_raw_fd(), GROUP_GET_DEVICE_FD, name.as_ptr()) })
}

pub(super) fn device_info(device: &File) -> io::Result<DeviceInfo> {
    let mut info = DeviceInfo::default();
    call(device, DEVICE_GET_INFO, &mut info)?;
    Ok(info)
}

pub(super) fn region_info(device: &File, index: u32) -> io::Result<RegionInfo> {
    let mut info = RegionInfo { index, ..RegionInfo::default() };
    call(device, DEVICE_GET_REGION_INFO, &mut info)?;
    Ok(info)
}

/// The number of MSI-X vectors of the device.
pub(super) fn msix_vectors(device: &File) -> io::Result<u32> {
    let mut info = InterruptInfo { index: MSIX, ..InterruptInfo::default() };
    call(device, DEVICE_GET_IRQ_INFO, &mut info)?;
    Ok(info.count)
}

/// Makes each of these descriptors signal one MSI-X vector, from vector 0 on.
pub(super) fn set_msix(device: &File, eventfds: [RawFd; VECTORS_MAX]) -> io::Result<()> {
    let count = u32::try_from(VECTORS_MAX).expect("vectors are few");
    let mut set = InterruptSet { argsz: 0, flags: TRIGGER_EVENTFD, index: MSIX, start: 0, count, eventfds };
    call(device, DEVICE_SET_IRQS, &mut set)
}

pub(super) fn reset(device: &File) -> io::Result<()> {
    call_plain(device, DEVICE_RESET, 0).map(drop)
}

/// Lets the devices of `container` reach `size` bytes at `address` of this process, as `iova`.
///
/// # Safety
/// The memory must be a mapping to which this process refers only by raw pointers, and which is not
/// unmapped for another use while the devices may reach it.
pub(super) unsafe fn map_dma(container: &File, address: *mut u8, iova: u64, size: u64) -> io::Result<()> {
    let virtual_address = u64::try_from(address.expose_provenance()).expect("addresses have 64 bits at most");
    let mut map = DmaMap { argsz: 0, flags: READ_WRITE, virtual_address, iova, size };
    call(container, IOMMU_MAP_DMA, &mut map)
}

/// Makes `iommufd` control the memory that `device` reaches. No other request to the device is
/// possible before.
pub(super) fn bind(device: &File, iommufd: &File) -> io::Result<()> {
    let mut bind = BindIommufd { iommufd: iommufd.as_raw_fd(), ..BindIommufd::default() };
    call(device, DEVICE_BIND_IOMMUFD, &mut bind)
}

/// Makes a new address space, in which nothing can be reached; returns its identifier.
pub(super) fn address_space(iommufd: &File) -> io::Result<u32> {
    let mut allocation = AddressSpaceAllocation::default();
    call(iommufd, IOAS_ALLOC, &mut allocation)?;
    Ok(allocation.id)
}

/// Puts `device`, which must be bound to the iommufd of the address space, into the address space.
pub(super) fn attach(device: &File, address_space: u32) -> io::Result<()> {
    let mut attach = AttachIommufd { page_table: address_space, ..AttachIommufd::default() };
    call(device, DEVICE_ATTACH_IOMMUFD_PT, &mut attach)
}

/// Lets the devices of an address space reach `length` bytes at `address` of this process. Returns
/// the address that the kernel chose for the devices.
///
/// # Safety
/// The conditions of [`map_dma`] apply.
pub(super) unsafe fn map(
    iommufd: &File,
    address_space: u32,
    address: *mut u8,
    length: u64,
) -> io::Result<u64> {
    let virtual_address = u64::try_from(address.expose_provenance()).expect("addresses have 64 bits at most");
    let map = AddressSpaceMap { flags: WRITEABLE_READABLE, id: address_space, ..AddressSpaceMap::default() };
    let mut map = AddressSpaceMap { virtual_address, length, ..map };
    call(iommufd, IOAS_MAP, &mut map)?;
    Ok(map.iova)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_are_as_long_as_the_kernel_has_them() {
        assert_eq!(size_of::<GroupStatus>(), 8);
        assert_eq!(size_of::<DeviceInfo>(), 24);
        assert_eq!(size_of::<RegionInfo>(), 32);
        assert_eq!(size_of::<InterruptInfo>(), 16);
        assert_eq!(size_of::<InterruptSet>(), 20 + 4 * VECTORS_MAX);
        assert_eq!(size_of::<DmaMap>(), 32);
        assert_eq!((GET_API_VERSION, DEVICE_RESET, IOMMU_MAP_DMA), (0x3b64, 0x3b6f, 0x3b71));
        assert_eq!((size_of::<BindIommufd>(), size_of::<AttachIommufd>()), (16, 12));
        assert_eq!((size_of::<AddressSpaceAllocation>(), size_of::<AddressSpaceMap>()), (12, 40));
        assert_eq!((DEVICE_BIND_IOMMUFD, DEVICE_ATTACH_IOMMUFD_PT), (0x3b76, 0x3b77));
        assert_eq!((IOAS_ALLOC, IOAS_MAP), (0x3b81, 0x3b85));
    }
}
