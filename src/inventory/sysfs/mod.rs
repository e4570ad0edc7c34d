//! `sysfs`: AMD's GPUs as the kernel shows them. It needs neither a tool nor a library, and takes a millisecond, while AMD's
//! tools first have to start Python.
//!
//! `/sys/class/kfd` lists what HIP can use, in the order in which HIP counts it. What KFD does not know comes from the DRM
//! side of the driver ([`drm`]).
//! * The index is the rank among the GPUs, as in HIP; not the number of the node, of `cardN` or of a tool's row
//!   (`the_order_is_kfds_and_processors_do_not_count`).
//! * The identity is the PCI address with function. The unique id belongs to the card, and its partitions share it
//!   (`partitions_are_devices_of_their_own`).
//! * A GPU that this process may not open, because of its control group or a missing device node, is left out and not
//!   sick: HIP leaves it out too, and counts the others without it (`what_is_withheld_does_not_count`).

mod describe;
mod drm;
mod gpu;
mod processes;
mod properties;

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use crate::device::Device;
use crate::host::Host;
use crate::inventory::answer::{Answer, Found, Silence};
use crate::inventory::health;
use describe::Reader;
use drm::Drm;
use gpu::Seen;

/// Below the `/sys` of the host.
const NODES: &str = "class/kfd/kfd/topology/nodes";
/// In bytes. The kernel writes at most a page.
const MOST_TEXT: u64 = 65_536;

/// A GPU of the KFD topology.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) number: u32,
    /// KFD's own number for the GPU, which AMD's tools call `kfd_id` or `GUID`.
    pub(super) gpu_id: Option<u64>,
    pub(super) device: Device,
}

pub(super) fn read(host: &Host) -> Answer {
    let nodes = nodes(host)?;
    let devices: Vec<Device> = nodes.into_iter().map(|node| node.device).collect();
    let warnings = devices.iter().filter_map(health::warning);
    let warnings = warnings.map(|warning| format!("sysfs: {warning}")).collect();
    // AMD's partitions are devices, so no instance can be missing.
    Ok(Found { devices, driver_version: None, warnings, tells_instances: true })
}

/// The GPUs that HIP can use, in HIP's order.
pub(super) fn nodes(host: &Host) -> Result<Vec<Node>, Silence> {
    let directory = host.sys(NODES);
    let numbers = numbers(&directory).map_err(|err| unlisted(&directory, err))?;
    let drm = Drm::read(host);
    let (mut gpus, mut withheld) = (Vec::new(), 0);
    for number in numbers {
        match gpu::inspect(number, &directory, &drm) {
            Seen::Processor => {}
            Seen::Withheld => withheld += 1,
            Seen::Gpu(gpu) => gpus.push(gpu),
        }
    }
    if gpus.is_empty() {
        return Err(nothing(&directory, withheld));
    }
    Ok(Reader { directory: &directory, drm, uses: processes::read(host) }.nodes(&gpus))
}

fn unlisted(directory: &Path, err: io::Error) -> Silence {
    if err.kind() == io::ErrorKind::NotFound {
        return Silence::Absent(format!("no {}: the driver amdgpu is not loaded", directory.display()));
    }
    let why = anyhow::Error::new(err).context(format!("cannot list {}", directory.display()));
    Silence::Broken { why, cure: "run it as root, or look at `dmesg`" }
}

fn nothing(directory: &Path, withheld: usize) -> Silence {
    let directory = directory.display();
    let why = match withheld {
        0 => format!("{directory} lists processors only"),
        1 => format!("{directory} lists a GPU, which this process may not open"),
        _ => format!("{directory} lists {withheld} GPUs, none of which this process may open"),
    };
    Silence::Nothing { why, sure: true }
}

