//! The `HUDDLE_*` variables as they were found, before anyone interprets them.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// What all variables of huddle start with.
pub(super) const PREFIX: &str = "HUDDLE_";

/// All `HUDDLE_*` variables of a process that all ranks should agree on, sorted by name.
///
/// A variable that may legitimately differ between ranks would be left out here; there is none so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawEnvironment {
    variables: Vec<(String, OsString)>,
}

impl RawEnvironment {
    /// From names and values in any order. Names of other programs are ignored; of equal names the last one holds.
    pub fn new<'a, V: AsRef<OsStr> + ?Sized + 'a>(variables: impl IntoIterator<Item = (&'a str, &'a V)>) -> Self {
        let ours: std::collections::BTreeMap<_, _> =
            variables.into_iter().filter(|(name, _)| name.starts_with(PREFIX)).collect();
        let owned = |(name, value): (&str, &V)| (name.to_owned(), value.as_ref().to_owned());
        Self { variables: ours.into_iter().map(owned).collect() }
    }

    /// The variables of this process. Bytes of names that are not UTF-8 are replaced.
    pub fn from_process() -> Self {
        let all: Vec<_> =
            std::env::vars_os().map(|(name, value)| (name.to_string_lossy().into_owned(), value)).collect();
        Self::new(all.iter().map(|(name, value)| (name.as_str(), value)))
    }

    /// Names and values, sorted by name.
    pub fn variables(&self) -> impl Iterator<Item = (&str, &OsStr)> {
        self.variables.iter().map(|(name, value)| (name.as_str(), value.as_os_str()))
    }

    /// For sending: `name=value`, each closed by a zero byte, which neither can hold.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.variables
            .iter()
            .flat_map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes(), b"\0"].concat())
            .collect()
    }

    /// The inverse of [`RawEnvironment::to_bytes`]; `None` where the bytes come from something else.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        if bytes.last().is_some_and(|last| *last != 0) {
            return None;
        }
        let pair = |entry: &'_ [u8]| -> Option<(String, OsString)> {
            let end = entry.iter().position(|byte| *byte == b'=')?;
            let name = std::str::from_utf8(&entry[..end]).ok()?;
            Some((name.to_owned(), OsStr::from_bytes(&entry[end + 1..]).to_owned()))
        };
        let entries = bytes.split(|byte| *byte == 0).filter(|entry| !entry.is_empty());
        let pairs: Vec<_> = entries.map(pair).collect::<Option<_>>()?;
        Some(Self::new(pairs.iter().map(|(name, value)| (name.as_str(), value))))
    }

    /// The first variable, by name, whose value here differs from rank 0's value, which holds: as text for one line.
    /// `None` if all are equal.
    pub fn differs_from(&self, agreed: &Self) -> Option<String> {
        let value_of = |environment: &Self, name: &str| {
            environment.variables().find(|(other, _)| *other == name).map(|(_, value)| value.to_owned())
        };
        let describe = |value: Option<OsString>| value.map_or_else(|| "unset".to_owned(), |value| format!("{value:?}"));
        let mut names: Vec<&str> = self.variables().chain(agreed.variables()).map(|(name, _)| name).collect();
        names.sort_unstable();
        names.into_iter().find_map(|name| {
            let (here, there) = (value_of(self, name), value_of(agreed, name));
            (here != there).then(|| format!("{name} is {} here and {} on rank 0", describe(here), describe(there)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_ours_and_sorted() {
        let raw = RawEnvironment::new([("HUDDLE_B", "1"), ("PATH", "/bin"), ("HUDDLE_A", "2")]);
        let expected = [("HUDDLE_A", OsStr::new("2")), ("HUDDLE_B", OsStr::new("1"))];
        assert_eq!(raw.variables().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn the_first_difference_is_named() {
        let zero = RawEnvironment::new([("HUDDLE_A", "1"), ("HUDDLE_C", "3")]);
        let same = zero.clone();
        let more = RawEnvironment::new([("HUDDLE_A", "1"), ("HUDDLE_B", "2"), ("HUDDLE_C", "3")]);
        let other = RawEnvironment::new([("HUDDLE_A", "1"), ("HUDDLE_C", "4")]);
        assert_eq!(same.differs_from(&zero), None);
        assert_eq!(more.differs_from(&zero).unwrap(), r#"HUDDLE_B is "2" here and unset on rank 0"#);
        assert_eq!(zero.differs_from(&more).unwrap(), r#"HUDDLE_B is unset here and "2" on rank 0"#);
        assert_eq!(other.differs_from(&zero).unwrap(), r#"HUDDLE_C is "4" here and "3" on rank 0"#);
    }

    #[test]
    fn foreign_bytes_are_refused() {
        assert_eq!(RawEnvironment::from_bytes(b""), Some(RawEnvironment::default()));
        assert_eq!(RawEnvironment::from_bytes(b"HUDDLE_A=1"), None);
        assert_eq!(RawEnvironment::from_bytes(b"HUDDLE_A\0"), None);
        assert_eq!(RawEnvironment::from_bytes(b"\xff\0"), None);
        assert_eq!(RawEnvironment::from_bytes(b"HUDDLE_\xff=1\0"), None);
    }

    proptest! {
        #[test]
        fn bytes_and_back(values in proptest::collection::vec(proptest::collection::vec(1..=255_u8, 0..12), 0..6)) {
            let names: Vec<String> = (0..values.len()).map(|index| format!("HUDDLE_{index}")).collect();
            let values = values.iter().map(|value| OsStr::from_bytes(value));
            let raw = RawEnvironment::new(names.iter().map(String::as_str).zip(values));
            prop_assert_eq!(RawEnvironment::from_bytes(&raw.to_bytes()), Some(raw));
        }
    }
}
