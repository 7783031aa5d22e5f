//! What is chosen for each collective and size, with the predicted time and the reason.

use huddle::coll::{Knob, REGISTRY};
use huddle::config::{Config, Pick};
use huddle::model::{Nanos, Parameters};
use huddle::tune::class::SizeClass;
use huddle::tune::map::{predict, rank};
use huddle::tune::{Agreed, Choice, Map, OperatorClass, Reason, Shape, choose};
use huddle::types::{Bytes, Collective, CommRank, Epoch, OperandOrder};
use serde_json::{Value, json};

/// Stands for the MPI library, which serves what huddle does not.
pub const NATIVE: &str = "native";

/// One size, and what is chosen for it.
struct Entry {
    up_to: Bytes,
    chosen: String,
    why: String,
    time: Option<f64>,
    best: Option<(String, f64)>,
    /// All settings that the models can judge, best first.
    ranking: Value,
}

/// The choices as the report has them: ranges of sizes, by collective.
pub fn all(config: &Config, agreed: &Agreed, parameters: &Parameters) -> Value {
    let map = Map::new(agreed, parameters);
    let idle = idle_reason(config, agreed);
    let collectives: serde_json::Map<String, Value> = Collective::ALL
        .into_iter()
        .map(|collective| {
            let sizes: Vec<Bytes> = match collective {
                Collective::Barrier => vec![Bytes::ZERO],
                // Below 8 bytes nothing changes that a program would notice.
                _ => SizeClass::all().map(SizeClass::judged_at).filter(|size| size.0 >= 8).collect(),
            };
            let entries = sizes.into_iter().map(|bytes| match idle {
                Some(reason) => native(bytes, reason),
                None => entry(collective, bytes, config, agreed, &map, parameters),
            });
            (collective.name().to_owned(), ranges(entries))
        })
        .collect();
    Value::Object(collectives)
}

/// Why a job makes no choice at all; `None` if it makes one.
fn idle_reason(config: &Config, agreed: &Agreed) -> Option<Reason> {
    if config.is_disabled {
        Some(Reason::Disabled)
    } else if agreed.ranks == 1 {
        Some(Reason::SingleRank)
    } else {
        (agreed.largest_node == 1).then_some(Reason::OneRankPerNode)
    }
}

/// The entry of a size that the library serves, whatever the models say.
fn native(up_to: Bytes, reason: Reason) -> Entry {
    Entry { up_to, chosen: NATIVE.to_owned(), why: phrase(reason), time: None, best: None, ranking: json!([]) }
}

/// What a reason means, without a full stop: other text may follow on the line.
fn phrase(reason: Reason) -> String {
    reason.meaning().trim_end_matches('.').to_owned()
}

fn entry(
    collective: Collective,
    bytes: Bytes,
    config: &Config,
    agreed: &Agreed,
    map: &Map,
    parameters: &Parameters,
) -> Entry {
    let is_reduction = collective.is_reduction();
    let shape = Shape {
        collective,
        bytes,
        granule: if is_reduction { Bytes(8) } else { Bytes(1) },
        root: CommRank(0),
        operator: if is_reduction { OperatorClass::Predefined } else { OperatorClass::None },
        order: OperandOrder::Any,
    };
    let ranking = rank(collective, bytes, agreed, parameters);
    let all = ranking.iter().map(|candidate| json!([candidate.setting.to_string(), candidate.cost.0]));
    let all = Value::Array(all.collect());
    let best = ranking.first().map(|best| (best.setting.to_string(), best.cost.0));
    let choice = choose(config, &shape, agreed, map, Epoch(1));
    let overruled = match &choice {
        Choice::RunInstead { forced, need, .. } => {
            let name = REGISTRY[*forced].name;
            Some(format!("{name} is forced, but needs {}; the choice is as without that", need.name()))
        }
        _ => None,
    };
    let is_forced = config.selection(collective).pick(bytes) != Pick::Auto && overruled.is_none();
    let (chosen, why, time) = match choice {
        Choice::Decline(reason) => (NATIVE.to_owned(), phrase(reason), None),
        Choice::Run { row, plan } | Choice::RunInstead { row, plan, .. } => {
            let predicted = predict(row, &plan, agreed, parameters).map(|Nanos(time)| time);
            let setting = match config.selection(collective).pick(bytes) {
                Pick::Row(forced) if forced.row == row => forced,
                _ => map.pick(&shape),
            };
            debug_assert_eq!(REGISTRY[row].collective, collective);
            let chosen = setting.to_string();
            let is_tried = setting.knobs.set(Knob::Try).is_some();
            // A setting that is tried takes about as long as what the models prefer, or less.
            let time = if is_tried && !is_forced { best.as_ref().map(|(_, time)| *time) } else { predicted };
            let why = match &best {
                _ if is_forced => "forced by the environment",
                _ if is_tried && !config.holds_trials => "with HUDDLE_TRIALS=0 calls stay with what try= names",
                _ if is_tried => "slots and memory are both tried, and what calls took decides",
                Some((best, _)) if *best != chosen => "predicted to be about as fast, and waits the least",
                _ => "predicted to be the fastest",
            };
            (chosen, overruled.unwrap_or_else(|| why.to_owned()), time)
        }
    };
    Entry { up_to: bytes, chosen, why, time, best, ranking: all }
}

/// Joins neighbouring sizes with the same choice to ranges.
fn ranges(entries: impl Iterator<Item = Entry>) -> Value {
    let mut ranges: Vec<Value> = Vec::new();
    let mut last: Option<(String, String, Option<String>)> = None;
    for entry in entries {
        let key = (entry.chosen.clone(), entry.why.clone(), entry.best.as_ref().map(|(name, _)| name.clone()));
        let time = json!({
            "bytes": entry.up_to.0,
            "ns": entry.time,
            "best_ns": entry.best.as_ref().map(|(_, time)| time),
            "ranking": entry.ranking,
        });
        match (ranges.last_mut(), last.as_ref() == Some(&key)) {
            (Some(range), true) => {
                range["up_to"] = entry.up_to.0.into();
                if let Some(times) = range["times"].as_array_mut() {
                    times.push(time);
                }
            }
            _ => ranges.push(json!({
                "up_to": entry.up_to.0,
                "algorithm": entry.chosen,
                "why": entry.why,
                "models_prefer": key.2,
                "times": [time],
            })),
        }
        last = Some(key);
    }
    Value::Array(ranges)
}
