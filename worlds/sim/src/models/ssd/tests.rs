//! Tests of the SSD.

use super::*;

fn fresh(parameters: Parameters) -> Ssd {
    Ssd::new(parameters, Rng::from_seed(1))
}

#[test]
fn a_page_comes_in_pieces_at_the_channels_rate() {
    let mut ssd = fresh(Parameters { array_spread: Nanos::ZERO, ..Parameters::SAMSUNG_970_PRO });
    let mut times = Vec::new();
    ssd.read(Instant::ZERO, 0, 4096, |at, offset, length| times.push((at, offset, length)));
    assert_eq!(times.len(), 16);
    assert_eq!(times[0].0.as_nanos(), 56_142 + 315);
    // The published data phase: 15 pieces after the first one, and 140 ns of the last piece on
    // the link.
    assert!((times[15].0 - times[0].0).get().abs_diff(4_852 - 140) <= 2);
    assert_eq!((times[15].1, times[15].2), (3840, 256));
}

#[test]
fn one_die_serves_one_page_after_the_other_and_sixteen_serve_side_by_side() {
    let mut ssd = fresh(Parameters { array_spread: Nanos::ZERO, ..Parameters::SAMSUNG_970_PRO });
    let one = ssd.read(Instant::ZERO, 0, 4096, |_, _, _| ());
    let other = ssd.read(Instant::ZERO, 128 * 4096, 4096, |_, _, _| ());
    assert!(other >= one + Nanos::new(56_142 - 5_100));
    let mut ssd = fresh(Parameters { array_spread: Nanos::ZERO, ..Parameters::SAMSUNG_970_PRO });
    let all = ssd.read(Instant::ZERO, 0, 16 * 4096, |_, _, _| ());
    assert!(all < one + Nanos::from_micros(6), "{all:?} for 16 pages, {one:?} for one");
}

/// The rate in MB/s of `count` writes of 1 MB one after the other.
fn rate_of(ssd: &mut Ssd, now: &mut Instant, count: u64) -> u64 {
    let begin = *now;
    for number in 0..count {
        *now = ssd.write(*now, number * 1_000_000, 1_000_000);
    }
    count * 1_000_000_000 / (*now - begin).get().max(1)
}

/// Whether `rate` is within 3 % of `expected`.
fn near(rate: u64, expected: u64) -> bool {
    rate.abs_diff(expected) * 33 < expected
}

/// 2.3 GB/s until 22 GB are written, then 0.6 GB/s; after a rest 2.3 GB/s again.
#[test]
fn the_write_rate_drops_off_and_a_rest_restores_it() {
    let mut ssd = fresh(Parameters::named("970-evo").unwrap());
    let mut now = Instant::ZERO;
    let fresh = rate_of(&mut ssd, &mut now, 20_000);
    rate_of(&mut ssd, &mut now, 3_000);
    let full = rate_of(&mut ssd, &mut now, 3_000);
    now = now + Nanos::from_secs(60);
    let rested = rate_of(&mut ssd, &mut now, 10_000);
    let rates = [fresh, full, rested];
    assert!(near(fresh, 2_300) && near(full, 600) && near(rested, 2_300), "{rates:?}");
}

#[test]
fn pauses_and_warmth_take_their_share() {
    let plain = Parameters::named("tlc").unwrap();
    let pauses = Parameters { pause_every: 1_000_000_000, pause: Nanos::from_millis(500), ..plain };
    let (mut one, mut now) = (fresh(pauses), Instant::ZERO);
    let slow = rate_of(&mut one, &mut now, 10_000);
    assert!((660..=700).contains(&slow), "{slow} MB/s");
    let thermal = Thermal {
        rise_per_gib: 100_000,
        half_life: Nanos::from_secs(20),
        limit: 1_000,
        throttled_percent: 50,
    };
    let (mut one, mut now) = (fresh(Parameters { thermal: Some(thermal), ..plain }), Instant::ZERO);
    let warm = rate_of(&mut one, &mut now, 10_000);
    assert!(near(warm, 500) && one.percent() == 50, "{warm} MB/s");
}

/// A read of a die that programs waits for the suspension, not for the program.
#[test]
fn a_read_suspends_a_program() {
    let parameters = Parameters { array_spread: Nanos::ZERO, ..Parameters::named("tlc").unwrap() };
    let mut one = fresh(parameters);
    let idle = one.read(Instant::ZERO, 0, 4096, |_, _, _| ()) - Instant::ZERO;
    let mut one = fresh(parameters);
    one.write(Instant::ZERO, 0, 16 << 20);
    let busy = one.read(Instant::ZERO, 0, 4096, |_, _, _| ()) - Instant::ZERO;
    assert_eq!(busy, idle + parameters.suspend);
    assert!(parameters.program > parameters.suspend * 2);
}

/// Overwriting at random moves data; overwriting in order moves none.
#[test]
fn random_overwrites_of_a_full_disk_are_slower() {
    let parameters = Parameters {
        capacity: 10_000_000_000,
        spare: 700_000_000,
        direct: u64::MAX,
        ..Parameters::named("tlc").unwrap()
    };
    let rate = |scattered| {
        let (mut one, mut now) = (fresh(parameters).aged(scattered), Instant::ZERO);
        let mut rng = Rng::from_seed(2);
        for number in 0..200_000_u64 {
            let sector = if scattered { rng.below(2_000_000) } else { number };
            now = one.write(now, sector * 4096, 4096);
        }
        200_000 * 4096 * 1000 / (now - Instant::ZERO).get()
    };
    let (in_order, random) = (rate(false), rate(true));
    assert!(random * 4 < in_order && random > 0, "{random} and {in_order} MB/s");
}

/// Compares each preset with its data sheet, within 10 %, and prints both.
#[test]
fn presets_are_as_their_data_sheets() {
    for sheet in &SHEETS {
        for (what, published, ours, unit) in drive::beside(sheet, 1) {
            let Some(published) = published else { continue };
            println!("{:12} {what:32} {published:>9} {ours:>9} {unit}", sheet.model);
            assert!(ours.abs_diff(published) * 10 <= published, "{} {what}: {ours}", sheet.model);
        }
    }
}

/// The model matches the plan for a preset.
#[test]
fn a_plan_is_as_the_model() {
    let parameters = Parameters::named("970-evo").unwrap();
    let steps = parameters.steps();
    let (mut one, mut now) = (fresh(parameters), Instant::ZERO);
    let device = plan::Device { steps: &steps, pause_every: 0, pause: Nanos::ZERO };
    let ours = rate_of(&mut one, &mut now, 40_000);
    let emptied = plan::time_to_write(&device, 40_000_000_000).expect("an end");
    let said = 40_000_000_000_000 / emptied.get();
    assert!(near(ours, said), "{ours} MB/s, {said} planned");
}

#[test]
fn the_largest_flash_is_no_faster_than_the_controller() {
    let base = Parameters::named("tlc").unwrap();
    let largest = Parameters { page: 1 << 20, planes: 32, channels: 32, dies: 32, ..base };
    assert!(largest.steps().iter().all(|step| step.rate > 0 && step.rate <= base.write_rate));
}
