//! What the cgroup of this process grants: processor time and memory.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// How many processors' worth of time the cgroup of this process may use, by its own limit and the visible limits of
/// its parents. `None` if it is unlimited or can't be read.
pub fn cgroup_quota() -> Option<f64> {
    Files(Path::new("/")).quota()
}

/// Bytes that this process may still take before the kernel ends a process: the least of what the host has, and of what
/// the cgroup and its parents grant where that is visible. Memory that holds files counts as free, since the kernel
/// gives it back. `None` if nothing can be read.
pub fn free_memory() -> Option<u64> {
    // Looked up once: reading `mountinfo` takes as long as all the rest, and processes stay in their cgroup.
    static CGROUPS: OnceLock<Vec<PathBuf>> = OnceLock::new();
    let files = Files(Path::new("/"));
    files.free_memory(CGROUPS.get_or_init(|| files.cgroups("memory")))
}

/// The file system below a directory.
struct Files<'a>(&'a Path);

impl Files<'_> {
    fn read(&self, path: &Path) -> Option<String> {
        fs::read_to_string(self.0.join(path.strip_prefix("/").unwrap_or(path))).ok()
    }

    fn number(&self, path: PathBuf) -> Option<u64> {
        self.read(&path)?.trim().parse().ok()
    }

    /// The directories that limit this process by `controller`.
    fn cgroups(&self, controller: &str) -> Vec<PathBuf> {
        let [groups, mounts] = ["cgroup", "mountinfo"].map(|name| self.read(&Path::new("/proc/self").join(name)));
        cgroup_directories(&groups.unwrap_or_default(), &mounts.unwrap_or_default(), controller)
    }

    fn quota(&self) -> Option<f64> {
        let quota = |directory: PathBuf| match self.read(&directory.join("cpu.max")) {
            Some(limit) => parse_quota(&limit),
            None => parse_quota(&format!(
                "{} {}",
                self.read(&directory.join("cpu.cfs_quota_us"))?,
                self.read(&directory.join("cpu.cfs_period_us"))?
            )),
        };
        self.cgroups("cpu").into_iter().filter_map(quota).reduce(f64::min)
    }

    fn free_memory(&self, cgroups: &[PathBuf]) -> Option<u64> {
        let host = self.read(Path::new("/proc/meminfo")).and_then(|text| Some(value(&text, "MemAvailable:")? << 10));
        let granted = cgroups.iter().filter_map(|directory| self.room(directory)).min();
        host.into_iter().chain(granted).min()
    }

    /// Bytes that a cgroup grants beyond what it uses.
    fn room(&self, directory: &Path) -> Option<u64> {
        // First v2, where a limit may be "max", then v1, where it is always a number.
        let (limit, used, files) = match self.number(directory.join("memory.max")) {
            Some(limit) => (limit, "memory.current", ["inactive_file", "active_file"]),
            None => {
                let limit = self.number(directory.join("memory.limit_in_bytes"))?;
                (limit, "memory.usage_in_bytes", ["total_inactive_file", "total_active_file"])
            }
        };
        let text = self.read(&directory.join("memory.stat")).unwrap_or_default();
        let held: u64 = files.iter().filter_map(|name| value(&text, name)).sum();
        Some(limit.saturating_sub(self.number(directory.join(used))?.saturating_sub(held)))
    }
}

/// The number after a name that starts a line.
fn value(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next()? == name).then_some(())?;
        words.next()?.parse().ok()
    })
}

/// The quotient of quota and period, as in the file `cpu.max` of cgroup v2; `None` for `max`, and for the -1 of v1.
fn parse_quota(text: &str) -> Option<f64> {
    let mut numbers = text.split_whitespace().map(|word| word.parse::<f64>().ok().filter(|number| *number > 0.0));
    Some(numbers.next()?? / numbers.next()??)
}

