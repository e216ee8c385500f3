//! The smallest disk from which UEFI firmware boots: a FAT file system with one program at the path
//! for removable media. It shows that the firmware's own NVMe driver reads.

/// Length in bytes of a sector, and of a cluster.
const SECTOR: usize = SECTOR_BYTES as usize;
const SECTOR_BYTES: u32 = 512;
/// Sectors of the disk: 1 MiB.
const SECTORS: u16 = 2048;
/// Sectors before the first allocation table.
const RESERVED: u8 = 1;
/// Sectors of the one allocation table, which has 12 bits for each of some 2,000 clusters.
const TABLE: u8 = 6;
/// Sectors of the root directory, which has 16 entries each.
const ROOT: u8 = 1;
/// The number of the first cluster.
const FIRST: u16 = 2;
/// The clusters of the directories EFI and BOOT, and the first of the program.
const EFI: u16 = 2;
const BOOT: u16 = 3;
const PROGRAM: u16 = 4;
/// Attributes of a directory entry.
const DIRECTORY: u8 = 0x10;
const FILE: u8 = 0x20;

/// Offset of the PE header in the program.
const PE_HEADER: u8 = 0x40;
/// Where the program's one section is in memory, and in the file.
const SECTION: u32 = 0x1000;
const SECTION_IN_FILE: u32 = SECTOR_BYTES;

/// The code, entered with any stack: it sends the text behind it to the third serial port and
/// resets the machine.
#[rustfmt::skip]
const CODE: [u8; 42] = [
    0x48, 0x8D, 0x35, 0x23, 0, 0, 0, // 00         lea rsi, [rip + text]
    0xFC,                   // 07         cld
    0xAC,                   // 08 next:   lodsb
    0x84, 0xC0,             // 09         test al, al
    0x74, 0x13,             // 0B         jz done
    0x88, 0xC4,             // 0D         mov ah, al
    0x66, 0xBA, 0xED, 0x03, // 0F         mov dx, 0x3ED    ; line status
    0xEC,                   // 13 wait:   in al, dx
    0xA8, 0x20,             // 14         test al, 0x20    ; room for a character
    0x74, 0xFB,             // 16         jz wait
    0xB2, 0xE8,             // 18         mov dl, 0xE8     ; the port itself, 0x3E8
    0x88, 0xE0,             // 1A         mov al, ah
    0xEE,                   // 1C         out dx, al
    0xEB, 0xE9,             // 1D         jmp next
    0x90,                   // 1F
    0x66, 0xBA, 0xF9, 0x0C, // 20 done:   mov dx, 0xCF9    ; reset control
    0xB0, 0x06,             // 24         mov al, 6
    0xEE,                   // 26         out dx, al
    0xF4,                   // 27 halt:   hlt
    0xEB, 0xFD,             // 28         jmp halt
]; // 2A text
/// The words for the control line.
const TEXT: &[u8] = b"ready\nstatus 0\n\0";

/// A disk of 1 MiB in 512-byte blocks, for a guest with [`crate::Firmware::Edk2`] that
/// [`crate::Builder::boot_from_device`] makes; more blocks may follow. The guest's status is 0 when
/// the firmware has run the disk's program.
#[must_use]
pub fn efi_image() -> Vec<u8> {
    let mut image = vec![0; usize::from(SECTORS) * SECTOR];
    let mut put = |at: usize, bytes: &[u8]| image[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &boot_sector());
    // Media type F8h, the end of each directory, and the two clusters of the program.
    let sector = |number: u16| usize::from(number) * SECTOR;
    let root = u16::from(RESERVED) + u16::from(TABLE);
    let data = |cluster: u16| sector(root + u16::from(ROOT) + cluster - FIRST);
    put(sector(RESERVED.into()), &[0xF8, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x05, 0xF0, 0xFF]);
    put(sector(root), &entry(b"EFI        ", DIRECTORY, EFI, 0));
    for (cluster, parent) in [(EFI, 0), (BOOT, EFI)] {
        put(data(cluster), &entry(b".          ", DIRECTORY, cluster, 0));
        put(data(cluster) + 32, &entry(b"..         ", DIRECTORY, parent, 0));
    }
    put(data(EFI) + 64, &entry(b"BOOT       ", DIRECTORY, BOOT, 0));
    put(data(BOOT) + 64, &entry(b"BOOTX64 EFI", FILE, PROGRAM, 2 * SECTOR_BYTES));
    put(data(PROGRAM), &program());
    image
}

/// The BIOS parameter block of a FAT12 file system.
fn boot_sector() -> [u8; SECTOR] {
    let mut sector = [0; SECTOR];
    let mut put = |at: usize, bytes: &[u8]| sector[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &[0xEB, 0x3C, 0x90]);
    put(3, b"FARLANE ");
    put(11, &512_u16.to_le_bytes());
    // Sectors in a cluster, reserved sectors, tables, entries of the root directory.
    put(13, &[1, RESERVED, 0, 1, 16, 0]);
    put(19, &SECTORS.to_le_bytes());
    // Media type, and the sectors of a table, of a track, and the heads.
    put(21, &[0xF8, TABLE, 0, 32, 0, 2, 0]);
    put(36, &[0x80, 0, 0x29, 1, 0, 0, 0]);
    put(43, b"FARLANE    FAT12   ");
    put(SECTOR - 2, &[0x55, 0xAA]);
    sector
}

/// A directory's entry for a file or directory with this name of 8.3 characters.
fn entry(name: &[u8; 11], attributes: u8, cluster: u16, length: u32) -> [u8; 32] {
    let mut entry = [0; 32];
    entry[..11].copy_from_slice(name);
    entry[11] = attributes;
    entry[26..28].copy_from_slice(&cluster.to_le_bytes());
    entry[28..].copy_from_slice(&length.to_le_bytes());
    entry
}

/// A program for x86-64 UEFI (PE32+) of two sectors: the headers, and one section.
fn program() -> [u8; 2 * SECTOR] {
    let mut file = [0; 2 * SECTOR];
    let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"MZ");
    put(0x3C, &[PE_HEADER]);
    let header = usize::from(PE_HEADER);
    put(header, b"PE\0\0");
    // Machine x86-64, one section; an optional header of 240 bytes, executable, large addresses.
    put(header + 4, &[0x64, 0x86, 1, 0]);
    put(header + 20, &[240, 0, 0x22, 0]);
    let optional = header + 24;
    let mut word = |at: usize, value: u32| put(optional + at, &value.to_le_bytes());
    word(0, 0x020B); // PE32+
    word(4, SECTOR_BYTES); // bytes of code
    word(16, SECTION); // entry point
    word(20, SECTION); // base of code
    word(32, SECTION); // alignment of sections
    word(36, SECTOR_BYTES); // alignment in the file
    word(56, 2 * SECTION); // bytes of the image
    word(60, SECTION_IN_FILE); // bytes of headers
    word(68, 10); // subsystem: EFI application
    word(108, 16); // data directories, all empty
    let section = optional + 240;
    put(section, b".text");
    put(section + 8, &SECTOR_BYTES.to_le_bytes()); // bytes in memory
    put(section + 12, &SECTION.to_le_bytes());
    put(section + 16, &SECTOR_BYTES.to_le_bytes()); // bytes in the file
    put(section + 20, &(SECTION_IN_FILE).to_le_bytes());
    put(section + 36, &0x6000_0020_u32.to_le_bytes()); // code that is executed and read
    put(SECTOR, &CODE);
    put(SECTOR + CODE.len(), TEXT);
    file
}
