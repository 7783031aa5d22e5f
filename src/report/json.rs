//! The report over all ranks, as JSON.

use super::{Cell, Outcome, Reason, Tally};
use crate::coll::REGISTRY;
use crate::kept;
use crate::log;
use crate::types::Collective;
use serde_json::{Map, Value, json};
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// What a job did, for [`Report::to_json`].
#[derive(Clone, Debug)]
pub struct Report {
    /// The version of huddle.
    pub version: String,
    /// The build id of rank 0's engine.
    pub build: Option<String>,
    /// Name and version of the MPI library.
    pub mpi: String,
    /// Number of ranks in `MPI_COMM_WORLD`.
    pub ranks: usize,
    /// Number of nodes on which the ranks run; unknown, and null in JSON, if huddle did nothing on several ranks.
    pub nodes: Option<usize>,
    /// Why huddle did nothing, if it was not active.
    pub inactive: Option<Reason>,
    /// The counters, summed over ranks.
    pub counters: Tally,
    /// Calls of collectives that huddle does not serve, summed over ranks, by the full name of the function.
    pub unserved: Vec<(String, u64)>,
}

impl Report {
    /// As JSON, with the fields that docs/REPORT.md explains to users.
    pub fn to_json(&self) -> Value {
        let collectives: Map<String, Value> = Collective::ALL
            .into_iter()
            .map(|collective| (collective.name().to_owned(), self.collective_json(collective)))
            .collect();
        let unserved: Map<String, Value> =
            self.unserved.iter().map(|(name, calls)| (name.clone(), json!(calls))).collect();
        json!({
            "huddle": self.version,
            "build": self.build,
            "mpi": self.mpi,
            "ranks": self.ranks,
            "nodes": self.nodes,
            "active": self.inactive.is_none(),
            "reason": self.inactive.map(Reason::name),
            "collectives": collectives,
            "unserved": unserved,
        })
    }

    fn collective_json(&self, collective: Collective) -> Value {
        let (mut accelerated, mut declined) = (0, 0);
        let (mut by_algorithm, mut by_reason) = (Vec::new(), Vec::new());
        for Cell { outcome, class, calls, bytes } in self.counters.cells() {
            match outcome {
                _ if outcome.collective() != collective => {}
                Outcome::Accelerated(row) => {
                    accelerated += calls;
                    let algorithm = REGISTRY[row].name;
                    by_algorithm.push(
                        json!({"algorithm": algorithm, "size_class": class.name(), "calls": calls, "bytes": bytes}),
                    );
                }
                Outcome::Declined(_, reason) => {
                    declined += calls;
                    by_reason.push(json!({"reason": reason.name(), "size_class": class.name(), "calls": calls}));
                }
            }
        }
        json!({
            "accelerated": accelerated,
            "declined": declined,
            "by_algorithm": by_algorithm,
            "by_reason": by_reason,
        })
    }

    /// Writes the report; a failure is one line, and the program runs on. Readers see the old file or the whole new
    /// one.
    pub fn write(&self, path: &Path) {
        let text = format!("{:#}\n", self.to_json());
        if let Err(error) = replace(path, text.as_bytes()) {
            log::error(format_args!("can't write the report to {}: {error}", path.display()));
        }
    }
}

/// Why a report can't be written to `path`, if that can be found out before there is a report. Leaves no file.
pub fn obstacle(path: &Path) -> Option<io::Error> {
    let path = destination(path);
    match fs::metadata(&path) {
        Ok(found) if found.is_dir() => return Some(io::ErrorKind::IsADirectory.into()),
        Ok(found) if !found.is_file() => return None,
        _ => {}
    }
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // The file has no name, so it is gone when it is closed. Some file systems have no such files, and say so after
    // they have checked the permissions.
    let unnamed = fs::OpenOptions::new().write(true).custom_flags(libc::O_TMPFILE).open(directory);
    unnamed.err().filter(|error| {
        use io::ErrorKind::{NotADirectory, NotFound, PermissionDenied, ReadOnlyFilesystem};
        matches!(error.kind(), NotADirectory | NotFound | PermissionDenied | ReadOnlyFilesystem)
    })
}

/// Puts `contents` in place of the file at `path`. What is not a regular file (a terminal, a pipe, `/dev/null`) is
/// written to instead.
fn replace(path: &Path, contents: &[u8]) -> io::Result<()> {
    let path = destination(path);
    if fs::metadata(&path).is_ok_and(|found| !found.is_file()) {
        return fs::OpenOptions::new().write(true).open(&path)?.write_all(contents);
    }
    kept::replace(&path, contents)
}

