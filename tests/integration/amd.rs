//! AMD's GPUs, as the program reads them: a host's `/sys` below `--root`, fakes of AMD's tools on PATH, and
//! the real `rocm-smi`, which finds none here.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use serde_json::{Value, json};

use crate::sandbox::{PROGRAM, Process, skip};
use crate::strict::is_refused_if_strict;
use crate::tree::Tree;

const NODES: &str = "root/sys/class/kfd/kfd/topology/nodes";

/// Two cards and two partitions of a third one, in an order that is not that of their addresses.
fn with_kfd() -> Tree {
    let tree = Tree::new()
        .file(&format!("{NODES}/0/gpu_id"), "0\n")
        .file(&format!("{NODES}/0/properties"), "cpu_cores_count 64\nsimd_count 0\n");
    let gpus = [
        (1, 45_412, 0x4300, 129),
        (2, 59_881, 0x2300, 128),
        (3, 1_001, 0x0500, 130),
        (4, 1_002, 0x0501, 131),
    ];
    gpus.into_iter().fold(tree, gpu)
}

/// Adds a card: its KFD node, KFD's id of the GPU, its PCI address and the minor of its render node.
fn gpu(tree: Tree, (node, id, location, minor): (u32, u32, u32, u32)) -> Tree {
    let properties = format!(
        "cpu_cores_count 0\nsimd_count 416\nmem_banks_count 1\ngfx_target_version 90010\nvendor_id 4098\n\
         location_id {location}\ndomain 0\ndrm_render_minor {minor}\nunique_id {}\n",
        location & 0xff00
    );
    let bank = "heap_type 1\nsize_in_bytes 1073741824\n";
    tree.file(&format!("{NODES}/{node}/gpu_id"), &format!("{id}\n"))
        .file(&format!("{NODES}/{node}/properties"), &properties)
        .file(&format!("{NODES}/{node}/name"), "\n")
        .file(&format!("{NODES}/{node}/mem_banks/0/properties"), bank)
}

fn nvidia(tree: Tree) -> Tree {
    tree.card("0000:3b:00.0", "Model: NVIDIA L4\nDevice Minor: 0\n")
}

/// The DRM side of a card: `file` in its device directory, and its nodes.
fn with_graphics(tree: Tree, address: &str, nodes: &[&str], files: &[(&str, &str)]) -> Tree {
    let device = format!("devices/pci0000:40/{address}");
    for node in nodes {
        let class = tree.path("root/sys/class/drm").join(node);
        fs::create_dir_all(&class).unwrap();
        symlink(format!("../../../{device}"), class.join("device")).unwrap();
    }
    files.iter().fold(tree, |tree, (file, text)| tree.file(&format!("root/sys/{device}/{file}"), text))
}

/// The source, and each device's index, address and health.
#[track_caller]
fn summary(tree: &Tree, args: &[&str]) -> (String, String) {
    let answer = tree.devices(args);
    let device = |device: &Value| {
        format!(
            "{} {} {}",
            device["index"],
            device["pci"].as_str().unwrap_or("-"),
            device["health"].as_str().unwrap()
        )
    };
    let devices: Vec<_> = answer["devices"].as_array().unwrap().iter().map(device).collect();
    (answer["source"].as_str().unwrap().to_owned(), devices.join(", "))
}

/// Prints each argument as a line.
fn echo(lines: &[&str]) -> String {
    lines.iter().map(|line| format!("echo '{line}'\n")).collect()
}

const IN_HIPS_ORDER: &str =
    "0 0000:43:00.0 sound, 1 0000:23:00.0 sound, 2 0000:05:00.0 sound, 3 0000:05:00.1 sound";

#[test]
fn the_kernel_is_enough() {
    let host = with_kfd();
    assert_eq!(summary(&host, &[]), ("sysfs".to_owned(), IN_HIPS_ORDER.to_owned()));
    let device = &host.devices(&[])["devices"][3];
    assert_eq!(
        (&device["minor"], &device["name"], &device["memory_mib"]),
        (&json!(131), &json!("gfx90a"), &json!(1024))
    );
    assert_eq!(device["nodes"], json!(["root/dev/dri/renderD131"]));
    let stderr = host.notes(&["-v"]);
    assert!(stderr.contains("source nvidia-smi: no nvidia-smi in PATH ("), "{stderr}");
    assert!(stderr.contains("source sysfs: 4 devices in "), "{stderr}");
}