/// The directories that limit a process by `controller`, from its `/proc/self/cgroup` and `mountinfo`.
fn cgroup_directories(groups: &str, mounts: &str, controller: &str) -> Vec<PathBuf> {
    let mut directories = Vec::new();
    for (controllers, group) in groups.lines().filter_map(|line| line.split_once(':')?.1.split_once(':')) {
        let is_v2 = controllers.is_empty();
        if !is_v2 && !controllers.split(',').any(|name| name == controller) {
            continue;
        }
        let v1 = (!is_v2).then_some(controller);
        for (top, mount_point) in mounts.lines().filter_map(|line| cgroup_mount(line, v1)) {
            // In a container the mount may show a part of the tree that does not hold the group's name. Then the top of
            // that part counts.
            let below = Path::new(group).strip_prefix(top).unwrap_or(Path::new(""));
            directories.extend(below.ancestors().map(|part| Path::new(mount_point).join(part)));
        }
    }
    directories
}

/// The directory of the cgroup tree that a line of `mountinfo` mounts, and the mount point. `None` unless the line
/// mounts the controller `v1` of v1, or v2 where that is `None`.
fn cgroup_mount<'a>(line: &'a str, v1: Option<&str>) -> Option<(&'a str, &'a str)> {
    let (left, right) = line.split_once(" - ")?;
    let mut fields = left.split(' ').skip(3);
    let (top, mount_point) = (fields.next()?, fields.next()?);
    let mut fields = right.split(' ');
    let is_it = match (fields.next()?, v1) {
        ("cgroup2", None) => true,
        ("cgroup", Some(controller)) => fields.nth(1)?.split(',').any(|option| option == controller),
        _ => false,
    };
    is_it.then_some((top, mount_point))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `find` returns on a file system that holds only these files.
    fn found<R>(test: &str, files: &[(&str, &str)], find: impl FnOnce(Files<'_>) -> R) -> R {
        let root = std::env::temp_dir().join(format!("huddle-quota-{}-{test}", std::process::id()));
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let found = find(Files(&root));
        let _ = fs::remove_dir_all(root);
        found
    }

    fn quota_with(test: &str, files: &[(&str, &str)]) -> Option<f64> {
        found(test, files, |files| files.quota())
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
    fn the_least_memory_that_anyone_grants_is_free() {
        let free = |test, files: &[_]| found(test, files, |files| files.free_memory(&files.cgroups("memory")));
        let host = ("proc/meminfo", "MemTotal: 9000 kB\nMemFree: 1 kB\nMemAvailable:    4000 kB\n");
        let (own, mounts) = (("proc/self/cgroup", "0::/job/task\n"), ("proc/self/mountinfo", V2));
        let limits = [("sys/fs/cgroup/job/memory.max", "3000000\n"), ("sys/fs/cgroup/job/task/memory.max", "max\n")];
        let used = ("sys/fs/cgroup/job/memory.current", "1000000\n");
        let held = ("sys/fs/cgroup/job/memory.stat", "anon 300\ninactive_file 200000\nactive_file 50000\nshmem 7\n");
        assert_eq!(free("host", &[host]), Some(4000 << 10));
        assert_eq!(free("cgroup2", &[host, own, mounts, limits[0], limits[1], used, held]), Some(2_250_000));
        assert_eq!(free("unlimited", &[host, own, mounts, limits[1], used]), Some(4000 << 10));
        let v1 = [
            ("proc/self/cgroup", "4:memory:/a\n1:cpu:/\n"),
            ("proc/self/mountinfo", "33 32 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"),
            ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "5000\n"),
            ("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "6000\n"),
            ("sys/fs/cgroup/memory/a/memory.stat", "cache 9\ntotal_inactive_file 1500\ntotal_active_file 0\n"),
        ];
        assert_eq!(free("cgroup1", &v1), Some(500));
        assert_eq!(free("nothing", &[]), None);
    }

    #[test]
    fn garbage_is_no_quota() {
        for text in ["", "max", "12", "0 0", "1 0", "x y", "nan 1", "-1 100000"] {
            assert_eq!(parse_quota(text), None, "{text:?}");
        }
    }
}
