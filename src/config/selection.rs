//! Which algorithm the user wants for a collective, by size: `tree`, `tree:radix=4`, `<=8K:flat,<=256K:tree,tiled`.

use super::value;
use crate::coll::{self, Knob, Knobs, Row, Takes};
use crate::types::{Bytes, Collective};
use std::fmt;

/// Leave it to huddle.
const AUTO: &str = "auto";
/// Leave it to the native library.
const NATIVE: &str = "native";
/// How an entry begins that holds up to a size.
const UP_TO: &str = "<=";
/// What the user wants for one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// huddle chooses.
    Auto,
    /// The native library.
    Native,
    /// This algorithm.
    Row(Setting),
}

/// An algorithm and the values of its knobs that are set: by the user ([`Pick::Row`]), or by the models (`tune::Map`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Index in [`coll::REGISTRY`].
    pub row: usize,
    /// The knobs that are set; the plan of a call says the rest.
    pub knobs: Knobs,
}

impl fmt::Display for Setting {
    /// As users write it: `tree:radix=4:class=knomial`, with the knobs that the algorithm has and somebody set.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = &coll::REGISTRY[self.row];
        f.write_str(row.name)?;
        for knob in row.knobs {
            match (self.knobs.set(*knob), knob.takes()) {
                (None, _) => {}
                (Some(value), Takes::Word(words)) => {
                    write!(f, ":{}={}", knob.name(), words.get(value as usize - 1).unwrap_or(&"?"))?;
                }
                (Some(value), Takes::Number(_) | Takes::Size(_)) => write!(f, ":{}={value}", knob.name())?,
            }
        }
        Ok(())
    }
}

/// What the user wants for a collective: picks for sizes up to ascending bounds, [`Pick::Auto`] above the last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    ranges: Vec<(Bytes, Pick)>,
}

impl Selection {
    /// The pick for a call of that many bytes, counted as in [`Plan::bytes`](crate::coll::Plan).
    #[inline]
    pub fn pick(&self, bytes: Bytes) -> Pick {
        self.ranges.iter().find(|(up_to, _)| bytes <= *up_to).map_or(Pick::Auto, |(_, pick)| *pick)
    }

    /// Whether calls of all sizes are left to the native library.
    pub fn is_native(&self) -> bool {
        let is_native = |(_, pick): &(Bytes, Pick)| *pick == Pick::Native;
        self.ranges.iter().all(is_native) && self.pick(Bytes(usize::MAX)) == Pick::Native
    }

    /// Whether calls of some sizes are left to the native library.
    pub fn may_be_native(&self) -> bool {
        self.ranges.iter().any(|(_, pick)| *pick == Pick::Native)
    }

    /// The most leaders with which an algorithm is forced; 0 if no forced algorithm says how many.
    pub(super) fn leaders(&self) -> u32 {
        let leaders = |pick: &Pick| if let Pick::Row(forced) = pick { forced.knobs.get(Knob::Leaders) } else { 0 };
        self.ranges.iter().map(|(_, pick)| leaders(pick)).max().unwrap_or(0)
    }

    /// Parses a user's text; an error says what is wrong with it.
    pub(super) fn parse(text: &str, collective: Collective) -> Result<Self, String> {
        let mut ranges: Vec<(Bytes, Pick)> = Vec::new();
        for entry in text.split(',').map(str::trim) {
            let (up_to, rest) = bound(entry)?;
            match ranges.last() {
                Some((Bytes(usize::MAX), _)) => {
                    return Err(format!("{entry:?} follows an entry for all sizes"));
                }
                Some((before, _)) if *before >= up_to => {
                    return Err(format!("{entry:?} does not exceed its predecessor"));
                }
                _ => ranges.push((up_to, pick(rest, collective)?)),
            }
        }
        // huddle chooses above the last bound anyway, so both ways to say that give the same selection.
        ranges.pop_if(|range| *range == (Bytes(usize::MAX), Pick::Auto));
        Ok(Self { ranges })
    }

