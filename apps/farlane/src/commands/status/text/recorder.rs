//! Recorders and replayers.

use ::status::Recorder;
use engine::Nanos;

/// A recorder or a replayer: its bytes, its medium and its buffer.
pub(super) fn text(of: &Recorder) -> String {
    let kept = match of.kept_ns {
        Some(time) => format!(
            "  keeps the last {}, {} B, until it is triggered\n",
            Nanos::new(time),
            of.kept_bytes.unwrap_or_default()
        ),
        None => String::new(),
    };
    let model = if of.medium.model.is_empty() { "of an unknown model" } else { &of.medium.model };
    format!(
        "{}: {} B in, {} B stored, {} B of them durable, {} B lost\n  \
         medium: {} B, {model}; writes from {} up to {}, the last one ended at {}\n  \
         buffer: {} B of {} B, {} B at most\n{kept}",
        of.state,
        of.bytes_in,
        of.bytes_stored,
        of.bytes_acknowledged,
        of.bytes_lost,
        of.medium.bytes,
        of.start_address,
        of.maximum_address,
        of.last_address,
        of.fill_bytes,
        of.buffer_bytes,
        of.high_water_bytes,
    )
}