#[test]
fn the_graphics_side_adds_what_kfd_does_not_know() {
    let files = [("product_name", "AMD Instinct MI210\n"), ("mem_info_vram_used", "10485760\n")];
    let host = with_graphics(with_kfd(), "0000:43:00.0", &["card1", "renderD129"], &files)
        .file("root/sys/class/kfd/kfd/proc/4711/queues/0/gpuid", "45412\n")
        .file("root/sys/class/kfd/kfd/proc/4711/vram_45412", "9437184\n");
    let device = &host.devices(&[])["devices"][0];
    assert_eq!(device["name"], "AMD Instinct MI210");
    assert_eq!(device["memory_used_mib"], 10);
    assert_eq!(device["processes"], json!([{ "pid": 4711, "memory_mib": 9 }]));
    assert_eq!(device["nodes"], json!(["root/dev/dri/renderD129", "root/dev/dri/card1"]));
}

#[test]
fn a_gpu_whose_memory_fails_is_given_last() {
    let host = with_graphics(
        with_kfd(),
        "0000:43:00.0",
        &["renderD129"],
        &[("ras/umc_err_count", "ue: 2\nce: 7\n")],
    );
    let answer = host.devices(&[]);
    let (first, second) = (&answer["devices"][0], &answer["devices"][1]);
    let why = "uncorrected errors of its memory since the driver was loaded: 2";
    assert_eq!(
        (&first["uncorrected_errors"], &first["health"], &first["reason"]),
        (&json!(2), &json!("sick"), &json!(why))
    );
    assert_eq!((&second["uncorrected_errors"], &second["health"]), (&Value::Null, &json!("sound")));
    assert_eq!(answer["warnings"], json!([format!("sysfs: device 0 (0000:43:00.0) is sick: {why}")]));
    host.command(&["3", "--print", "pci"])
        .assert()
        .success()
        .stdout("0000:23:00.0,0000:05:00.0,0000:05:00.1\n");
    host.command(&["4"]).assert().code(1).stdout("");
    // A tool reports it sick too.
    let row = r#"echo '[{"gpu": 0, "bdf": "0000:43:00.0", "kfd_id": 45412}]'"#;
    assert_eq!(summary(&host.tool("amd-smi", row), &["--source", "amd-smi"]).1, "0 0000:43:00.0 sick");
}

#[test]
fn the_tool_counts_errors_where_the_kernel_lists_nothing() {
    let list = r#"[{"gpu": 0, "bdf": "0000:23:00.0", "node_id": 1}, {"gpu": 1, "bdf": "0000:43:00.0", "node_id": 2}]"#;
    let errors = r#"{"gpu_data": [{"gpu": 0, "ecc": {"total_uncorrectable_count": "N/A"}}, {"gpu": 1, "ecc": {"total_correctable_count": 9, "total_uncorrectable_count": 4}}]}"#;
    let script =
        |metric: &str| format!("case $1 in list) echo '{list}' ;; metric) {metric} ;; *) echo '[]' ;; esac");
    let host = Tree::new().tool("amd-smi", &script(&format!("echo '{errors}'")));
    assert_eq!(summary(&host, &[]).1, "0 0000:23:00.0 sound, 1 0000:43:00.0 sick");
    let answer = host.devices(&[]);
    assert_eq!(answer["devices"][1]["uncorrected_errors"], 4);
    let why = "uncorrected errors of its memory since the driver was loaded: 4";
    assert_eq!(answer["warnings"], json!([format!("amd-smi: device 1 (0000:43:00.0) is sick: {why}")]));
    let host = Tree::new().tool("amd-smi", &script("kill -SEGV $$"));
    assert_eq!(summary(&host, &[]).1, "0 0000:23:00.0 sound, 1 0000:43:00.0 sound");
    let warning = "amd-smi: errors of the memory are not known: signal: 11 (SIGSEGV)";
    assert!(host.devices(&[])["warnings"][0].as_str().unwrap().starts_with(warning));
}

#[test]
fn the_number_of_a_card_is_told_as_its_tool_prints_it() {
    let answer = with_kfd().devices(&[]);
    let numbers: Vec<_> =
        answer["devices"].as_array().unwrap().iter().map(|gpu| gpu["unique_id"].clone()).collect();
    assert_eq!(json!(numbers), json!(["0x4300", "0x2300", "0x500", "0x500"]));
}

