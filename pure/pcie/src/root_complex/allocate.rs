//! Assignment of addresses to BARs, and of windows to bridges.

use alloc::vec::Vec;

use super::enumerate::Plan;
use super::topology::{BarRegister, Bridge, Fault, Function, Space, Window};
use crate::wire::Bdf;

/// Bridge windows start and end at a multiple of this many bytes.
const WINDOW_UNIT: u64 = 1 << 20;

/// One of the two windows of a bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Region {
    /// Memory with 32-bit addresses.
    Low,
    /// Prefetchable memory with 64-bit addresses.
    High,
}

/// A consumer of addresses on a bus: a BAR, or everything behind a bridge.
#[derive(Clone, Copy, Debug)]
struct Item {
    align: u64,
    size: u64,
    function: usize,
    /// Index of the BAR in its function's list; `None` for a bridge's window.
    bar: Option<usize>,
}

/// Callback for the detected faults.
type Notes<'a> = &'a mut dyn FnMut(Bdf, Fault);

/// Assigns addresses to everything below the root port.
pub(super) fn below_root(root: &mut Function, plan: &Plan, note: Notes<'_>) {
    let whole = Bridge { memory: Some(plan.low), prefetchable: Some(plan.high), ..Bridge::default() };
    below_port(root, &whole, true, plan, note);
    if let Some(bridge) = &mut root.bridge {
        bridge.memory = used(&root.children, Region::Low);
        bridge.prefetchable = used(&root.children, Region::High);
    }
}

/// Assigns addresses within `windows` to everything below `port`. `high` says whether prefetchable
/// 64-bit addresses reach the port.
pub(super) fn below_port(port: &mut Function, windows: &Bridge, high: bool, plan: &Plan, note: Notes<'_>) {
    let children = &mut port.children;
    place(children, Region::Low, windows.memory, high, plan, note);
    place(children, Region::High, windows.prefetchable, high, plan, note);
    note_unplaced(children, note);
}

/// Notes a fault for each BAR that found no room.
fn note_unplaced(functions: &[Function], note: Notes<'_>) {
    for function in functions {
        for bar in function.bars.iter().filter(|bar| bar.space != Space::Io && bar.address.is_none()) {
            note(function.bdf, Fault::NoSpace { index: Some(bar.index), size: bar.size });
        }
        note_unplaced(&function.children, note);
    }
}

fn region_of(bar: &BarRegister, high: bool) -> Option<Region> {
    match bar.space {
        Space::Io => None,
        Space::Memory64 if bar.prefetchable && high => Some(Region::High),
        Space::Memory32 | Space::Memory64 => Some(Region::Low),
    }
}

/// Size of a region in bytes.
const fn room(region: Region, plan: &Plan) -> u64 {
    match region {
        Region::Low => plan.low.size(),
        Region::High => plan.high.size(),
    }
}

/// Whether the bridge forwards addresses of the high region.
fn reaches_high(function: &Function, high: bool) -> bool {
    high && function.bridge.is_some_and(|bridge| bridge.prefetchable_64)
}

/// The consumers of addresses of `region` on a bus. The strictest alignment comes first, so that no
/// address is lost between consumers.
fn items(functions: &[Function], region: Region, high: bool, plan: &Plan) -> Vec<Item> {
    let mut items = Vec::new();
    for (index, function) in functions.iter().enumerate() {
        for (place, bar) in function.bars.iter().enumerate() {
            // A BAR that cannot fit must not occupy the room of its neighbours.
            if region_of(bar, high) == Some(region) && bar.size <= room(region, plan) {
                items.push(Item { align: bar.size, size: bar.size, function: index, bar: Some(place) });
            }
        }
        if function.bridge.is_some_and(|bridge| bridge.secondary != 0) {
            let (align, size) = behind(function, region, reaches_high(function, high), plan);
            if size > 0 {
                items.push(Item { align, size, function: index, bar: None });
            }
        }
    }
    items.sort_by_key(|item| core::cmp::Reverse((item.align, item.size)));
    items
}

/// Alignment and size in bytes of the window that the bridge needs.
fn behind(function: &Function, region: Region, high: bool, plan: &Plan) -> (u64, u64) {
    let reserved = match function.express {
        Some(express) if express.is_hot_plug() && (region == Region::Low || high) => plan.hot_plug_window,
        _ => 0,
    };
    let mut end = 0_u64;
    let mut align = WINDOW_UNIT;
    for item in items(&function.children, region, high, plan) {
        align = align.max(item.align);
        end = align_up(end, item.align).saturating_add(item.size);
    }
    (align, align_up(end.max(reserved), WINDOW_UNIT))
}

fn place(
    functions: &mut [Function],
    region: Region,
    window: Option<Window>,
    high: bool,
    plan: &Plan,
    note: Notes<'_>,
) {
    let mut next = window.map(|window| window.first);
    for item in items(functions, region, high, plan) {
        let function = &mut functions[item.function];
        let found = next.zip(window).and_then(|(next, window)| fit(next, window, &item));
        if let Some(found) = found {
            next = found.last.checked_add(1);
        } else if item.bar.is_none() {
            note(function.bdf, Fault::NoSpace { index: None, size: item.size });
        }
        if let Some(bar) = item.bar {
            function.bars[bar].address = found.map(|found| found.first);
            continue;
        }
        let below = reaches_high(function, high);
        if let Some(bridge) = &mut function.bridge {
            match region {
                Region::Low => bridge.memory = found,
                Region::High => bridge.prefetchable = found,
            }
        }
        if found.is_some() {
            place(&mut function.children, region, found, below, plan, note);
        }
    }
}

/// The addresses for `item` in `window`, from `next` on; `None` if it does not fit.
fn fit(next: u64, window: Window, item: &Item) -> Option<Window> {
    let first = next.checked_next_multiple_of(item.align)?;
    let last = first.checked_add(item.size - 1)?;
    (last <= window.last).then_some(Window { first, last })
}

/// `value` rounded up to a multiple of `align`; `u64::MAX` on overflow.
fn align_up(value: u64, align: u64) -> u64 {
    value.checked_next_multiple_of(align).unwrap_or(u64::MAX)
}

/// The span of addresses in use on a bus, in whole window units; `None` if none is in use.
fn used(functions: &[Function], region: Region) -> Option<Window> {
    let bars = functions.iter().flat_map(|function| &function.bars);
    let bars = bars.filter(|bar| region_of(bar, true) == Some(region)).filter_map(|bar| {
        let first = bar.address?;
        Some(Window { first, last: first + (bar.size - 1) })
    });
    let windows = functions.iter().filter_map(|function| match region {
        Region::Low => function.bridge?.memory,
        Region::High => function.bridge?.prefetchable,
    });
    let spans: Vec<_> = bars.chain(windows).collect();
    let first = spans.iter().map(|span| span.first).min()?;
    let last = spans.iter().map(|span| span.last).max()?;
    Some(Window { first: first - first % WINDOW_UNIT, last: last | (WINDOW_UNIT - 1) })
}
