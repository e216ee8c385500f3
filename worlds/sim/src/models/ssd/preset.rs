//! Known SSDs: the figures of data sheets and reviews, and the parameters derived from them.

use engine::Nanos;

use super::{Parameters, transfer};

/// Number of bytes in a gigabyte and a megabyte, as data sheets count.
const GB: u64 = 1_000_000_000;
const MB: u64 = 1_000_000;

/// Figures of a data sheet; `None` where it has none, or where a measured time line contradicts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sheet {
    /// The name in scenario files.
    pub model: &'static str,
    /// Sequential reads and writes in MB/s.
    pub sequential: [u64; 2],
    /// Rate of writes in MB/s when the cache is full.
    pub direct: Option<u64>,
    /// Random reads and writes of 4 KiB a second, many at a time.
    pub random: [u64; 2],
    /// Random reads and writes of 4 KiB a second, one at a time.
    pub single: Option<[u64; 2]>,
    /// Number of random commands at a time.
    pub depth: usize,
    /// Where the figures are from.
    pub source: &'static str,
}

/// The data sheets of presets. The 970 Pro has none for single commands: it is calibrated on
/// measured time lines (published-figures, nvme-tsn), which are longer.
pub const SHEETS: [Sheet; 6] = [
    Sheet {
        model: "970-pro",
        sequential: [3500, 2300],
        direct: None,
        random: [370_000, 500_000],
        single: None,
        depth: 128,
        source: "Samsung's figures of the 512 GB model, as its dealer Puget Systems lists them",
    },
    Sheet {
        model: "970-evo",
        sequential: [3400, 2300],
        direct: Some(600),
        random: [370_000, 450_000],
        single: Some([15_000, 50_000]),
        depth: 128,
        source: "Samsung's figures of the 500 GB model, as Techgage and The FPS Review list them (2018, 2020)",
    },
    Sheet {
        model: "960-evo",
        sequential: [3200, 1500],
        direct: Some(300),
        random: [330_000, 300_000],
        single: Some([14_000, 50_000]),
        depth: 128,
        source: "Samsung's figures of the 250 GB model, as Legit Reviews lists them (2016)",
    },
    Sheet {
        model: "980-pro",
        sequential: [7000, 5000],
        direct: None,
        random: [1_000_000, 1_000_000],
        single: Some([22_000, 60_000]),
        depth: 512,
        source: "Samsung's figures of the 1 TB model, as reported in 2020; those of single commands unconfirmed",
    },
    Sheet {
        model: "980",
        sequential: [3500, 3000],
        direct: None,
        random: [500_000, 480_000],
        single: Some([17_000, 54_000]),
        depth: 128,
        source: "Samsung's figures of the 1 TB model, as Guru3D lists them (2021)",
    },
    Sheet {
        model: "sn580",
        sequential: [4150, 4150],
        direct: None,
        random: [600_000, 750_000],
        single: None,
        depth: 128,
        source: "Western Digital's figures, as a review at aivon.com lists them",
    },
];

/// The figures of reviews and data sheets for a drive, in bytes and bytes a second.
struct Figures {
    name: &'static str,
    title: &'static str,
    sheet: Option<&'static Sheet>,
    capacity: u64,
    /// Rates of writes: into the cache, into the dense flash, and while space must be reclaimed.
    rates: [u64; 3],
    /// Number of bytes written from which on the second and the third rate hold.
    after: [u64; 2],
}

/// Writes never reach this number of bytes.
const NEVER: u64 = u64::MAX;

