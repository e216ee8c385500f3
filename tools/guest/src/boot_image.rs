//! The smallest disk from which a PC's firmware boots. It shows that the firmware's own NVMe driver
//! reads.

/// Length in bytes of a sector, the unit of BIOS interrupt 13h.
const SECTOR: usize = 512;
/// Size of the disk in bytes. The firmware cannot boot from a disk smaller than a cylinder of the
/// geometry that it makes up.
const SIZE: usize = 1 << 20;
/// Position of the message on the disk, in sectors: far enough away to need a read of its own.
const WORDS_AT: u8 = 200;
/// The last two bytes of a boot sector.
const SIGNATURE: [u8; 2] = [0x55, 0xAA];
/// The words for the control line. The boot has succeeded if this sector could be read.
const WORDS: &[u8] = b"ready\nstatus 0\n\0";
/// The words for the control line when the firmware reports that its read has failed.
const FAILED: &[u8] = b"ready\nstatus 1\n\0";

/// The real-mode program, loaded to 0x7C00 with the drive's number in DL. The program reads one
/// sector through the firmware (interrupt 13h, function 42h), sends the text in the sector to the
/// third serial port and resets the machine.
#[rustfmt::skip]
const PROGRAM: [u8; 74] = [
    0x31, 0xC0,             // 00         xor ax, ax
    0x8E, 0xD8,             // 02         mov ds, ax
    0x8E, 0xC0,             // 04         mov es, ax
    0x8E, 0xD0,             // 06         mov ss, ax
    0xBC, 0x00, 0x7C,       // 08         mov sp, 0x7C00
    0xFC,                   // 0B         cld
    0xBE, 0x3A, 0x7C,       // 0C         mov si, packet
    0xB4, 0x42,             // 0F         mov ah, 0x42
    0xCD, 0x13,             // 11         int 0x13
    0xBE, 0x00, 0x7E,       // 13         mov si, 0x7E00
    0x73, 0x03,             // 16         jnc print
    0xBE, 0x4A, 0x7C,       // 18         mov si, failed
    0xAC,                   // 1B print:  lodsb
    0x84, 0xC0,             // 1C         test al, al
    0x74, 0x11,             // 1E         jz done
    0x88, 0xC4,             // 20         mov ah, al
    0xBA, 0xED, 0x03,       // 22         mov dx, 0x3ED    ; line status
    0xEC,                   // 25 wait:   in al, dx
    0xA8, 0x20,             // 26         test al, 0x20    ; room for a character
    0x74, 0xFB,             // 28         jz wait
    0xB2, 0xE8,             // 2A         mov dl, 0xE8     ; the port itself, 0x3E8
    0x88, 0xE0,             // 2C         mov al, ah
    0xEE,                   // 2E         out dx, al
    0xEB, 0xEA,             // 2F         jmp print
    0xBA, 0xF9, 0x0C,       // 31 done:   mov dx, 0xCF9    ; reset control
    0xB0, 0x06,             // 34         mov al, 6
    0xEE,                   // 36         out dx, al
    0xF4,                   // 37 halt:   hlt
    0xEB, 0xFD,             // 38         jmp halt
    0x10, 0x00,             // 3A packet: its size
    0x01, 0x00,             // 3C         sectors
    0x00, 0x7E, 0x00, 0x00, // 3E         to 0000:7E00
    WORDS_AT, 0, 0, 0,      // 42         from
    0, 0, 0, 0,             // 46
]; // 4A failed: the text of failure

/// A disk of 1 MiB in 512-byte blocks, for a guest made with [`crate::Builder::boot_from_device`];
/// more blocks may follow. The guest's status is 0 when the firmware has read the contents of the
/// disk.
#[must_use]
pub fn boot_image() -> Vec<u8> {
    let mut image = vec![0; SIZE];
    let mut put = |at: usize, bytes: &[u8]| image[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &PROGRAM);
    put(PROGRAM.len(), FAILED);
    put(SECTOR - SIGNATURE.len(), &SIGNATURE);
    put(usize::from(WORDS_AT) * SECTOR, WORDS);
    image
}