/// The file to replace: a link stays, and the file to which it leads is replaced.
fn destination(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::Counters;
    use super::*;
    use crate::coll;
    use crate::types::Bytes;
    use std::collections::BTreeSet;

    fn report() -> Report {
        let counters = Counters::new();
        let flat = coll::find(Collective::Allreduce, "flat").unwrap();
        for _ in 0..3 {
            counters.record(Outcome::Accelerated(flat), Bytes(8));
        }
        counters.record(Outcome::Declined(Collective::Allreduce, Reason::WarmUp), Bytes(8));
        Report {
            version: "0.1.0".to_owned(),
            build: None,
            mpi: "Some MPI 4.1".to_owned(),
            ranks: 4,
            nodes: Some(1),
            inactive: None,
            counters: counters.tally(),
            unserved: vec![("MPI_Gather".to_owned(), 3)],
        }
    }

    #[test]
    fn the_format() {
        let json = report().to_json();
        assert_eq!(json["huddle"], "0.1.0");
        assert_eq!((&json["active"], &json["reason"]), (&json!(true), &Value::Null));
        assert_eq!(
            json["collectives"]["Allreduce"],
            json!({
                "accelerated": 3,
                "declined": 1,
                "by_algorithm": [{"algorithm": "flat", "size_class": "<=64", "calls": 3, "bytes": 24}],
                "by_reason": [{"reason": "warm-up", "size_class": "<=64", "calls": 1}],
            })
        );
        let nothing = json!({"accelerated": 0, "declined": 0, "by_algorithm": [], "by_reason": []});
        assert_eq!(json["collectives"]["Scatter"], nothing);
        assert_eq!(json["collectives"].as_object().unwrap().len(), Collective::ALL.len());
        assert_eq!(json["unserved"], json!({"MPI_Gather": 3}));
        let inactive = Report { inactive: Some(Reason::NoSharedMemory), ..report() }.to_json();
        assert_eq!((&inactive["active"], &inactive["reason"]), (&json!(false), &json!("no-shared-memory")));
    }

    /// A directory of this test's own, removed at its end.
    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("huddle-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// The report that docs/REPORT.md shows as its example.
    fn example() -> Report {
        let counters = Counters::new();
        let flat = coll::find(Collective::Allreduce, "flat").unwrap();
        (0..4 * 29).for_each(|_| counters.record(Outcome::Accelerated(flat), Bytes(8)));
        (0..4 * 2).for_each(|_| counters.record(Outcome::Declined(Collective::Allreduce, Reason::WarmUp), Bytes(8)));
        Report {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            build: Some("6c49ecfe4037c1bc616d480f52061ba91bb0c3f2".to_owned()),
            mpi: "Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4, repo rev: v4.1.4, May 26, 2022".to_owned(),
            counters: counters.tally(),
            unserved: vec![("MPI_Gather".to_owned(), 4)],
            ..report()
        }
    }

    /// The fields of a report as the page names them: `collectives.<name>.by_algorithm[].calls`.
    fn fields(value: &Value, at: &str, found: &mut BTreeSet<String>) {
        let Value::Object(members) = value else { return };
        for (name, member) in members {
            let name = if ["collectives", "unserved"].contains(&at) { "<name>" } else { name };
            let field = if at.is_empty() { name.to_owned() } else { format!("{at}.{name}") };
            if let Value::Array(elements) = member {
                found.insert(format!("{field}[]"));
                elements.iter().for_each(|element| fields(element, &format!("{field}[]"), found));
            } else {
                fields(member, &field, found);
                found.insert(field);
            }
        }
    }

    #[test]
    fn the_page_tells_of_the_reports_that_are_written() {
        let page = include_str!("../../docs/REPORT.md");
        let directory = Directory::new("example");
        let path = directory.0.join("report.json");
        example().write(&path);
        let written = fs::read_to_string(&path).unwrap();
        let shown = page.split_once("```json\n").and_then(|(_, rest)| rest.split_once("```")).unwrap().0;
        assert_eq!(shown, written);

        let mut found = BTreeSet::new();
        fields(&serde_json::from_str(&written).unwrap(), "", &mut found);
        let rows = page.lines().filter_map(|line| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned()));
        assert_eq!(rows.collect::<BTreeSet<_>>(), found);

        let classes = (0..Counters::LENGTH).map(|index| Counters::name(index).unwrap().to_string());
        let classes: BTreeSet<String> = classes.map(|name| name.rsplit('.').nth(1).unwrap().to_owned()).collect();
        assert!(classes.iter().all(|class| page.contains(&format!("`{class}`"))), "{classes:?}");
    }

    #[test]
    fn files_are_replaced_whole_and_nothing_else_is_left() {
        let directory = Directory::new("replace");
        let path = directory.0.join("report.json");
        fs::write(&path, "old and much longer than the new contents").unwrap();
        let link = directory.0.join("link.json");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        replace(&link, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_dir(&directory.0).unwrap().count(), 2);
    }

    #[test]
    fn a_link_at_the_temporary_name_is_not_followed() {
        let directory = Directory::new("planted");
        let (path, victim) = (directory.0.join("report.json"), directory.0.join("victim"));
        fs::write(&victim, "precious").unwrap();
        std::os::unix::fs::symlink(&victim, kept::before_renaming(&destination(&path))).unwrap();
        report().write(&path);
        assert!(fs::read_to_string(&path).unwrap().starts_with('{'));
        assert_eq!(fs::read(&victim).unwrap(), b"precious");
        assert_eq!(fs::read_dir(&directory.0).unwrap().count(), 2);
    }

    #[test]
    fn devices_are_written_to() {
        replace(Path::new("/dev/null"), b"gone").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }

    #[test]
    fn what_is_in_the_way_of_a_report_shows_before_there_is_one() {
        let directory = Directory::new("obstacle");
        let path = directory.0.join("report.json");
        assert!(obstacle(&path).is_none());
        assert!(obstacle(Path::new("/dev/null")).is_none());
        assert_eq!(obstacle(&directory.0.join("missing/report.json")).unwrap().kind(), io::ErrorKind::NotFound);
        assert_eq!(obstacle(&directory.0).unwrap().kind(), io::ErrorKind::IsADirectory);
        assert_eq!(fs::read_dir(&directory.0).unwrap().count(), 0);
        fs::write(&path, "old").unwrap();
        assert!(obstacle(&path).is_none());
        assert_eq!(obstacle(&path.join("report.json")).unwrap().kind(), io::ErrorKind::NotADirectory);
        assert_eq!(fs::read(&path).unwrap(), b"old");
    }

    #[test]
    fn a_failure_leaves_nothing() {
        let directory = Directory::new("failure");
        assert!(replace(&directory.0.join("missing/report.json"), b"new").is_err());
        assert!(replace(&directory.0, b"new").is_err());
        assert_eq!(fs::read_dir(&directory.0).unwrap().count(), 0);
    }
}
