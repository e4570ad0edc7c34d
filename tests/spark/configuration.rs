//! The two files of a worker's `conf`, as an administrator would write them.

use std::fs;
use std::path::Path;

use crate::GPU_COORD;

/// What Spark's own variables are to be here: one machine that does much else, and nothing from outside.
const FIXED: &str = "
SPARK_LOCAL_IP=127.0.0.1
SPARK_DAEMON_MEMORY=200m
SPARK_DAEMON_JAVA_OPTS='-XX:+UseSerialGC -XX:TieredStopAtLevel=1'
";

/// Spark calls its discovery script without a word, so that all of it is said by variables.
const OURS: &str = "
GPU_COORD_AMOUNT=AMOUNT_HERE
GPU_COORD_PRINT=spark
GPU_COORD_ENABLE_COORDINATION_MODE=1
";

/// Writes `directory` for workers of `amount` units each.
pub(crate) fn write(directory: &Path, amount: usize, record: &Path, source: &str) {
    fs::create_dir(directory).unwrap();
    let ours = OURS.replace("AMOUNT_HERE", &amount.to_string());
    let host = format!("GPU_COORD_SOURCE={source}\nGPU_COORD_COORDINATION_FILE={}\n", record.display());
    fs::write(directory.join("spark-env.sh"), format!("{FIXED}{ours}{host}")).unwrap();
    let resource = format!(
        "spark.worker.resource.gpu.amount {amount}\nspark.worker.resource.gpu.discoveryScript {GPU_COORD}\n"
    );
    fs::write(directory.join("spark-defaults.conf"), resource).unwrap();
}