#[test]
fn two_partitions_of_a_card_are_two_units() {
    let host = with_kfd();
    fs::remove_dir(host.path("root/proc")).unwrap();
    symlink("/proc", host.path("root/proc")).unwrap();
    let owners = [Process::start(), Process::start()];
    let allocate = |owner: &Process, amount: &str| {
        let words =
            ["allocate", amount, "--coordination-file", "file", "--source", "sysfs", "--print", "pci"];
        host.command(&words).args(["--owner", &owner.pid().to_string()]).assert()
    };
    allocate(&owners[0], "3").success().stdout("0000:43:00.0,0000:23:00.0,0000:05:00.0\n");
    allocate(&owners[1], "1").success().stdout("0000:05:00.1\n");
    allocate(&owners[1], "1").code(1).stdout("");
}

#[test]
fn the_kernel_is_asked_before_the_tools() {
    let host = with_kfd().tool("amd-smi", "touch asked").tool("rocm-smi", "touch asked");
    assert_eq!(summary(&host, &[]).0, "sysfs");
    assert!(!host.path("asked").exists());
    // A host with NVIDIA GPUs does not wait for them either.
    let host = nvidia(Tree::new()).tool("amd-smi", "touch asked").tool("rocm-smi", "touch asked");
    assert_eq!(summary(&host, &[]).0, "procfs");
    assert!(!host.path("asked").exists());
}

#[test]
fn a_tool_answers_where_the_kernels_files_fail() {
    let list = r#"[{"gpu": 0, "bdf": "0000:23:00.0", "kfd_id": 59881, "node_id": 2, "partition_id": 0},
                   {"gpu": 2, "bdf": "0000:43:00.0", "kfd_id": 45412, "node_id": 1, "partition_id": 0}]"#;
    let details = r#"{"gpu_data": [{"gpu": 2, "asic": {"market_name": "AMD Instinct MI210"}, "vram": {"size": {"value": 65520, "unit": "MB"}}}]}"#;
    let host = Tree::new()
        .file(NODES, "no directory")
        .tool("amd-smi", &format!("if [ $1 = list ]; then echo '{list}'; else echo '{details}'; fi"));
    assert_eq!(
        summary(&host, &[]),
        ("amd-smi".to_owned(), "0 0000:43:00.0 sound, 1 0000:23:00.0 sound".to_owned())
    );
    let answer = host.devices(&[]);
    assert_eq!(
        (&answer["devices"][0]["name"], &answer["devices"][0]["memory_mib"]),
        (&json!("AMD Instinct MI210"), &json!(65_520))
    );
    assert_eq!(answer["devices"][1]["name"], Value::Null);
    let warning = answer["warnings"][0].as_str().unwrap();
    assert!(
        warning.starts_with("devices are read from amd-smi, since sysfs failed: cannot list root/sys"),
        "{warning}"
    );
}

