//! The MIG instances of divided cards, from two more calls: `-L` has their UUIDs and profiles, `-q -x` their places on the
//! card. Both number the instances of a card, and are joined by that number.
//!
//! The calls are made only if a card is divided, since each takes as long as the first. If the two disagree, as when an
//! administrator divides the card anew in between, neither an instance nor the whole card is offered
//! (`what_does_not_agree_is_not_offered`).

use crate::device::{Identity, Instance, Relation};
use crate::inventory::answer::Found;
use crate::inventory::health;
use crate::inventory::nvidia_smi::details::{self, Details, MigDevice};
use crate::inventory::nvidia_smi::listing::{self, Listed};
use crate::inventory::nvidia_smi::{TOOL, Tool, status};

/// What both calls say about all GPUs.
#[derive(Debug, Default)]
pub(super) struct Told {
    listed: Vec<(String, Vec<Listed>)>,
    pub(super) details: Vec<Details>,
}

/// Gives the divided devices their instances. Returns the answers of the calls, which others can use too.
pub(super) fn divide(found: &mut Found, tool: &Tool<'_>) -> Told {
    if found.devices.iter().all(|device| device.instances.is_none()) {
        return Told::default();
    }
    let told = ask(tool);
    for device in found.devices.iter_mut().filter(|device| device.instances.is_some()) {
        match told.as_ref().map_err(String::clone).and_then(|told| told.instances(&device.identity)) {
            Ok(instances) => device.instances = Some(instances),
            Err(why) => {
                found.warnings.push(format!("{TOOL}: {}", health::withheld_instances(device, &why)));
            }
        }
    }
    told.unwrap_or_default()
}

fn ask(tool: &Tool<'_>) -> Result<Told, String> {
    let listed = call(tool, &["-L"], listing::parse)?;
    let details = call(tool, &["-q", "-x"], details::parse)?;
    Ok(Told { listed, details })
}

/// The output counts, whatever the exit status says about some card; if it is unusable, the status says why.
fn call<T>(tool: &Tool<'_>, args: &[&str], parse: fn(&str) -> Result<T, String>) -> Result<T, String> {
    let of_call = |why: String| format!("`{TOOL} {}`: {why}", args.join(" "));
    let output = tool.run(args).map_err(|silence| of_call(silence.to_string()))?;
    match parse(&String::from_utf8_lossy(&output.stdout)) {
        Ok(told) if output.status.code().is_some() => Ok(told),
        Err(why) if output.status.success() => Err(of_call(why)),
        Ok(_) | Err(_) => Err(of_call(status::failed(&output).to_string())),
    }
}

impl Told {
    pub(super) fn of(&self, identity: &Identity) -> Option<&Details> {
        self.details.iter().find(|details| details.identity.relation(identity) == Relation::Same)
    }

    fn instances(&self, of: &Identity) -> Result<Vec<Instance>, String> {
        let listed = self.listed.iter().find(|(uuid, _)| of.uuid.as_ref() == Some(uuid));
        let (_, listed) = listed.ok_or_else(|| format!("`{TOOL} -L` does not list it"))?;
        let details = self.of(of).ok_or_else(|| format!("`{TOOL} -q -x` does not list it"))?;
        join(listed, &details.instances)
    }
}

/// The instances of one card, in the order of their numbers.
fn join(listed: &[Listed], places: &[MigDevice]) -> Result<Vec<Instance>, String> {
    let (mut listed, mut places) = (listed.to_vec(), places.to_vec());
    listed.sort_by_key(|instance| instance.number);
    places.sort_by_key(|place| place.number);
    let is_twice = listed.windows(2).any(|pair| pair[0].number == pair[1].number);
    let do_agree = listed.iter().map(|instance| instance.number).eq(places.iter().map(|place| place.number));
    if is_twice || !do_agree {
        return Err("`-L` and `-q -x` name different ones".to_owned());
    }
    listed.into_iter().zip(places).map(|(listed, place)| instance(listed, place)).collect()
}

