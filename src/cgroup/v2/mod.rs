//! cgroup v2: a program of ours in the kernel decides what the processes of a group may open.
