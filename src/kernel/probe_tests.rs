//! Measuring, and the text in which results are sent and kept.

use super::*;

fn all_rates(probed: &Probed) -> Vec<f64> {
    [probed.copy, probed.light, probed.heavy].into_iter().flat_map(Rates::to_array).collect()
}

#[test]
fn a_measurement_is_complete_and_survives_the_way() {
    let started = Instant::now();
    let probed = Probed::measure();
    println!("{:?}: {}", started.elapsed(), String::from_utf8_lossy(&probed.to_bytes()));
    assert!(probed.level.is_available());
    let [private, slot] = probed.copies;
    let may_serve = |kernel: &&CopyKernel| kernel.stores != Stores::Streaming && kernel.level.is_available();
    assert!(private.iter().chain(&slot).all(may_serve), "{probed:?}");
    assert!(private[2..].iter().chain(&slot[1..]).all(|kernel| kernel.stores == Stores::WholeLines), "{probed:?}");
    // From a thousandth to a thousand bytes per nanosecond: what is outside was not measured.
    assert!(all_rates(&probed).into_iter().all(|rate| (1e-3..=1e3).contains(&rate)), "{probed:?}");
    assert_eq!(Probed::from_bytes(&probed.to_bytes()), Some(probed));
}

#[test]
fn the_defaults_survive_the_way() {
    let default = Probed::default();
    assert_eq!(Probed::from_bytes(&default.to_bytes()), Some(default));
}

#[test]
fn what_is_damaged_is_refused() {
    let good = String::from_utf8(Probed::default().to_bytes()).expect("JSON");
    let damages = [
        ("\"libc\"", "\"lib\""),
        ("\"libc\"", "7"),
        ("\"level\"", "\"lever\""),
        ("\"memory\":6.0", "\"memory\":-6.0"),
        ("\"memory\":6.0", "\"memory\":null"),
        ("\"llc\":16777216", "\"llc\":0"),
        ("{", "["),
        ("}", ""),
    ];
    for (from, to) in damages {
        let bad = good.replacen(from, to, 1);
        assert_ne!(bad, good, "{from}");
        assert_eq!(Probed::from_bytes(bad.as_bytes()), None, "{bad}");
    }
    assert_eq!(Probed::from_bytes(b""), None);
}

#[test]
fn what_is_put_to_use_serves() {
    Probed { level: Level::Baseline, ..Probed::default() }.put_to_use();
    assert_eq!(Probed::in_use().level, Level::Baseline);
    Probed::default().put_to_use();
    assert_eq!(Probed::in_use().level, Level::Baseline, "the first one stays");
}
