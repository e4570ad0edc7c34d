//! What `nvidia-smi -q -x` prints: everything about each GPU, as XML. Only what no other call reports is read.
//!
//! Elements come and go with the version (`nvsmi_device_v10.dtd` to `v13` have been seen), so an element that is missing
//! or malformed affects only its own value.

use roxmltree::{Document, Node, ParsingOptions};

use crate::device::{self, Identity};
use crate::inventory::text::quote;

/// Where the document begins and ends; there may be messages around it.
const BEGINNING: &str = "<?xml";
const END: &str = "</nvidia_smi_log>";

/// A GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Details {
    pub(super) identity: Identity,
    pub(super) minor: Option<u32>,
    pub(super) instances: Vec<MigDevice>,
}

/// A MIG instance, by its number on its GPU; it has no UUID here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MigDevice {
    pub(super) number: u32,
    pub(super) gpu_instance: u32,
    pub(super) compute_instance: u32,
    pub(super) memory_mib: Option<u64>,
}

pub(super) fn parse(stdout: &str) -> Result<Vec<Details>, String> {
    let begin = stdout.find(BEGINNING).ok_or("it printed no XML")?;
    let end = stdout.rfind(END).filter(|end| *end > begin).ok_or("its XML is cut short")?;
    // It names a DTD, which is never looked for.
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    let document = Document::parse_with_options(&stdout[begin..end + END.len()], options)
        .map_err(|err| format!("it printed XML that is wrong: {}", quote(&err.to_string())))?;
    Ok(children(document.root_element(), "gpu").map(details).collect())
}

fn details(gpu: Node<'_, '_>) -> Details {
    let instances = child(gpu, "mig_devices").into_iter().flat_map(|list| children(list, "mig_device"));
    let pci = gpu.attribute("id").and_then(|address| address.parse().ok());
    let uuid = text(gpu, "uuid").and_then(device::uuid);
    Details {
        identity: Identity { uuid, pci, id: None },
        minor: number(gpu, "minor_number"),
        instances: instances.filter_map(place).collect(),
    }
}

fn place(instance: Node<'_, '_>) -> Option<MigDevice> {
    let memory = child(instance, "fb_memory_usage").and_then(|memory| text(memory, "total"));
    Some(MigDevice {
        number: number(instance, "index")?,
        gpu_instance: number(instance, "gpu_instance_id")?,
        compute_instance: number(instance, "compute_instance_id")?,
        memory_mib: memory.and_then(|memory| memory.strip_suffix("MiB")?.trim().parse().ok()),
    })
}

fn children<'a, 'input>(of: Node<'a, 'input>, name: &'static str) -> impl Iterator<Item = Node<'a, 'input>> {
    of.children().filter(move |node| node.has_tag_name(name))
}

fn child<'a, 'input>(of: Node<'a, 'input>, name: &'static str) -> Option<Node<'a, 'input>> {
    children(of, name).next()
}

fn text<'a>(of: Node<'a, '_>, name: &'static str) -> Option<&'a str> {
    child(of, name)?.text().map(str::trim)
}

fn number(of: Node<'_, '_>, name: &'static str) -> Option<u32> {
    text(of, name)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A document of one GPU with these elements.
    fn document(elements: &str) -> String {
        format!(
            "<?xml version=\"1.0\" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM \"nvsmi_device_v12.dtd\">\n\
             <nvidia_smi_log>\n\t<driver_version>535.54.03</driver_version>\n\t<gpu id=\"00000000:01:00.0\">\n\
             {elements}\n\t</gpu>\n</nvidia_smi_log>\n"
        )
    }

    fn only(elements: &str) -> Details {
        let mut gpus = parse(&document(elements)).expect(elements);
        assert_eq!(gpus.len(), 1, "{elements}");
        gpus.remove(0)
    }

    fn place(number: u32, gpu_instance: u32, compute_instance: u32, memory_mib: Option<u64>) -> MigDevice {
        MigDevice { number, gpu_instance, compute_instance, memory_mib }
    }

    #[test]
    fn a_gpu_and_its_instances() {
        let told = only(
            "<uuid>GPU-1</uuid><minor_number>3</minor_number><fb_memory_usage><total>81920 MiB</total></fb_memory_usage>
             <mig_devices>
               <mig_device><index>0</index><gpu_instance_id>3</gpu_instance_id><compute_instance_id>0</compute_instance_id>
                 <fb_memory_usage><total>9856 MiB</total><used>1 MiB</used></fb_memory_usage></mig_device>
               <mig_device><index>1</index><gpu_instance_id>3</gpu_instance_id><compute_instance_id>1</compute_instance_id></mig_device>
             </mig_devices>",
        );
        let identity =
            Identity { uuid: Some("GPU-1".to_owned()), pci: "0000:01:00.0".parse().ok(), id: None };
        let instances = vec![place(0, 3, 0, Some(9856)), place(1, 3, 1, None)];
        assert_eq!(told, Details { identity, minor: Some(3), instances });
    }

    #[test]
    #[rustfmt::skip] // a table
    fn elements_come_and_go() {
        for (case, elements, minor, instances) in [
            ("an old version",    "<uuid>GPU-1</uuid>",                                                 None,    0),
            ("no minor",          "<minor_number>N/A</minor_number>",                                  None,    0),
            ("no instance",       "<minor_number>0</minor_number><mig_devices>\n\tNone\n\t</mig_devices>", Some(0), 0),
            ("an empty list",     "<minor_number>0</minor_number><mig_devices/>",                       Some(0), 0),
            ("no place",          "<mig_devices><mig_device><index>0</index><gpu_instance_id>N/A</gpu_instance_id><compute_instance_id>0</compute_instance_id></mig_device></mig_devices>", None, 0),
            ("processes of it",   "<processes><process_info><gpu_instance_id>1</gpu_instance_id></process_info></processes>", None, 0),
        ] {
            let told = only(elements);
            assert_eq!((told.minor, told.instances.len()), (minor, instances), "{case}");
            assert_eq!(told.identity.pci, "0000:01:00.0".parse().ok(), "{case}");
        }
    }

    #[test]
    #[rustfmt::skip] // a table
    fn sentences_around_it_are_passed_over_and_half_of_it_is_refused() {
        let whole = document("<uuid>GPU-1</uuid>");
        let around = format!("Unable to determine the device handle for GPU 0000:02:00.0\n{whole}WARNING: infoROM\n");
        assert_eq!(parse(&around).unwrap().len(), 1);
        for (case, text, says) in [
            ("nothing",        String::new(),                                "it printed no XML"),
            ("a sentence",     "NVIDIA-SMI has failed".to_owned(),           "it printed no XML"),
            ("cut short",      whole[..whole.len() - 10].to_owned(),         "its XML is cut short"),
            ("wrong",          document("<uuid>GPU-1</gpu>"),                "it printed XML that is wrong: "),
            ("a bomb",         whole.replacen("SYSTEM \"nvsmi_device_v12.dtd\"", "[<!ENTITY a \"x\"><!ENTITY b \"&b;\">]", 1).replace("GPU-1", "&b;"), "it printed XML that is wrong: "),
        ] {
            let problem = parse(&text).expect_err(case);
            assert!(problem.starts_with(says), "{case}: {problem}");
        }
    }
}