/// The drives that scenario files can name.
const KNOWN: [Figures; 8] = [
    Figures {
        name: "970-pro",
        title: "Samsung 970 Pro 512 GB",
        sheet: Some(&SHEETS[0]),
        capacity: 512 * GB,
        rates: [0, 23 * GB / 10, 23 * GB / 10],
        after: [0, NEVER],
    },
    Figures {
        name: "970-evo",
        title: "Samsung 970 EVO 500 GB",
        sheet: Some(&SHEETS[1]),
        capacity: 500 * GB,
        rates: [23 * GB / 10, 6 * GB / 10, 6 * GB / 10],
        after: [22 * GB, NEVER],
    },
    Figures {
        name: "960-evo",
        title: "Samsung 960 EVO 250 GB",
        sheet: Some(&SHEETS[2]),
        capacity: 250_059_350_016,
        rates: [15 * GB / 10, 3 * GB / 10, 3 * GB / 10],
        after: [13 * GB, NEVER],
    },
    Figures {
        name: "980-pro",
        title: "Samsung 980 PRO 1 TB",
        sheet: Some(&SHEETS[3]),
        capacity: 1000 * GB,
        rates: [5 * GB, 15 * GB / 10, 15 * GB / 10],
        after: [113 * GB, NEVER],
    },
    Figures {
        name: "980",
        title: "Samsung 980 1 TB",
        sheet: Some(&SHEETS[4]),
        capacity: 1000 * GB,
        rates: [3 * GB, 5 * GB / 10, 5 * GB / 10],
        after: [160 * GB, NEVER],
    },
    Figures {
        name: "sn580",
        title: "WD SN580",
        sheet: Some(&SHEETS[5]),
        capacity: 1000 * GB,
        rates: [4 * GB, 45 * GB / 100, 45 * GB / 100],
        after: [341 * GB, NEVER],
    },
    Figures {
        name: "mp700-elite",
        title: "Corsair MP700 Elite",
        sheet: None,
        capacity: 2000 * GB,
        rates: [6 * GB, 14 * GB / 10, 7 * GB / 10],
        after: [407 * GB, 1150 * GB],
    },
    Figures {
        name: "tlc",
        title: "a TLC device without a cache",
        sheet: None,
        capacity: 512 * GB,
        rates: [0, GB, GB],
        after: [0, NEVER],
    },
];

impl Parameters {
    /// Samsung 970 Pro 512 GB. The times follow from the analyser's time lines
    /// (published-figures, nvme-tsn), each without the propagation of 50 ns a direction and the
    /// serialisation of [`crate::models::pcie::Link::GEN2_X4`]:
    ///
    /// - `config_response`: a configuration read's 280 ns less 10 on the link and 2 x 50; spread as
    ///   its five samples.
    /// - `fetch`: `sqe_fetch_mrd` 460 less 12 and 2 x 50.
    /// - `firmware`: `data_first_mrd` 25,136 less the entry's arrival; NVMeVirt has 21.5 µs for the
    ///   same device.
    /// - `channel_rate`: `data_phase_length` 4852 is 15 pieces of 256 B and a last one's 140 ns;
    ///   NVMeVirt: 800 MB/s.
    /// - `array_read`: `data_first_mwr` 81,592 less the steps before it, including one piece.
    /// - `array_spread`: "tens of microseconds from read to read".
    /// - `completion`: from the last CplD's arrival to `msix_interrupt`, less the entry's 20 ns.
    /// - `channels`, `dies`: NVMeVirt's ssd_config.h. `buffer`: 512 MB of DRAM, of which a
    ///   sixteenth (estimate). `planes`, `page`: two of 16 KiB, so that a row is NVMeVirt's 32 KiB.
    /// - `program`: 2.3 GB/s (data sheet) over all dies; MLC flash has no cache whose end would
    ///   show. `erase` 3 ms (FEMU). `suspend`, `block_rows`, `spare`: estimates.
    /// - `read_rate`, `write_rate`, `read_command`, `write_command`: data sheet
    ///   ([`super::SHEETS`]).
    /// - `accept_spread`: estimate; the published write is one time line, without a spread.
    pub const SAMSUNG_970_PRO: Self = Self {
        name: "Samsung 970 Pro 512 GB",
        config_response: Nanos::new(170),
        config_spread: Nanos::new(14),
        register_response: Nanos::new(170),
        fetch: Nanos::new(348),
        firmware: Nanos::new(22_302),
        array_read: Nanos::new(56_142),
        array_spread: Nanos::from_micros(20),
        channels: 8,
        dies: 2,
        channel_rate: 814_950_000,
        piece: 256,
        completion: Nanos::new(608),
        planes: 2,
        page: 16 << 10,
        block_rows: 256,
        erase: Nanos::from_millis(3),
        program: Nanos::new(216_237),
        cache_program: Nanos::new(216_237),
        cache: 0,
        suspend: Nanos::from_micros(20),
        read_rate: 3500 * MB,
        write_rate: 2300 * MB,
        read_command: Nanos::new(2_702),
        write_command: Nanos::new(2_000),
        accept_spread: Nanos::from_micros(2),
        buffer: 32 << 20,
        capacity: 512 * GB,
        spare: 512 * GB * 7 / 100,
        direct: NEVER,
        reclaim_percent: 0,
        rest: Nanos::from_secs(5),
        pause_every: 0,
        pause: Nanos::ZERO,
        thermal: None,
    };

