//! A device that is shared opens for each of its owners, and the others stay closed.

use std::fs;

use super::cell::versions;
use super::stage::Stage;

const CONFIG: &str = "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 2}]}}\n";

#[test]
fn a_shared_device_opens_for_those_that_share_it() {
    for version in versions("a_shared_device_opens_for_those_that_share_it") {
        let stage = Stage::with_gpus(version, 2);
        fs::write(stage.sandbox.path().join("config.yaml"), CONFIG).unwrap();
        let mut owners = [stage.owner(), stage.owner(), stage.owner()];
        // Each counts from 0 what it can open.
        for (at, amount, words, answer) in
            [(0, 1, "--devices 0", "0\n"), (1, 2, "--policy pack", "0,1\n"), (2, 1, "", "0\n")]
        {
            let line = format!("{} --config config.yaml {words}", stage.line(amount, &owners[at]));
            stage.sandbox.answers(&line, answer);
        }
        assert_eq!(owners.each_mut().map(|owner| owner.reach()), ["+-", "++", "-+"]);
        stage.release(&owners[1]);
        assert_eq!(owners.each_mut().map(|owner| owner.reach()), ["+-", "++", "-+"]);
        stage.release(&owners[0]);
        stage.release(&owners[2]);
        owners.iter_mut().for_each(|owner| stage.assert_free(owner));
    }
}