#[test]
#[rustfmt::skip] // a table
fn a_tool_s_rows_get_hips_indexes() {
    let rocm = r#"{"card0": {"PCI Bus": "0000:01:00.0", "Card Series": "0x1002"}, "card1": {"PCI Bus": "0000:23:00.0"}, "card2": {"PCI Bus": "0000:43:00.0"}, "system": {"Driver version": "6.3.6"}}"#;
    let of_rocm = "0 0000:43:00.0 sound, 1 0000:23:00.0 sound, 4 0000:01:00.0 sick";
    let guids = r#"{"card0": {"PCI Bus": "0000:05:00.0", "GUID": "1002", "Node ID": "4"}, "card1": {"PCI Bus": "0000:05:00.0", "GUID": "1001", "Node ID": "3"}}"#;
    let partitions = "2 0000:05:00.0 sound, 3 0000:05:00.1 sound";
    let list = r#"[{"gpu": 0, "bdf": "0000:05:00.0", "kfd_id": 1001, "node_id": 3, "partition_id": 0}, {"gpu": 5, "bdf": "N/A", "kfd_id": 1002, "node_id": 4, "partition_id": 1}]"#;
    for (case, tool, lines, status, expected) in [
        ("as it is",            "rocm-smi", vec![rocm],                                         0, of_rocm),
        ("an empty line first", "rocm-smi", vec!["", rocm],                                     0, of_rocm),
        ("warnings first",      "rocm-smi", vec!["WARNING: AMD GPU device(s) is/are in a low-power state. Check power control/runtime_status", "", rocm], 0, of_rocm),
        ("an exception after",  "rocm-smi", vec![rocm, "Exception caught: map::at"],            0, of_rocm),
        ("a failure after",     "rocm-smi", vec![rocm],                                         2, of_rocm),
        ("partitions",          "rocm-smi", vec![guids],                                        0, partitions),
        ("a list",              "amd-smi",  vec![list],                                         0, partitions),
        ("a group is missing",  "amd-smi",  vec!["[WARNING] the user is not in the group render", "  • /dev/kfd: Permission denied", list], 0, partitions),
        ("several lists",       "amd-smi",  vec![list, r#"[{"gpu": 6, "bdf": "0000:43:00.0"}]"#], 0, "0 0000:43:00.0 sound, 2 0000:05:00.0 sound, 3 0000:05:00.1 sound"),
        ("ROCm 7",              "amd-smi",  vec![r#"{"gpu_data": ["#, &list[1..list.len() - 1], "]}"], 0, partitions),
        ("text for an address", "amd-smi",  vec![r#"[{"gpu": 0, "bdf": "AMDSMI_STATUS_NO_PERM - Permission Denied", "kfd_id": "N/A"}]"#], 0, "4 - sick"),
    ] {
        let host = with_kfd().tool(tool, &format!("{}exit {status}", echo(&lines)));
        assert_eq!(summary(&host, &["--source", tool]), (tool.to_owned(), expected.to_owned()), "{case}");
        let warned = host.devices(&["--source", tool])["warnings"].to_string();
        assert_eq!(warned.contains("although it lists GPUs"), status != 0, "{case}: {warned}");
    }
}

#[test]
#[rustfmt::skip] // a table
fn a_tool_that_lists_nothing_is_believed_only_with_kfd() {
    let no_driver = "echo 'ERROR:root:Driver not initialized (amdgpu not found in modules)' >&2";
    for (case, script, without, with) in [
        ("nothing",           "",                                              "no GPU on this host: rocm-smi: it printed nothing, and neither does KFD", "the devices cannot be read: rocm-smi: it printed nothing, and KFD lists 4 GPUs"),
        ("no driver",         no_driver,                                       "no GPU on this host: rocm-smi: the driver amdgpu is not loaded (`ERROR:root:", "use `--source sysfs`: AMD's tools do not see a driver that is built into the kernel"),
        ("nothing to report", "echo 'WARNING: No JSON data to report' >&2",    "no GPU on this host: rocm-smi: it lists no GPU (`WARNING: No JSON", "the devices cannot be read: rocm-smi: it lists no GPU"),
        ("text",              "printf '\\033[33mUnable to load the library\\n'", "the devices cannot be read: rocm-smi: exit status: 0 and no GPU in what it printed (`\\u{1b}[33mUnable", "the devices cannot be read: "),
        ("cut short",         "printf '{\"card0\": {'",                        "the devices cannot be read: rocm-smi: it printed JSON that is wrong: EOF", "it printed JSON that is wrong"),
        ("crashes",           "kill -SEGV $$",                                 "rocm-smi: signal: 11 (SIGSEGV) ended it", "ended it"),
        ("floods",            "head -c 1000000000 /dev/zero",                  "rocm-smi: it printed more than 1048576 bytes", "it printed more than"),
        ("one address",       "echo '{\"card0\": {\"PCI Bus\": \"0000:05:00.0\"}, \"card1\": {\"PCI Bus\": \"0000:05:00.0\"}}'", "have one PCI address: 0000:05:00.0", "have one index: 2"),
    ] {
        println!("{case}");
        Tree::new().tool("rocm-smi", script).refuses(&["--source", "rocm-smi"], 4, without);
        with_kfd().tool("rocm-smi", script).refuses(&["--source", "rocm-smi"], 4, with);
    }
    Tree::new().refuses(&["--source", "amd-smi"], 4, "no GPU on this host: amd-smi: no amd-smi in PATH; ");
    let amd_smi = "echo 'ERROR:root:Unable to get devices, driver not initialized (amdgpu not found in modules)'; exit 255";
    Tree::new().tool("amd-smi", amd_smi).refuses(&[], 4, "no GPU on this host: ");
}

#[test]
fn a_tool_that_hangs_is_waited_for_until_the_deadline() {
    let host = Tree::new().tool("amd-smi", "exec sleep 1000");
    // What was left of the second when it was started is in both numbers.
    for says in ["source amd-smi gave no answer in the ", " s; allow more time (`--deadline`)"] {
        host.refuses(&["--source", "amd-smi", "--deadline", "1"], 3, says);
    }
}

#[test]
fn without_kfd_a_tools_order_is_warned_of() {
    let cards = r#"{"card1": {"PCI Bus": "0000:23:00.0"}, "card0": {"PCI Bus": "0000:43:00.0"}}"#;
    let host = Tree::new().tool("rocm-smi", &echo(&[cards]));
    assert_eq!(
        summary(&host, &[]),
        ("rocm-smi".to_owned(), "0 0000:23:00.0 sound, 1 0000:43:00.0 sound".to_owned())
    );
    let warnings = host.devices(&[])["warnings"].clone();
    let says = "rocm-smi: without KFD the order is that of the PCI addresses, and HIP may count otherwise";
    assert_eq!(warnings, json!([says]));
}

#[test]
#[rustfmt::skip] // a table
fn of_two_vendors_one_is_named() {
    let both = || nvidia(with_kfd());
    const WHICH: &str = ": choose with `--vendor nvidia` or `--vendor amd`";
    both().refuses(&[], 4, &format!("this host has GPUs of NVIDIA (procfs: 1) and of AMD (sysfs: 4){WHICH}"));
    assert_eq!(summary(&both(), &["--vendor", "amd"]).0, "sysfs");
    assert_eq!(summary(&both(), &["--vendor", "nvidia"]).0, "procfs");
    both().command(&["devices"]).env("GPU_COORD_VENDOR", "amd").assert().success();
    let broken = || with_kfd().tool("nvidia-smi", "echo 'NVIDIA-SMI has failed'; exit 9");
    broken().refuses(&[], 4, "this host has GPUs of NVIDIA, whose driver fails (nvml: not asked below --root; nvidia-smi: exit status 9: the driver is not loaded");
    broken().refuses(&[], 4, &format!("and of AMD (sysfs: 4){WHICH}"));
    broken().refuses(&["--vendor", "nvidia"], 4, "the devices cannot be read: nvml: not asked below --root; nvidia-smi: exit status 9");
    assert_eq!(summary(&broken(), &["--vendor", "amd"]).1, IN_HIPS_ORDER);
    nvidia(Tree::new()).refuses(&["--vendor", "amd"], 4, "no GPU on this host: sysfs: no root/sys/class/kfd");
    both().refuses(&["--vendor", "amd", "--source", "procfs"], 2, "--vendor amd and --source procfs contradict each other");
    both().refuses(&["--vendor", "intel"], 2, "--vendor cannot be `intel`: it takes nvidia or amd");
}

#[test]
fn a_driver_without_a_device_is_no_obstacle() {
    let empty = with_kfd().tool("nvidia-smi", "echo 'No devices were found'; exit 6");
    let answer = empty.devices(&[]);
    assert_eq!(answer["source"], "sysfs");
    let warning = answer["warnings"][0].as_str().unwrap();
    assert!(warning.starts_with("AMD's GPUs are taken, since NVIDIA's driver has none: "), "{warning}");
    is_refused_if_strict(empty.program(&["devices"]), &empty.path("coordination"), warning);
    let processors = || Tree::new().file(&format!("{NODES}/0/gpu_id"), "0\n");
    let idle = processors().tool("amd-smi", "touch asked").tool("rocm-smi", "touch asked");
    idle.refuses(
        &[],
        4,
        "no GPU on this host: sysfs: root/sys/class/kfd/kfd/topology/nodes lists processors only; if",
    );
    assert!(!idle.path("asked").exists(), "KFD's word is enough");
    let processors = nvidia(processors());
    assert_eq!(processors.devices(&[])["warnings"], json!([]));
    assert_eq!(summary(&processors, &[]).0, "procfs");
}

/// The tool of the distribution, on a machine where it can find no GPU.
#[test]
fn the_real_rocm_smi_finds_none() {
    let found = Command::new("rocm-smi").arg("--help").output();
    if found.is_err() {
        return skip("the_real_rocm_smi_finds_none", "no rocm-smi in PATH");
    }
    if fs::exists("/sys/class/kfd").unwrap() {
        return skip("the_real_rocm_smi_finds_none", "this machine has AMD's driver");
    }
    let here = |args: &[&str]| {
        let mut command = assert_cmd::Command::new(PROGRAM);
        let assert = command.args([&["devices"], args].concat()).assert().code(4).stdout("");
        String::from_utf8(assert.get_output().stderr.clone()).unwrap()
    };
    let says =
        "no GPU on this host: rocm-smi: the driver amdgpu is not loaded (`ERROR:root:Driver not initialized";
    let stderr = here(&["--source", "rocm-smi", "--deadline", "60"]);
    assert!(stderr.contains(says), "{stderr}");
    let stderr = here(&["--vendor", "amd", "--deadline", "60"]);
    assert!(stderr.starts_with("gpu-coord: no GPU on this host: sysfs: no /sys/class/kfd/"), "{stderr}");
    assert!(stderr.contains("; rocm-smi: the driver amdgpu is not loaded"), "{stderr}");
}