fn instance(listed: Listed, place: MigDevice) -> Result<Instance, String> {
    let MigDevice { number, gpu_instance, compute_instance, memory_mib } = place;
    if listed.place().is_some_and(|of_uuid| of_uuid != (gpu_instance, compute_instance)) {
        return Err(format!("`-L` and `-q -x` have number {number} in different places"));
    }
    Ok(Instance {
        uuid: Some(listed.uuid),
        profile: Some(listed.profile),
        gpu_instance: Some(gpu_instance),
        compute_instance: Some(compute_instance),
        memory_mib,
        slots: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(number: u32, uuid: &str) -> Listed {
        Listed { number, uuid: uuid.to_owned(), profile: "1g.5gb".to_owned() }
    }

    fn place(number: u32, gpu_instance: u32) -> MigDevice {
        MigDevice { number, gpu_instance, compute_instance: 0, memory_mib: Some(4864) }
    }

    #[test]
    fn the_number_joins_and_not_the_order() {
        let instances = join(&[listed(0, "MIG-a"), listed(1, "MIG-b")], &[place(1, 9), place(0, 7)]).unwrap();
        let expected = |uuid: &str, gpu_instance| Instance {
            uuid: Some(uuid.to_owned()),
            profile: Some("1g.5gb".to_owned()),
            gpu_instance: Some(gpu_instance),
            compute_instance: Some(0),
            memory_mib: Some(4864),
            slots: None,
        };
        assert_eq!(instances, [expected("MIG-a", 7), expected("MIG-b", 9)]);
        assert_eq!(join(&[], &[]), Ok(Vec::new()), "divided, and into nothing yet");
        assert_eq!(join(&[listed(0, "MIG-GPU-x/7/0")], &[place(0, 7)]).unwrap().len(), 1);
    }

    #[test]
    #[rustfmt::skip] // a table
    fn what_does_not_agree_is_not_offered() {
        const DIFFERENT: &str = "`-L` and `-q -x` name different ones";
        for (case, listed, places, why) in [
            ("one is listed only",   vec![listed(0, "MIG-a"), listed(1, "MIG-b")], vec![place(0, 7)],              DIFFERENT),
            ("one is placed only",   vec![listed(0, "MIG-a")],                     vec![place(0, 7), place(1, 9)], DIFFERENT),
            ("other numbers",        vec![listed(0, "MIG-a")],                     vec![place(1, 7)],              DIFFERENT),
            ("one number twice",     vec![listed(0, "MIG-a"), listed(0, "MIG-b")], vec![place(0, 7), place(0, 9)], DIFFERENT),
            ("nothing is placed",    vec![listed(0, "MIG-a")],                     vec![],                         DIFFERENT),
            ("the UUID says other",  vec![listed(0, "MIG-GPU-x/8/0")],             vec![place(0, 7)],              "`-L` and `-q -x` have number 0 in different places"),
            ("the other part of it", vec![listed(0, "MIG-GPU-x/7/1")],             vec![place(0, 7)],              "`-L` and `-q -x` have number 0 in different places"),
        ] {
            assert_eq!(join(&listed, &places), Err(why.to_owned()), "{case}");
        }
    }

    #[test]
    fn a_card_is_found_in_both() {
        let identity = |uuid: &str| Identity { uuid: Some(uuid.to_owned()), ..Identity::default() };
        let details =
            |uuid: &str| Details { identity: identity(uuid), minor: None, instances: vec![place(0, 7)] };
        let told = Told {
            listed: ["GPU-1", "GPU-2"].map(|uuid| (uuid.to_owned(), vec![listed(0, "MIG-a")])).to_vec(),
            details: vec![details("GPU-1"), details("GPU-3")],
        };
        assert_eq!(told.instances(&identity("GPU-1")).unwrap().len(), 1);
        assert_eq!(told.instances(&identity("GPU-2")).unwrap_err(), "`nvidia-smi -q -x` does not list it");
        assert_eq!(told.instances(&identity("GPU-3")).unwrap_err(), "`nvidia-smi -L` does not list it");
    }
}
