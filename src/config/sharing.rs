//! `sharing`: which resources several owners can hold at once.

use super::yaml::{Node, Position, Problem};
use super::{end, resource_name};

/// How a device is shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// The driver gives each process the whole device in turn.
    TimeSlicing,
    /// NVIDIA's Multi-Process Service: processes run at the same time, within limits that each client is told.
    Mps,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sharing {
    pub(crate) way: Way,
    /// Whether requests for more than one share are refused, since two shares do not give twice the power.
    pub(crate) fails_requests_greater_than_one: bool,
    pub(crate) resources: Vec<SharedResource>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SharedResource {
    /// `nvidia.com/gpu`, `nvidia.com/mig-1g.10gb`
    pub(crate) name: String,
    /// At least 2.
    pub(crate) replicas: u32,
    /// The name of its shares, if it differs from that of the resource.
    pub(crate) rename: Option<String>,
    pub(crate) devices: SharedDevices,
    pub(crate) position: Position,
}

/// Which devices of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SharedDevices {
    All,
    /// Only so many, from the first.
    Count(u32),
    /// Indexes, UUIDs, and `GPU:INSTANCE` by index.
    List(Vec<String>),
}

const MOST_REPLICAS: i64 = 4096;

pub(super) fn parse(node: Node<'_, '_>) -> Result<Option<Sharing>, Problem> {
    let mut keys = node.keys("sharing")?;
    let ways = [(Way::TimeSlicing, keys.take("timeSlicing")), (Way::Mps, keys.take("mps"))];
    end(keys)?;
    match ways {
        [(_, Some(_)), (_, Some(mps))] => Err(mps.problem("timeSlicing and mps exclude each other")),
        [(way, Some(node)), _] | [_, (way, Some(node))] => of_way(way, node).map(Some),
        [(_, None), (_, None)] => Ok(None),
    }
}

fn of_way(way: Way, node: Node<'_, '_>) -> Result<Sharing, Problem> {
    let mut keys = node.keys("sharing")?;
    let is_on = |node: Option<Node<'_, '_>>, what| node.map_or(Ok(false), |node| node.boolean(what));
    let renames = is_on(keys.take("renameByDefault"), "renameByDefault")?;
    let fails = is_on(keys.take("failRequestsGreaterThanOne"), "failRequestsGreaterThanOne")?;
    let list =
        keys.take("resources").ok_or_else(|| node.problem("`resources` is missing: what is to be shared"))?;
    end(keys)?;
    let items = list.sequence().ok_or_else(|| list.problem("resources takes a list"))?;
    if items.is_empty() {
        return Err(list.problem("resources is empty: what is to be shared"));
    }
    let resources: Vec<SharedResource> =
        items.into_iter().map(|item| resource(item, renames)).collect::<Result<_, _>>()?;
    if let Some(twice) =
        (1..resources.len()).find(|at| resources[..*at].iter().any(|other| other.name == resources[*at].name))
    {
        return Err(list.problem(format!("`{}` is shared twice", resources[twice].name)));
    }
    // Two MPS clients of one owner on a device get no more than one client: like the plugin, give an owner one share.
    Ok(Sharing { way, fails_requests_greater_than_one: fails || way == Way::Mps, resources })
}

fn resource(node: Node<'_, '_>, renames: bool) -> Result<SharedResource, Problem> {
    let mut keys = node.keys("a resource")?;
    let name = named("name", keys.take("name").ok_or_else(|| node.problem("`name` is missing"))?)?;
    let count =
        keys.take("replicas").ok_or_else(|| node.problem(format!("`replicas` of {name} is missing")))?;
    let replicas = count.integer().filter(|count| (2..=MOST_REPLICAS).contains(count));
    let replicas = replicas.and_then(|count| u32::try_from(count).ok());
    let replicas = replicas
        .ok_or_else(|| count.problem(format!("replicas takes a number from 2 to {MOST_REPLICAS}")))?;
    let rename = keys.take("rename").map(|node| named("rename", node)).transpose()?;
    let rename = rename.or_else(|| renames.then(|| format!("{name}.shared")));
    let devices = keys.take("devices").map_or(Ok(SharedDevices::All), devices)?;
    end(keys)?;
    Ok(SharedResource { name, replicas, rename, devices, position: node.position() })
}

fn named(key: &str, node: Node<'_, '_>) -> Result<String, Problem> {
    resource_name(&node.string(key)?, node)
}

fn devices(node: Node<'_, '_>) -> Result<SharedDevices, Problem> {
    let problem = || node.problem("devices takes `all`, a number of devices, or a list of indexes and UUIDs");
    if let Some(items) = node.sequence() {
        let names =
            items.into_iter().map(|item| item.text().ok_or_else(problem)).collect::<Result<_, _>>()?;
        return Ok(SharedDevices::List(names));
    }
    if let Some(count) = node.integer() {
        return u32::try_from(count)
            .ok()
            .filter(|count| *count > 0)
            .map(SharedDevices::Count)
            .ok_or_else(problem);
    }
    if node.text().as_deref() == Some("all") { Ok(SharedDevices::All) } else { Err(problem()) }
}