    /// The values that a user may write, as text for people.
    pub(super) fn syntax(collective: Collective) -> String {
        let names = [AUTO.to_owned(), NATIVE.to_owned()].into_iter();
        let names: Vec<_> = names.chain(coll::rows_of(collective).map(|(_, row)| syntax_of(row))).collect();
        let all = names.join(", ");
        match names.get(2) {
            // All barriers have one size.
            Some(first) if collective != Collective::Barrier => {
                format!("{all}; by size as in {UP_TO}8K:{first},{NATIVE}")
            }
            _ => all,
        }
    }
}

/// A row's name with its knobs.
pub(super) fn syntax_of(row: &Row) -> String {
    let knobs: String = row.knobs.iter().map(|knob| format!("[:{}]", syntax_of_knob(*knob))).collect();
    format!("{}{knobs}", row.name)
}

fn syntax_of_knob(knob: Knob) -> String {
    let values = match knob.takes() {
        Takes::Number(_) => "N".to_owned(),
        Takes::Size(_) => "SIZE".to_owned(),
        Takes::Word(words) => words.join("|"),
    };
    format!("{}={values}", knob.name())
}

/// What an entry for a collective may begin with.
fn names(collective: Collective) -> Vec<&'static str> {
    [AUTO, NATIVE].into_iter().chain(coll::rows_of(collective).map(|(_, row)| row.name)).collect()
}

/// Splits `<=SIZE:rest`; entries without a bound hold for all sizes.
fn bound(entry: &str) -> Result<(Bytes, &str), String> {
    let Some(bounded) = entry.strip_prefix(UP_TO) else {
        return Ok((Bytes(usize::MAX), entry));
    };
    let Some((size, rest)) = bounded.split_once(':') else {
        return Err(format!("{entry:?} has no algorithm after its size"));
    };
    match value::size(size.trim()) {
        Some(up_to) if up_to < Bytes(usize::MAX) => Ok((up_to, rest)),
        _ => Err(format!("{size:?} is not a size such as 512, 8K or 1M")),
    }
}

/// `name` or `name:knob=value:…`
fn pick(text: &str, collective: Collective) -> Result<Pick, String> {
    let mut parts = text.split(':').map(str::trim);
    let name = parts.next().unwrap_or_default();
    let pick = match name {
        AUTO => Pick::Auto,
        NATIVE => Pick::Native,
        _ => match coll::find(collective, name) {
            Some(row) => Pick::Row(Setting { row, knobs: Knobs::UNSET }),
            None => return Err(format!("no algorithm {name:?}; valid: {}", names(collective).join(", "))),
        },
    };
    parts.try_fold(pick, |pick, part| match pick {
        Pick::Row(setting) => turn(setting, part).map(Pick::Row),
        Pick::Auto | Pick::Native => Err(format!("{name:?} takes no {part:?}; it has no knobs")),
    })
}

/// Sets one more knob of the algorithm, from a text `knob=value`.
fn turn(setting: Setting, part: &str) -> Result<Setting, String> {
    let row = &coll::REGISTRY[setting.row];
    let (name, text) = part.split_once('=').unwrap_or((part, ""));
    let Some(knob) = row.knobs.iter().find(|knob| knob.name() == name) else {
        let knobs: Vec<String> = row.knobs.iter().map(|knob| syntax_of_knob(*knob)).collect();
        let valid =
            if knobs.is_empty() { "it has no knobs".to_owned() } else { format!("valid: {}", knobs.join(", ")) };
        return Err(format!("{:?} takes no {part:?}; {valid}", row.name));
    };
    Ok(Setting { knobs: setting.knobs.with(*knob, value_of(*knob, text)?), ..setting })
}

