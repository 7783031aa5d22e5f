//! The share of processor time that the cgroup of this process grants.

use std::fs;
use std::path::{Path, PathBuf};

/// How many processors' worth of time the cgroup of this process may use, by its own limit and those of its parents as
/// far as they are visible. `None` if it is unlimited or can't be read.
pub fn cgroup_quota() -> Option<f64> {
    quota_below(Path::new("/"))
}

/// The same for the file system below `root`.
fn quota_below(root: &Path) -> Option<f64> {
    let read = |path: &Path| fs::read_to_string(root.join(path.strip_prefix("/").unwrap_or(path))).ok();
    let groups = read(Path::new("/proc/self/cgroup"))?;
    let mounts = read(Path::new("/proc/self/mountinfo"))?;
    let quota = |directory: PathBuf| match read(&directory.join("cpu.max")) {
        Some(limit) => parse_quota(&limit),
        None => parse_quota(&format!(
            "{} {}",
            read(&directory.join("cpu.cfs_quota_us"))?,
            read(&directory.join("cpu.cfs_period_us"))?
        )),
    };
    cgroup_directories(&groups, &mounts).into_iter().filter_map(quota).reduce(f64::min)
}

/// The quotient of quota and period, as in the file `cpu.max` of cgroup v2; `None` for `max`, and for -1 as in v1.
fn parse_quota(text: &str) -> Option<f64> {
    let mut numbers = text.split_whitespace().map(|word| word.parse::<f64>().ok().filter(|number| *number > 0.0));
    Some(numbers.next()?? / numbers.next()??)
}

/// The directories that limit the processor time of a process, from its `/proc/self/cgroup` and `mountinfo`.
fn cgroup_directories(groups: &str, mounts: &str) -> Vec<PathBuf> {
    let mut directories = Vec::new();
    for (controllers, group) in groups.lines().filter_map(|line| line.split_once(':')?.1.split_once(':')) {
        let is_v2 = controllers.is_empty();
        if !is_v2 && !controllers.split(',').any(|controller| controller == "cpu") {
            continue;
        }
        for (top, mount_point) in mounts.lines().filter_map(|line| cgroup_mount(line, is_v2)) {
            // In a container the mount may show a part of the tree that does not hold the group's name: its top counts.
            let below = Path::new(group).strip_prefix(top).unwrap_or(Path::new(""));
            directories.extend(below.ancestors().map(|part| Path::new(mount_point).join(part)));
        }
    }
    directories
}

/// Which directory of the cgroup tree a line of `mountinfo` mounts and where, if it mounts v2, or v1's cpu controller.
fn cgroup_mount(line: &str, is_v2: bool) -> Option<(&str, &str)> {
    let (left, right) = line.split_once(" - ")?;
    let mut fields = left.split(' ').skip(3);
    let (top, mount_point) = (fields.next()?, fields.next()?);
    let mut fields = right.split(' ');
    let is_it = match fields.next()? {
        "cgroup2" => is_v2,
        "cgroup" => !is_v2 && fields.nth(1)?.split(',').any(|option| option == "cpu"),
        _ => false,
    };
    is_it.then_some((top, mount_point))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The quota in a file system that holds only these files.
    fn quota_with(test: &str, files: &[(&str, &str)]) -> Option<f64> {
        let root = std::env::temp_dir().join(format!("huddle-place-{}-{test}", std::process::id()));
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let quota = quota_below(&root);
        let _ = fs::remove_dir_all(root);
        quota
    }

    const V2: &str = "24 1 0:22 / /proc rw - proc proc rw\n\
        30 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

    #[test]
    fn the_tightest_limit_of_cgroup_v2_counts() {
        let own = ("proc/self/cgroup", "0::/job/step/task\n");
        let (mounts, task) = (("proc/self/mountinfo", V2), "sys/fs/cgroup/job/step/task/cpu.max");
        let job = ("sys/fs/cgroup/job/cpu.max", "150000 100000\n");
        assert_eq!(quota_with("v2", &[own, mounts, job, (task, "max 100000\n")]), Some(1.5));
        assert_eq!(quota_with("v2-own", &[own, mounts, job, (task, "20000 40000\n")]), Some(0.5));
        assert_eq!(quota_with("v2-none", &[own, mounts, (task, "max 100000\n")]), None);
        assert_eq!(quota_with("unmounted", &[own, ("proc/self/mountinfo", "")]), None);
        assert_eq!(quota_with("unreadable", &[]), None);
    }

    #[test]
    fn limits_of_cgroup_v1_count() {
        let own = ("proc/self/cgroup", "9:cpuset:/\n4:cpu,cpuacct:/docker/abc\n0::/\n");
        let mounts = "33 32 0:29 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n\
                      34 32 0:30 / /sys/fs/cgroup/cpuset ro - cgroup cgroup rw,cpuset\n";
        let period = ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
        let quota = "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us";
        let mounts = ("proc/self/mountinfo", mounts);
        assert_eq!(quota_with("v1", &[own, mounts, period, (quota, "250000\n")]), Some(2.5));
        assert_eq!(quota_with("v1-none", &[own, mounts, period, (quota, "-1\n")]), None);
    }

    #[test]
    fn garbage_is_no_quota() {
        for text in ["", "max", "12", "0 0", "1 0", "x y", "nan 1", "-1 100000"] {
            assert_eq!(parse_quota(text), None, "{text:?}");
        }
    }
}
