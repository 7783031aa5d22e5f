//! Files and links that documents name exist.

use std::path::{Path, PathBuf};

fn documents() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let entries = ["", "docs", "docs/machines"].iter().flat_map(|directory| root.join(directory).read_dir().unwrap());
    entries.map(|entry| entry.unwrap().path()).filter(|path| path.extension().is_some_and(|end| end == "md")).collect()
}

/// Whether a word is the path of a file in the repository, and not a pattern or the path of something that is built.
fn is_path(word: &str) -> bool {
    let top = word.split_once('/').map_or("", |(top, _)| top);
    let is_ours = !["", "target"].contains(&top) && Path::new(env!("CARGO_MANIFEST_DIR")).join(top).is_dir();
    is_ours && !word.contains(['*', '<', '{'])
}

#[test]
fn files_that_documents_name_are_there() {
    let mut checked = 0;
    for document in documents() {
        let text = std::fs::read_to_string(&document).unwrap();
        for code in text.lines().flat_map(|line| line.split('`').skip(1).step_by(2)) {
            let Some(word) = code.split_whitespace().next().filter(|word| is_path(word)) else { continue };
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(word);
            assert!(path.exists(), "{}: no {word}", document.display());
            checked += 1;
        }
    }
    assert!(checked > 50);
}

/// The targets of the links of a page.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target)
}

/// scripts/install copies pages into one directory, without the sources, so their links must stay within it.
#[test]
fn links_of_installed_pages_lead_to_installed_pages() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let script = std::fs::read_to_string(root.join("scripts/install")).unwrap();
    let (_, rest) = script.split_once("for page in ").unwrap();
    let pages: Vec<&str> = rest.split(';').next().unwrap().split_whitespace().collect();
    assert!(pages.len() > 3);
    for page in &pages {
        let text = std::fs::read_to_string(root.join(format!("docs/{page}.md"))).unwrap();
        for target in links(&text) {
            let path = target.split('#').next().unwrap();
            let file = path.strip_suffix(".md").unwrap_or(path);
            assert!(
                target.contains("://") || file.is_empty() || pages.contains(&file),
                "{page}: {target} is not installed"
            );
        }
        let others = ["REPORT", "ALGORITHMS", "LIMITS", "ENVIRONMENT"].map(|name| format!("docs/{name}.md"));
        assert!(!others.iter().any(|other| text.contains(other)), "{page}: names a page beside it by another path");
    }
}

#[test]
fn links_of_documents_lead_somewhere() {
    let mut checked = 0;
    for document in documents() {
        let text = std::fs::read_to_string(&document).unwrap();
        for target in links(&text) {
            let file = target.split('#').next().unwrap();
            if !file.is_empty() && !target.contains("://") {
                assert!(document.with_file_name(file).exists(), "{}: no {target}", document.display());
                checked += 1;
            }
        }
    }
    assert!(checked > 20);
}
