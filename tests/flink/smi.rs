//! A fake nvidia-smi: answers `--query-gpu` for GPUs that are not there.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::engines::environment::search_path;

/// Without a child process of its own, so that what it costs is not what is seen of its caller.
const SCRIPT: &str = r#"#!/bin/sh
unit=' MiB'
for word; do
  case $word in
    --query-gpu=*) fields=${word#*=} ;;
    --format=*nounits*) unit= ;;
  esac
done
[ -n "$fields" ] || { echo 'this fake answers --query-gpu alone' >&2; exit 2; }
IFS=,
for index in INDEXES; do
  separator=
  for field in $fields; do
    printf '%s' "$separator"
    separator=', '
    case $field in
      index) printf '%d' "$index" ;;
      uuid | gpu_uuid) printf 'GPU-%08x-1111-4222-8333-444444444444' "$index" ;;
      pci.bus_id | gpu_bus_id) printf '00000000:%02X:00.0' "$((index + 1))" ;;
      name | gpu_name) printf 'NVIDIA A100-SXM4-80GB' ;;
      memory.total) printf '81920%s' "$unit" ;;
      *) printf '[N/A]' ;;
    esac
  done
  echo
done
"#;

/// Puts it into the new `directory`. The `PATH` on which it is found first.
pub(crate) fn install(directory: &Path, gpus: usize) -> String {
    let indexes: Vec<String> = (0..gpus).map(|index| index.to_string()).collect();
    fs::create_dir(directory).unwrap();
    let file = directory.join("nvidia-smi");
    fs::write(&file, SCRIPT.replace("INDEXES", &indexes.join(" "))).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o755)).unwrap();
    format!("{}:{}", directory.display(), search_path())
}