/// The nodes' numbers, in order.
fn numbers(directory: &Path) -> io::Result<Vec<u32>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(directory)? {
        numbers.extend(entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// The contents of a small file, without the newline.
fn text(path: &Path) -> io::Result<String> {
    let mut text = Vec::new();
    File::open(path)?.take(MOST_TEXT).read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::device::{Health, Use};

    struct Tree {
        root: tempfile::TempDir,
        host: Host,
    }

    impl Tree {
        fn new() -> Tree {
            let root = tempfile::tempdir().unwrap();
            let host = Host::new(root.path());
            Tree { root, host }
        }

        fn file(self, path: &str, text: &str) -> Tree {
            let path = self.host.sys(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
            self
        }

        fn node(self, number: u32, gpu_id: &str, properties: &str) -> Tree {
            let node = format!("{NODES}/{number}");
            self.file(&format!("{node}/gpu_id"), &format!("{gpu_id}\n"))
                .file(&format!("{node}/properties"), properties)
        }

        fn gpu(self, number: u32, gpu_id: &str, location: u32, minor: u32) -> Tree {
            let properties = format!(
                "simd_count 416\ngfx_target_version 90010\nlocation_id {location}\ndomain 0\n\
                 drm_render_minor {minor}\nunique_id 81985529216486895\n"
            );
            self.node(number, gpu_id, &properties)
        }

        /// `parent` is the name of the device that `node` is one of.
        fn drm(self, node: &str, parent: &str) -> Tree {
            let tree = self.file(&format!("devices/{parent}/vendor"), "0x1002\n");
            let directory = tree.host.sys("class/drm").join(node);
            fs::create_dir_all(&directory).unwrap();
            symlink(format!("../../../devices/{parent}"), directory.join("device")).unwrap();
            tree
        }

        fn devices(&self) -> Vec<Device> {
            read(&self.host).unwrap().devices
        }

        fn silence(&self) -> String {
            let silence = read(&self.host).expect_err("no GPU");
            format!("{silence:?}").replace(self.root.path().to_str().unwrap(), "")
        }
    }

    const CPU: &str = "cpu_cores_count 64\nsimd_count 0\n";

    #[test]
    fn the_order_is_kfds_and_processors_do_not_count() {
        let tree = Tree::new()
            .node(0, "0", CPU)
            .node(1, "0", CPU)
            .gpu(2, "45412", 0x4300, 129)
            .gpu(10, "59881", 0x2300, 130) // after 9, not after 1
            .gpu(9, "13261", 0x6300, 128);
        let devices = tree.devices();
        let summary =
            |device: &Device| (device.index, device.identity.pci.unwrap().bus, device.minor.unwrap());
        let summary: Vec<_> = devices.iter().map(summary).collect();
        assert_eq!(summary, [(0, 0x43, 129), (1, 0x63, 128), (2, 0x23, 130)]);
    }

    #[test]
    fn every_file_is_read() {
        let tree = Tree::new()
            .gpu(1, "45412", 0x4300, 128)
            .file(&format!("{NODES}/1/name"), "aldebaran\n")
            .file(&format!("{NODES}/1/mem_banks/0/properties"), "heap_type 1\nsize_in_bytes 68702699520\n")
            .file(&format!("{NODES}/1/mem_banks/1/properties"), "heap_type 0\nsize_in_bytes 999999999999\n")
            .drm("card1", "0000:43:00.0")
            .drm("renderD128", "0000:43:00.0")
            .file("devices/0000:43:00.0/mem_info_vram_used", "10485760\n")
            .file("devices/0000:43:00.0/product_name", "AMD Instinct MI210\n")
            .file("class/kfd/kfd/proc/4711/queues/0/gpuid", "45412\n");
        let identity = crate::device::Identity { pci: "0000:43:00.0".parse().ok(), ..Default::default() };
        let expected = Device {
            name: Some("AMD Instinct MI210".to_owned()),
            memory_mib: Some(65_520),
            memory_used_mib: Some(10),
            minor: Some(128),
            nodes: ["dri/renderD128", "dri/card1"].map(|node| tree.host.dev(node)).to_vec(),
            processes: Some(vec![Use { pid: 4711, memory_mib: None }]),
            unique_id: Some(0x0123_4567_89ab_cdef),
            ..Device::new(0, identity)
        };
        assert_eq!(tree.devices(), [expected]);
    }

    #[test]
    fn partitions_are_devices_of_their_own() {
        let tree = Tree::new()
            .gpu(2, "1001", 0x0500, 128)
            .gpu(3, "1002", 0x0501, 129)
            .drm("card1", "0000:05:00.0")
            .drm("renderD128", "0000:05:00.0")
            .drm("card2", "amdgpu_xcp.0")
            .drm("renderD129", "amdgpu_xcp.0")
            .file("devices/0000:05:00.0/ras/umc_err_count", "ue: 2\nce: 0\n")
            .file("devices/0000:05:00.0/mem_info_vram_total", "206141652992\n")
            .file("devices/0000:05:00.0/mem_info_vram_used", "206141652992\n")
            .file(&format!("{NODES}/3/mem_banks/0/properties"), "heap_type 1\nsize_in_bytes 25767706624\n");
        let devices = tree.devices();
        let [first, second] = &devices[..] else { panic!("{devices:?}") };
        assert_eq!(first.unique_id, second.unique_id);
        assert_eq!(first.identity.relation(&second.identity), crate::device::Relation::Different);
        assert_eq!(second.identity.pci, "0000:05:00.1".parse().ok());
        assert_eq!(second.nodes, ["dri/renderD129", "dri/card2"].map(|node| tree.host.dev(node)));
        assert_eq!(
            (first.memory_mib, first.memory_used_mib),
            (None, None),
            "the whole card's is not its own"
        );
        assert_eq!(second.memory_mib, Some(24_574));
        assert_eq!(
            (first.uncorrected_errors, second.uncorrected_errors),
            (Some(2), Some(2)),
            "it may be either's memory"
        );
    }

    #[test]
    #[rustfmt::skip] // a table
    fn names() {
        for (case, chip, product, name) in [
            ("the board's",        Some("aldebaran\n"),    Some("AMD Instinct MI210\n"), "AMD Instinct MI210"),
            ("the chip's",         Some("aldebaran\n"),    Some("\n"),                   "aldebaran"),
            ("no name",            Some("\n"),             None,                         "gfx90a"),
            ("a name for nothing", Some("ip discovery\n"), None,                         "gfx90a"),
            ("no file",            None,                   None,                         "gfx90a"),
            ("an escape",          Some("a\u{1b}[2J\n"),   None,                         "a?[2J"),
        ] {
            let mut tree = Tree::new().gpu(1, "1", 0x100, 128).drm("renderD128", "0000:01:00.0");
            for (path, text) in [(format!("{NODES}/1/name"), chip), ("devices/0000:01:00.0/product_name".to_owned(), product)] {
                tree = match text { Some(text) => tree.file(&path, text), None => tree };
            }
            assert_eq!(tree.devices()[0].name.as_deref(), Some(name), "{case}");
        }
    }

    #[test]
    fn an_old_kernel_leaves_the_domain_to_the_other_side() {
        let old = "simd_count 256\nlocation_id 6400\ndrm_render_minor 128\nunique_id 1\n";
        let tree = Tree::new().node(1, "13261", old);
        assert_eq!(tree.devices()[0].identity.pci, "0000:19:00.0".parse().ok());
        let tree = tree.drm("renderD128", "0002:19:00.0");
        assert_eq!(tree.devices()[0].identity.pci, "0002:19:00.0".parse().ok());
    }

    #[test]
    fn what_cannot_be_read_is_kept_and_not_granted() {
        let tree = Tree::new()
            .gpu(1, "1", 0x100, 128)
            .node(2, "2", "<html>")
            .node(3, "3", "simd_count 8\ndrm_render_minor 129\n")
            .gpu(4, "4", 0x400, 130);
        let found = read(&tree.host).unwrap();
        let health: Vec<_> = found.devices.iter().map(|device| device.health.reason().is_none()).collect();
        assert_eq!(health, [true, false, false, true]);
        assert!(found.warnings[0].starts_with("sysfs: device 1 is sick: "), "{:?}", found.warnings);
        assert_eq!(found.warnings[1], "sysfs: device 2 is sick: KFD does not tell its PCI address");
    }

    #[test]
    #[rustfmt::skip] // a table
    fn uncorrected_errors_make_a_gpu_sick() {
        for (case, file, text, count) in [
            ("none",           "umc_err_count", "ue: 0\nce: 12\n",        Some(0)),
            ("some",           "umc_err_count", "ue: 3\nce: 0\n",         Some(3)),
            ("a newer kernel", "aca_umc",       "ue: 3\nce: 0\nde: 1\n", Some(3)),
            ("another order",  "umc_err_count", "ce: 9\nue: 3\n",         Some(3)),
            ("of another part", "gfx_err_count", "ue: 3\nce: 0\n",        None),
            ("no count",       "umc_err_count", "Query failed\n",         None),
        ] {
            let tree = Tree::new()
                .gpu(1, "1", 0x4300, 128)
                .drm("renderD128", "0000:43:00.0")
                .file(&format!("devices/0000:43:00.0/ras/{file}"), text);
            let found = read(&tree.host).expect(case);
            let why = "uncorrected errors of its memory since the driver was loaded: 3";
            let health = if count == Some(3) { Health::Sick(why.to_owned()) } else { Health::Sound };
            assert_eq!((found.devices[0].uncorrected_errors, &found.devices[0].health), (count, &health), "{case}");
            let warnings = if count == Some(3) { vec![format!("sysfs: device 0 (0000:43:00.0) is sick: {why}")] } else { vec![] };
            assert_eq!(found.warnings, warnings, "{case}");
        }
    }

    #[test]
    fn what_is_withheld_does_not_count() {
        let tree = Tree::new().gpu(1, "1", 0x100, 128).gpu(2, "2", 0x200, 129);
        let nodes = tree.root.path().join("dev/dri");
        fs::create_dir_all(&nodes).unwrap();
        assert!(
            tree.silence().ends_with("lists 2 GPUs, none of which this process may open\", sure: true }")
        );
        fs::write(nodes.join("renderD129"), "").unwrap();
        let devices = tree.devices();
        assert_eq!((devices.len(), devices[0].index, devices[0].minor), (1, 0, Some(129)));
    }

    #[test]
    fn no_driver_and_no_gpu_are_told_apart() {
        let tree = Tree::new();
        let absent = format!("Absent(\"no /sys/{NODES}: the driver amdgpu is not loaded\")");
        assert_eq!(tree.silence(), absent);
        let tree = tree.node(0, "0", CPU);
        assert!(tree.silence().starts_with("Nothing { why: \"/sys/"), "{}", tree.silence());
        fs::remove_dir_all(tree.host.sys(NODES)).unwrap();
        fs::write(tree.host.sys(NODES), "").unwrap();
        assert!(tree.silence().starts_with("Broken { why: cannot list /sys/"), "{}", tree.silence());
    }
}
