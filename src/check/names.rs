//! The names of device plugins' resources, and what a misspelt name was meant to be.

use crate::nearest::nearest;

const DOMAINS: [&str; 2] = ["nvidia.com", "amd.com"];
/// What NVIDIA's plugin offers besides MIG instances. AMD's offers only the first.
const DEVICES: [&str; 2] = ["gpu", "gpu.shared"];
/// Names of other plugins in these domains that resemble the ones above.
const OF_OTHERS: [&str; 3] = ["vgpu", "pgpu", "gpumem"];

/// Whether a resource is not one of Kubernetes' own.
pub(super) fn is_extended(name: &str) -> bool {
    name.contains('/')
}

/// Whether it is a kind of GPU.
pub(super) fn is_device(name: &str) -> bool {
    name.split_once('/').is_some_and(|(domain, _)| DOMAINS.contains(&domain))
}

/// What is wrong with the name of a resource; `known`: names that a configuration gives.
pub(super) fn mistake(name: &str, known: &[&str]) -> Option<String> {
    if known.contains(&name) {
        return None;
    }
    let Some((domain, kind)) = name.split_once('/') else { return without_domain(name) };
    let (near, is_exact) = match nearest(domain, DOMAINS.into_iter()) {
        _ if domain == "alpha.kubernetes.io" && kind == "nvidia-gpu" => ("nvidia.com", false),
        Some(near) => (near, near == domain),
        None => return None,
    };
    let kind = if domain == "alpha.kubernetes.io" { "gpu" } else { kind };
    if let Some(profile) = kind.strip_prefix("mig-") {
        return mig(name, near, profile, is_exact);
    }
    if is_exact && (DEVICES.contains(&kind) || OF_OTHERS.contains(&kind)) {
        return None;
    }
    let configured =
        known.iter().filter_map(|known| known.split_once('/')).filter(|(domain, _)| *domain == near);
    let meant = nearest(kind, DEVICES.into_iter().chain(configured.map(|(_, kind)| kind)))?;
    Some(wrong(name, format!("{near}/{meant}")))
}

fn wrong(name: &str, meant: String) -> String {
    format!("`{name}` is not a resource of a device plugin; did you mean `{meant}`?")
}

/// The resources of Kubernetes itself have no domain, and none of them is a GPU.
fn without_domain(name: &str) -> Option<String> {
    let lower = name.to_lowercase();
    let vendor = if lower.contains("amd") { "amd.com" } else { "nvidia.com" };
    lower.contains("gpu").then(|| wrong(name, format!("{vendor}/gpu")))
}

/// `1g.10gb`, `1c.3g.20gb`, `1g.5gb.me`, `1g.10gb.shared`
fn mig(name: &str, domain: &str, profile: &str, is_exact: bool) -> Option<String> {
    let parts: Vec<&str> = profile.split('.').collect();
    let is_number = |text: Option<&str>| {
        text.is_some_and(|text| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let ends = |suffix: &'static str| move |part: &&str| is_number(part.strip_suffix(suffix));
    let is_profile = parts.iter().any(|part| ends("g")(part)) && parts.iter().any(|part| ends("gb")(part));
    if is_profile && is_exact {
        return None;
    }
    if is_profile {
        return Some(wrong(name, format!("{domain}/mig-{profile}")));
    }
    Some(format!("`{name}` names no MIG profile, such as {domain}/mig-1g.10gb"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_right_or_not_ours() {
        for name in [
            "cpu",
            "memory",
            "ephemeral-storage",
            "hugepages-2Mi",
            "nvidia.com/gpu",
            "nvidia.com/gpu.shared",
            "nvidia.com/mig-1g.10gb",
            "nvidia.com/mig-1c.3g.20gb",
            "nvidia.com/mig-1g.5gb.me",
            "nvidia.com/mig-1g.10gb.shared",
            "nvidia.com/gpucores",
            "nvidia.com/gpumem",
            "nvidia.com/gpumem-percentage",
            "nvidia.com/vgpu",
            "nvidia.com/GRID_T4-1Q",
            "nvidia.com/hostdev",
            "amd.com/gpu",
            "intel.com/gpu",
            "gpu.intel.com/i915",
            "rdma/hca",
            "example.com/dongle",
            "aliyun.com/gpu-mem",
            "volcano.sh/vgpu-number",
            "nvidia.com/small",
        ] {
            assert_eq!(mistake(name, &["nvidia.com/small"]), None, "{name}");
        }
    }

    #[test]
    #[rustfmt::skip] // a table
    fn names_that_are_misspelt() {
        for (name, meant) in [
            ("nvidia.com/gpus",        "nvidia.com/gpu"),
            ("nvidia.com/GPU",         "nvidia.com/gpu"),
            ("nvidia.com/gup",         "nvidia.com/gpu"),
            ("nvidia/gpu",             "nvidia.com/gpu"),
            ("nvida.com/gpu",          "nvidia.com/gpu"),
            ("Nvidia.com/gpu",         "nvidia.com/gpu"),
            ("nvidia.com/gpu-shared",  "nvidia.com/gpu.shared"),
            ("nvidia.com/gpu.share",   "nvidia.com/gpu.shared"),
            ("amd.com/gpus",           "amd.com/gpu"),
            ("amd/gpu",                "amd.com/gpu"),
            ("nvidia.com/smal",        "nvidia.com/small"),
            ("nvidia/mig-1g.10gb",     "nvidia.com/mig-1g.10gb"),
            ("alpha.kubernetes.io/nvidia-gpu", "nvidia.com/gpu"),
            ("gpu",                    "nvidia.com/gpu"),
            ("nvidia.com.gpu",         "nvidia.com/gpu"),
            ("amd-gpu",                "amd.com/gpu"),
        ] {
            let says = format!("`{name}` is not a resource of a device plugin; did you mean `{meant}`?");
            assert_eq!(mistake(name, &["nvidia.com/small"]), Some(says));
        }
        for name in ["nvidia.com/mig-10gb", "nvidia.com/mig-1g", "nvidia.com/mig-", "nvidia.com/mig-g.gb"] {
            let says = format!("`{name}` names no MIG profile, such as nvidia.com/mig-1g.10gb");
            assert_eq!(mistake(name, &[]), Some(says));
        }
    }
}
