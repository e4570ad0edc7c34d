//! gpu-coord as the discovery script of real workers.

use std::collections::BTreeSet;

use crate::cluster::Cluster;

#[test]
fn workers_of_one_host_get_different_gpus_and_a_new_one_those_of_a_dead_one() {
    let mut cluster = Cluster::new(2, "simulated:4");
    let pids = cluster.add(2);
    let mut told = cluster.addresses();
    assert_eq!(told, cluster.recorded());
    assert_eq!(told.keys().collect::<BTreeSet<_>>(), pids.iter().collect());
    assert!(told.values().all(|indexes| indexes.len() == 2), "{told:?}");
    let all: BTreeSet<u32> = told.values().flatten().copied().collect();
    assert_eq!(all, BTreeSet::from([0, 1, 2, 3]));

    let left = told.remove(&pids[0]).unwrap();
    cluster.kill(pids[0]);
    told.insert(cluster.add(1)[0], left);
    assert_eq!(cluster.addresses(), told);
    assert_eq!(cluster.recorded(), told);
}

#[test]
fn a_worker_without_gpus_does_not_start_and_its_log_says_why() {
    let mut cluster = Cluster::new(2, "simulated:3");
    cluster.add(1);
    let held = cluster.recorded();
    let log = cluster.start().last_words();
    let says = "gpu-coord: 2 units asked for, 1 of 3 can be given: 2 held by living owners (`gpu-coord status` names them)";
    assert!(log.lines().any(|line| line.ends_with(says)), "no `{says}` in the log:\n{log}");
    assert_eq!(cluster.recorded(), held);
    assert_eq!(cluster.addresses(), held);
}
