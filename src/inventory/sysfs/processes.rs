//! Who computes on AMD's GPUs, according to KFD's `/sys/class/kfd/kfd/proc`, which has a directory per process.
//!
//! A process is attached to every GPU as soon as it starts HIP. So only queues count: without one it cannot have work on
//! the GPU. The pids are those of the initial pid namespace.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::Path;

use crate::device::Use;
use crate::host::Host;
use crate::inventory::sysfs::text;

/// By KFD's number for the GPU; `None` where the kernel does not report it.
pub(super) fn read(host: &Host) -> Option<HashMap<u64, Vec<Use>>> {
    let mut uses: HashMap<u64, Vec<Use>> = HashMap::new();
    for process in fs::read_dir(host.sys("class/kfd/kfd/proc")).ok()?.flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        for gpu in gpus(&process.path().join("queues")) {
            let bytes = number(&process.path().join(format!("vram_{gpu}")));
            uses.entry(gpu).or_default().push(Use { pid, memory_mib: bytes.map(|bytes| bytes >> 20) });
        }
    }
    uses.values_mut().for_each(|uses| uses.sort_by_key(|used| used.pid));
    Some(uses)
}

/// The GPUs that a process has queues on. A process that ends while its directory is read uses none.
fn gpus(queues: &Path) -> BTreeSet<u64> {
    let queues = fs::read_dir(queues).into_iter().flatten().flatten();
    queues.filter_map(|queue| number(&queue.path().join("gpuid"))).collect()
}

fn number(path: &Path) -> Option<u64> {
    text(path).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_uses_the_gpus_on_which_it_has_queues() {
        let root = tempfile::tempdir().unwrap();
        let host = Host::new(root.path());
        assert_eq!(read(&host), None);
        for (file, text) in [
            ("4711/queues/0/gpuid", "45412\n"),
            ("4711/queues/1/gpuid", "45412\n"),
            ("4711/queues/2/gpuid", "59881\n"),
            ("4711/vram_45412", "2147483648\n"),
            ("4711/vram_59881", "0\n"),
            ("815/queues/0/gpuid", "45412\n"),
            ("9/pasid", "32770\n"), // attached, and no queue
            ("9/vram_45412", "0\n"),
        ] {
            let path = host.sys("class/kfd/kfd/proc").join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let uses = read(&host).unwrap();
        let first = [Use { pid: 815, memory_mib: None }, Use { pid: 4711, memory_mib: Some(2048) }];
        assert_eq!(uses[&45412], first);
        assert_eq!(uses[&59881], [Use { pid: 4711, memory_mib: Some(0) }]);
        assert_eq!(uses.len(), 2);
    }
}