    /// The model called `name` in scenario files.
    pub fn named(name: &str) -> Option<Self> {
        let figures = KNOWN.iter().find(|figures| figures.name == name)?;
        let base = Self { name: figures.title, ..Self::SAMSUNG_970_PRO };
        Some(if figures.name == "970-pro" { base } else { figures.parameters(base) })
    }

    /// The names that [`Parameters::named`] accepts.
    pub fn names() -> impl Iterator<Item = &'static str> {
        KNOWN.iter().map(|figures| figures.name)
    }

    /// Time of a program of a row, if all dies together take `rate` bytes a second,
    /// erases included.
    pub fn program_at(&self, rate: u64) -> Nanos {
        let bytes = self.row() * u64::from(self.channels) * u64::from(self.dies);
        transfer(bytes, rate).saturating_sub(Nanos::new(self.erase.get() / u64::from(self.block_rows)))
    }
}

impl Figures {
    /// The parameters that follow, of a drive that is otherwise as `base`.
    fn parameters(&self, base: Parameters) -> Parameters {
        let [fast, direct, reclaiming] = self.rates;
        let mut all = Parameters {
            capacity: self.capacity,
            spare: self.capacity / 100 * 7,
            cache: self.after[0],
            direct: self.after[1],
            write_rate: fast.max(direct),
            ..base
        };
        // Drives that write faster than 2.5 GB/s have more dies, and faster channels.
        if fast > 25 * GB / 10 {
            (all.dies, all.channel_rate) = (4, 1200 * MB);
            all.read_rate = 7000 * MB;
        }
        // The cache's flash is a tenth faster than the controller, which is the limit.
        all.cache_program = all.program_at(fast.max(direct) / 10 * 11);
        all.program = all.program_at(direct);
        all.reclaim_percent = direct * 100 / reclaiming - 100;
        if let Some(sheet) = self.sheet {
            all.read_rate = sheet.sequential[0] * MB;
            all.write_rate = sheet.sequential[1] * MB;
            all.read_command = Nanos::new(GB / sheet.random[0]);
            all.write_command = Nanos::new(GB / sheet.random[1]);
            if let Some([read, write]) = sheet.single {
                // A write is entry fetch, firmware, half the spread and completion; a read has the
                // array and the channel on top.
                let write = Nanos::new(GB / write);
                let known = all.fetch + all.completion + Nanos::new(all.accept_spread.get() / 2);
                all.firmware = write.saturating_sub(known);
                let before = all.fetch + all.firmware + all.completion;
                let after = transfer(4096, all.channel_rate);
                all.array_read = Nanos::new(GB / read).saturating_sub(before + after);
                all.array_spread = Nanos::new(all.array_read.get() / 4);
            }
        }
        all
    }
}
