//! Owners below owners.

use super::cell::versions;
use super::stage::Stage;

/// It can open what was given to the owner above it, whatever it is given itself.
#[test]
fn a_descendant_of_a_confined_owner_asks_for_that_one() {
    for version in versions("a_descendant_of_a_confined_owner_asks_for_that_one") {
        let stage = Stage::with_gpus(version, 3);
        let mut owner = stage.owner();
        stage.confine(1, &owner, "0\n");
        let child = owner.tell("setsid bash\necho $$").trim().to_owned();
        let (pid, name) = (owner.pid(), stage.name(&owner));
        let problem = format!(
            "gpu-coord: pid {child} is in control group {name} and can open what pid {pid} was given, and nothing else; \
             ask for pid {pid} with --owner {pid}, or start it outside of that group\n"
        );
        for line in ["allocate 1", &format!("allocate 1 --cgroup={}", version.word())] {
            assert_eq!(owner.runs(line), (5, String::new(), problem.clone()), "{line}");
        }
        assert_eq!((owner.reach(), stage.sandbox.holders()), ("+--".to_owned(), vec![(0, pid)]));
        let answer = owner.runs(&format!("allocate 1 --owner {pid} --print host-index"));
        assert_eq!((answer, owner.reach()), ((0, "1\n".to_owned(), String::new()), "++-".to_owned()));
        assert_eq!(owner.runs(&format!("deallocateAll --owner {pid}")), (0, String::new(), String::new()));
        stage.assert_free(&mut owner);
    }
}

/// Whoever is confined on its own account keeps what it was given, and what it was kept from.
#[test]
fn a_descendant_that_is_confined_already_stays_where_it_is() {
    for version in versions("a_descendant_that_is_confined_already_stays_where_it_is") {
        let stage = Stage::with_gpus(version, 3);
        let mut owner = stage.owner();
        owner.tell("setsid bash");
        let own = format!("allocate 1 --cgroup={}", version.word());
        assert_eq!(owner.runs(&own), (0, "0\n".to_owned(), String::new()));
        stage.confine(1, &owner, "0\n");
        assert_eq!(owner.reach(), "+--", "the child");
        stage.release(&owner);
        assert_eq!((owner.reach(), stage.cell.children().len()), ("+--".to_owned(), 1), "the child");
        stage.confine(1, &owner, "0\n");
        assert_eq!(owner.runs("deallocateAll"), (0, String::new(), String::new()));
        assert_eq!(owner.reach(), "+++", "the child");
        owner.tell("exit");
        assert_eq!((owner.reach(), stage.cell.children()), ("-+-".to_owned(), vec![stage.name(&owner)]));
    }
}
