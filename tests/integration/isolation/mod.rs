//! `--cgroup`: an owner cannot open what it was not granted. Tested with the kernel, by owners that open the nodes.
//!
//! The nodes are of a major that no driver has: one that may be opened is answered ENXIO, and one that is denied
//! EPERM. Every test has control groups of its own, below the root of the hierarchy.

mod amd;
mod at_once;
mod attack;
mod bpf;
mod cell;
mod container;
mod crash;
mod descendants;
mod dying;
mod exec;
mod faults;
mod foreign;
mod handed;
mod mig;
mod namespaces;
mod nested;
mod numbering;
mod nvidia;
mod odd;
mod options;
mod orphans;
mod owner;
mod removed;
mod rights;
mod shared;
mod sources;
mod stage;
mod threads;
mod together;
mod told;
mod two_owners;
mod undo;
mod v1;

pub(crate) use stage::start_of;
