//! Every setting, with its value and where the value comes from.

use huddle::config::{Complaint, OPTIONS, RawEnvironment, prefix_of};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::path::Path;

/// The settings as the report has them. `cache` is the directory of the files that jobs keep, if they keep any.
pub fn all(raw: &RawEnvironment, complaints: &[Complaint], cache: Option<&Path>) -> Value {
    let default = match cache {
        Some(directory) => format!("default: {}", directory.display()),
        None => "default, and there is no home directory: nothing is kept".to_owned(),
    };
    let prefix = prefix_of(std::env::current_exe().ok(), 2);
    let options: Vec<Value> = OPTIONS
        .iter()
        .map(|option| {
            let is_blank = |value: &OsStr| value.to_str().is_some_and(|text| text.trim().is_empty());
            let set = raw.variables().find(|(name, value)| *name == option.name && !is_blank(value));
            let complaint =
                complaints.iter().find(|complaint| complaint.is_about(option.name)).map(|found| found.below(&prefix));
            let (value, origin) = match (set, &complaint) {
                (Some((_, value)), None) if ["HUDDLE_NODE_RANKS", "HUDDLE_NODE_ORDER"].contains(&option.name) => {
                    (value.to_string_lossy(), "environment, for jobs: here --nodes holds")
                }
                (Some((_, value)), None) => (value.to_string_lossy(), "environment"),
                (Some(_), Some(_)) => (option.default.into(), "default, because the environment's value is wrong"),
                (None, _) if option.name == "HUDDLE_CACHE" => (option.default.into(), default.as_str()),
                (None, _) => (option.default.into(), "default"),
            };
            json!({ "name": option.name, "value": value, "origin": origin, "complaint": complaint })
        })
        .collect();
    let known = |name: &str| OPTIONS.iter().any(|option| option.name == name);
    let unknown: Vec<String> =
        raw.variables().map(|(name, _)| name).filter(|name| !known(name)).map(str::to_owned).collect();
    json!({ "options": options, "unknown": unknown })
}
