//! AMD's cards: a render node and a card node each, and one node of KFD that all share.
//!
//! The owner lives in a mount namespace whose `/sys` tells of two cards.

use super::cell::versions;
use super::stage::Stage;
use crate::sandbox::may_mount;

const CARDS: &str = r#"
    put() { mkdir -p "sys/${1%/*}" && printf "$2" >"sys/$1"; }
    nodes=class/kfd/kfd/topology/nodes
    put $nodes/0/gpu_id '0\n'
    put $nodes/0/properties 'cpu_cores_count 64\nsimd_count 0\n'
    card() { # node, place on the bus, the same for KFD, minors of the render node and of the card
        put $nodes/$1/gpu_id "4541$1\n"
        put $nodes/$1/properties "simd_count 416\ngfx_target_version 90010\nvendor_id 4098\nlocation_id $3\ndomain 0\ndrm_render_minor $4\nunique_id $3\n"
        put bus/pci/devices/$2/drm/renderD$4/dev "226:$4\n"
        put bus/pci/devices/$2/drm/card$5/dev "226:$5\n"
        put class/drm/renderD$4/dev "226:$4\n"
    }
    card 1 0000:43:00.0 17152 200 5
    card 2 0000:23:00.0 8960 201 6
    mkdir -p sys/fs/cgroup && mount --rbind /sys/fs/cgroup sys/fs/cgroup && mount --rbind sys /sys || exit 99
    exec setsid bash"#;
/// Of the first card, of the second, of a card that is none of AMD's, and KFD.
const NODES: [(u64, u64); 6] = [(226, 200), (226, 5), (226, 201), (226, 6), (226, 9), (510, 0)];

#[test]
fn both_nodes_of_the_others_are_denied_and_no_display() {
    let test = "both_nodes_of_the_others_are_denied_and_no_display";
    if !may_mount(test) {
        return;
    }
    for version in versions(test) {
        let stage = Stage::of(version, NODES.to_vec());
        (0..6).for_each(|at| stage.make_node(at));
        let mut owner = stage.owner_by(&["unshare", "-m", "bash", "-c", CARDS]);
        owner.tell("export GPU_COORD_SOURCE=sysfs");
        let line = format!("allocate 1 --cgroup={}", version.word());
        assert_eq!(owner.runs(&line), (0, "0\n".to_owned(), String::new()));
        assert_eq!(owner.reach(), "++--++", "{version:?}");
        for print in ["index", "env", "json", "spark"] {
            let (code, stdout, stderr) = owner.runs(&format!("{line} --print {print}"));
            assert!(
                code == 6 && stdout.is_empty() && stderr.contains("whose indexes would change"),
                "{stderr}"
            );
        }
        assert_eq!(
            owner.runs(&format!("{line} --print pci")),
            (0, "0000:23:00.0\n".to_owned(), String::new())
        );
        assert_eq!(owner.reach(), "++++++");
        assert_eq!(owner.runs("deallocateAll"), (0, String::new(), String::new()));
        let answer = owner.runs(&format!("{line} --print pci --devices 1"));
        assert_eq!(answer, (0, "0000:23:00.0\n".to_owned(), String::new()));
        assert_eq!(owner.reach(), "--++++");
        assert_eq!(owner.runs("deallocateAll"), (0, String::new(), String::new()));
        stage.assert_free(&mut owner);
    }
}