/// The value of a knob, never 0.
fn value_of(knob: Knob, text: &str) -> Result<u32, String> {
    /// Steps between nodes pass their number of bytes to MPI as an `int`.
    const MOST: u32 = 1 << 30;
    let name = knob.name();
    match knob.takes() {
        Takes::Number(most) => value::number(text)
            .filter(|number| (1..=most).contains(number))
            .ok_or_else(|| format!("{name} is from 1 to {most}, not {text:?}")),
        Takes::Size(least) => value::size(text)
            .and_then(|size| u32::try_from(size.0).ok())
            .filter(|size| (least..=MOST).contains(size))
            .ok_or_else(|| format!("{name} is a size from {least} to 1G, not {text:?}")),
        Takes::Word(words) => words
            .iter()
            .zip(1..)
            .find_map(|(word, value)| (*word == text).then_some(value))
            .ok_or_else(|| format!("{name} is one of {}, not {text:?}", words.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLLECTIVE: Collective = Collective::Allreduce;

    fn row(name: &str, knobs: Knobs) -> Pick {
        Pick::Row(Setting { row: coll::find(COLLECTIVE, name).unwrap(), knobs })
    }

    fn parse(text: &str) -> Selection {
        Selection::parse(text, COLLECTIVE).unwrap()
    }

    #[test]
    fn one_name_holds_for_all_sizes() {
        assert_eq!(parse("flat").pick(Bytes(usize::MAX)), row("flat", Knobs::UNSET));
        assert_eq!(parse("tree:radix=4").pick(Bytes(1)), row("tree", Knobs::UNSET.with(Knob::Radix, 4)));
        assert_eq!(parse("tiled:tile=4K").pick(Bytes(1)), row("tiled", Knobs::UNSET.with(Knob::Tile, 4096)));
        assert_eq!(parse("native").pick(Bytes(1)), Pick::Native);
        assert_eq!(parse("auto").pick(Bytes(1)), Pick::Auto);
    }

    #[test]
    fn picks_are_printed_as_they_are_written() {
        for text in ["flat", "tree:radix=4", "tree:radix=2:class=knomial", "tiled:tile=4096"] {
            let Pick::Row(forced) = parse(text).pick(Bytes(1)) else { panic!("{text}") };
            assert_eq!(forced.to_string(), text);
        }
    }

    #[test]
    fn ranges_hold_up_to_their_bounds() {
        let selection = parse("<=8K:flat, <=256K:tree:radix=4 ,tiled");
        assert_eq!(selection.pick(Bytes(8192)), row("flat", Knobs::UNSET));
        assert_eq!(selection.pick(Bytes(8193)), row("tree", Knobs::UNSET.with(Knob::Radix, 4)));
        assert_eq!(selection.pick(Bytes(256 << 10)), row("tree", Knobs::UNSET.with(Knob::Radix, 4)));
        assert_eq!(selection.pick(Bytes((256 << 10) + 1)), row("tiled", Knobs::UNSET));
    }

    #[test]
    fn above_the_last_bound_huddle_chooses() {
        assert_eq!(parse("<=8K:native").pick(Bytes(8193)), Pick::Auto);
        assert_eq!(Selection::default().pick(Bytes(0)), Pick::Auto);
    }

    #[test]
    fn mistakes_are_named() {
        let mistakes = [
            (
                "trea",
                r#"no algorithm "trea"; valid: auto, native, flat, tree, tiled, cyclic, hierarchical, relay, dissemination"#,
            ),
            ("flat,tree", r#""tree" follows an entry for all sizes"#),
            ("<=8K:flat,<=8K:tree", r#""<=8K:tree" does not exceed its predecessor"#),
            ("<=8K", r#""<=8K" has no algorithm after its size"#),
            ("<=8X:flat", r#""8X" is not a size such as 512, 8K or 1M"#),
            ("flat:radix=4", r#""flat" takes no "radix=4"; valid: chunk=SIZE, leaders=N"#),
            ("native:radix=4", r#""native" takes no "radix=4"; it has no knobs"#),
            ("tree:radix", r#"radix is from 1 to 256, not """#),
            ("tree:radix=0", r#"radix is from 1 to 256, not "0""#),
            ("tiled:tile=8", r#"tile is a size from 64 to 1G, not "8""#),
            ("tiled:tile=4G", r#"tile is a size from 64 to 1G, not "4G""#),
            ("flat:chunk=2G", r#"chunk is a size from 64 to 1G, not "2G""#),
        ];
        for (text, mistake) in mistakes {
            assert_eq!(Selection::parse(text, COLLECTIVE).unwrap_err(), mistake);
        }
    }

    #[test]
    fn every_row_can_be_forced() {
        for (index, row) in coll::REGISTRY.iter().enumerate() {
            let pick = Selection::parse(row.name, row.collective).unwrap().pick(Bytes(1));
            assert_eq!(pick, Pick::Row(Setting { row: index, knobs: Knobs::UNSET }));
        }
    }
}
