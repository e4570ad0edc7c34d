//! Whether a node of the KFD topology is a GPU that this process can use.

use std::io;
use std::path::Path;

use nix::errno::Errno;

use crate::inventory::sysfs::drm::Drm;
use crate::inventory::sysfs::properties::{self, Properties};
use crate::inventory::sysfs::text;

/// What a node is.
#[derive(Debug, PartialEq)]
pub(super) enum Seen {
    Processor,
    /// A GPU that this process may not open.
    Withheld,
    Gpu(Gpu),
}

#[derive(Debug, PartialEq)]
pub(super) struct Gpu {
    pub(super) number: u32,
    /// KFD's own number for the GPU.
    pub(super) id: Option<u64>,
    /// Its properties, or why they cannot be read.
    pub(super) properties: Result<Properties, String>,
}

pub(super) fn inspect(number: u32, directory: &Path, drm: &Drm<'_>) -> Seen {
    let file = |name: &str| {
        let path = directory.join(number.to_string()).join(name);
        (text(&path), path)
    };
    let ((id, path), (properties, beside)) = (file("gpu_id"), file("properties"));
    let properties =
        properties.map_err(|err| format!("cannot read {}: {err}", beside.display())).and_then(|text| {
            properties::parse(&text).ok_or(format!("{} does not describe a node", beside.display()))
        });
    let minor = properties.as_ref().ok().and_then(|properties| properties.render_minor);
    match judge(number, id, &path, properties) {
        Seen::Gpu(_) if minor.is_some_and(|minor| drm.is_withheld(minor)) => Seen::Withheld,
        seen => seen,
    }
}

/// `id` is the text of the node's file `gpu_id`, at `path`.
fn judge(number: u32, id: io::Result<String>, path: &Path, properties: Result<Properties, String>) -> Seen {
    let gpu = |id, properties| Seen::Gpu(Gpu { number, id, properties });
    let simds = properties.as_ref().ok().and_then(|properties| properties.simds);
    match id.map(|id| id.parse::<u64>()) {
        // The kernel refuses this for a GPU that the control group may not open, and only for a GPU.
        Err(err) if err.raw_os_error() == Some(Errno::EPERM as i32) => Seen::Withheld,
        Ok(Ok(0)) => Seen::Processor,
        _ if simds == Some(0) => Seen::Processor,
        Ok(Ok(id)) => gpu(Some(id), properties),
        Ok(Err(_)) => gpu(None, Err(format!("{} holds no number", path.display()))),
        Err(err) if err.kind() == io::ErrorKind::NotFound && simds.is_some() => gpu(None, properties),
        Err(err) => gpu(None, Err(format!("cannot read {}: {err}", path.display()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(errno: Errno) -> io::Result<String> {
        Err(io::Error::from_raw_os_error(errno as i32))
    }

    fn id(text: &str) -> io::Result<String> {
        Ok(text.to_owned())
    }

    #[test]
    #[rustfmt::skip] // a table
    fn what_a_node_is() {
        const UNREADABLE: &str = "cannot read properties";
        for (case, id, properties, expected) in [
            ("a processor",               id("0"),                "simd_count 0\ncpu_cores_count 8", "processor"),
            ("one, by its properties",    id("7"),                "simd_count 0",                    "processor"),
            ("a GPU",                     id("45412"),            "simd_count 416",                  "GPU 45412"),
            ("of an unknown size",        id("45412"),            "drm_render_minor 128",            "GPU 45412"),
            ("hidden by a control group", refused(Errno::EPERM),  UNREADABLE,                        "withheld"),
            ("hidden but for this",       refused(Errno::EPERM),  "simd_count 416",                  "withheld"),
            ("no such file",              refused(Errno::ENOENT), "simd_count 416",                  "GPU without a number"),
            ("gone",                      refused(Errno::ENOENT), UNREADABLE,                        "sick: cannot read gpu_id: No such file or directory (os error 2)"),
            ("unreadable",                refused(Errno::EACCES), "simd_count 416",                  "sick: cannot read gpu_id: Permission denied (os error 13)"),
            ("half readable",             id("45412"),            UNREADABLE,                        "sick: cannot read properties"),
            ("no number",                 id("x"),                "simd_count 416",                  "sick: gpu_id holds no number"),
            ("empty",                     id(""),                 "simd_count 416",                  "sick: gpu_id holds no number"),
        ] {
            let properties = properties::parse(properties).ok_or(properties.to_owned());
            let seen = match judge(1, id, Path::new("gpu_id"), properties) {
                Seen::Processor => "processor".to_owned(),
                Seen::Withheld => "withheld".to_owned(),
                Seen::Gpu(Gpu { properties: Err(problem), .. }) => format!("sick: {problem}"),
                Seen::Gpu(Gpu { id: Some(id), .. }) => format!("GPU {id}"),
                Seen::Gpu(_) => "GPU without a number".to_owned(),
            };
            assert_eq!(seen, expected, "{case}");
        }
    }
}
