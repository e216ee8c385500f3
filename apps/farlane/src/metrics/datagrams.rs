//! The figures of connections that datagrams carry.

use live::carrier::datagrams::{Copies, Info};

use daemon::metrics::{Kind, Labels, Page, seconds};

/// Adds what became of the datagrams of a tunnel's connections, which `labels` name.
pub(crate) fn add_datagrams(page: &mut Page, labels: &Labels, connections: &[Info]) {
    for (index, info) in connections.iter().enumerate() {
        let mut labels = labels.clone();
        labels.push(("connection", index.to_string()));
        let Info { datagrams, late, .. } = info;
        let counters = [
            ("farlane_datagrams_sent", "Datagrams sent", datagrams.sent),
            ("farlane_datagrams_received", "Datagrams that came and were new", datagrams.received),
            (
                "farlane_datagrams_lost",
                "Datagrams taken for lost; their bytes were sent again",
                datagrams.lost,
            ),
            ("farlane_datagrams_again", "Datagrams that came again, or too late to know", datagrams.again),
            ("farlane_datagrams_late", "Datagrams not sent, as they missed their launch", *late),
        ];
        page.add_rows(&labels, counters.map(|(name, help, value)| (Kind::Counter, name, help, value as f64)));
        let gauges = [
            ("farlane_datagrams_round_trip_seconds", "The smoothed round trip", seconds(info.round_trip)),
            ("farlane_datagrams_window_bytes", "Bytes that may be under way", info.window as f64),
            ("farlane_datagrams_under_way_bytes", "Bytes under way", info.under_way as f64),
            (
                "farlane_datagrams_length_bytes",
                "The longest datagrams known to pass",
                info.datagram_bytes as f64,
            ),
        ];
        page.add_rows(&labels, gauges.map(|(name, help, value)| (Kind::Gauge, name, help, value)));
        for path in &info.paths {
            let labels = on_path(&labels, &path.interface);
            let help = "Frames that came while this end had no room";
            page.family(Kind::Counter, "farlane_frames_dropped", help).add(&labels, path.dropped as f64);
            if let Some(copies) = &path.copies {
                add_copies(page, &labels, copies);
                let help = "1 while the path fails: other paths bring its frames";
                let failing = f64::from(u8::from(path.is_failing));
                page.family(Kind::Gauge, "farlane_path_failing", help).add(&labels, failing);
            }
        }
        info.copies.iter().for_each(|copies| add_copies(page, &on_path(&labels, "all"), copies));
    }
}

fn on_path(labels: &Labels, path: &str) -> Labels {
    labels.iter().cloned().chain([("path", path.to_owned())]).collect()
}

/// Adds what became of frames that were sent over several paths (IEEE 802.1CB).
fn add_copies(page: &mut Page, labels: &Labels, copies: &Copies) {
    let counters = [
        ("farlane_frames_passed", "Frames that were the first of their number", copies.passed),
        ("farlane_frames_eliminated", "Copies of frames that had passed", copies.discarded),
        ("farlane_frames_out_of_order", "Frames whose number was not the next", copies.out_of_order),
        ("farlane_frames_rogue", "Frames whose number is beyond what is remembered", copies.rogue),
        ("farlane_frames_lost", "Numbers of which no frame came", copies.lost),
        ("farlane_frames_resets", "Times that any number was taken, after a silence", copies.resets),
        (
            "farlane_frames_latent_errors",
            "Times that a path was found failing in silence",
            copies.latent_errors,
        ),
    ];
    page.add_rows(labels, counters.map(|(name, help, value)| (Kind::Counter, name, help, value as f64)));
}
