# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_gpu_coord_global_optspecs
    string join \n h/help V/version
end

function __fish_gpu_coord_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_gpu_coord_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_gpu_coord_using_subcommand
    set -l cmd (__fish_gpu_coord_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

function __fish_gpu_coord_using_amount
    set -l cmd (__fish_gpu_coord_needs_command)
    string match -qr '^[0-9]+$' -- $cmd[1]
end

complete -c gpu-coord -n "__fish_gpu_coord_needs_command" -s h -l help -d 'Print help'
complete -c gpu-coord -n "__fish_gpu_coord_needs_command" -s V -l version -d 'Print version'
complete -c gpu-coord -n "__fish_gpu_coord_needs_command" -f -a "1" -d 'Print the first AMOUNT units, or coordinate with --enable-coordination-mode: the form that Flink calls'
complete -c gpu-coord -n "__fish_gpu_coord_needs_command" -f -a "allocate" -d 'Assign AMOUNT units to the calling process and print them'
complete -c gpu-coord -n "__fish_gpu_coord_needs_command" -f -a "exec" -d 'Take AMOUNT units and become COMMAND'
complete -c gpu-coord -n "__fish_gpu_coord_needs_command" -f -a "deallocateAll" -d 'Give back all units of the calling process'
complete -c gpu-coord -n "__fish_gpu_coord_needs_command" -f -a "deallocate-all" -d 'Give back all units of the calling process'
complete -c gpu-coord -n "__fish_gpu_coord_needs_command" -f -a "reclaim" -d 'Release what dead owners left behind'
complete -c gpu-coord -n "__fish_gpu_coord_needs_command" -f -a "release" -d 'Release by hand a unit whose owner cannot be judged'
complete -c gpu-coord -n "__fish_gpu_coord_needs_command" -f -a "drain" -d 'Keep a unit from being granted'
complete -c gpu-coord -n "__fish_gpu_coord_needs_command" -f -a "undrain" -d 'Allow a drained unit to be granted again'
complete -c gpu-coord -n "__fish_gpu_coord_needs_command" -f -a "status" -d 'Show who holds what'
complete -c gpu-coord -n "__fish_gpu_coord_needs_command" -f -a "doctor" -d 'Check whether this host is set up correctly, and say what to do if not'
complete -c gpu-coord -n "__fish_gpu_coord_needs_command" -f -a "devices" -d 'Show the devices of this host and their health'
complete -c gpu-coord -n "__fish_gpu_coord_needs_command" -f -a "check" -d 'Check Flink and Kubernetes configurations before they are deployed'
complete -c gpu-coord -n "__fish_gpu_coord_needs_command" -f -a "help" -d 'Print the help of a command'
complete -c gpu-coord -n "__fish_gpu_coord_using_amount" -l print -d 'What to print: index (as the owner\'s CUDA counts), host-index, uuid, pci, env, json or spark' -r -f -a "index\t''
host-index\t''
uuid\t''
pci\t''
env\t''
json\t''
spark\t''"
complete -c gpu-coord -n "__fish_gpu_coord_using_amount" -l owner -d 'The process that holds the units, instead of the calling one' -r -f
complete -c gpu-coord -n "__fish_gpu_coord_using_amount" -l resource -d 'Kind of units: nvidia.com/gpu, nvidia.com/gpu.shared, nvidia.com/mig-1g.10gb, ...' -r -f
complete -c gpu-coord -n "__fish_gpu_coord_using_amount" -l policy -d 'How to choose shares of shared devices: spread over many devices, or pack few' -r -f -a "spread\t''
pack\t''"
complete -c gpu-coord -n "__fish_gpu_coord_using_amount" -l namespace -d 'Count the units against this namespace\'s quota, instead of the owner\'s user' -r -f
complete -c gpu-coord -n "__fish_gpu_coord_using_amount" -l devices -d 'Only these devices: indexes, ranges (2-5), UUIDs or prefixes, PCI addresses, ids' -r -f
complete -c gpu-coord -n "__fish_gpu_coord_using_amount" -l exclude -d 'All devices but these' -r -f
complete -c gpu-coord -n "__fish_gpu_coord_using_amount" -l cgroup -d 'Let the owner open only what it is granted: v1, v2, either (no value), or best-effort' -r -f -a "v1\t''
v2\t''
best-effort\t''"
complete -c gpu-coord -n "__fish_gpu_coord_using_amount" -l coordination-file -d 'The file that records who holds what' -r -F
complete -c gpu-coord -n "__fish_gpu_coord_using_amount" -l source -d 'Where devices are read: auto, nvml, nvidia-smi, procfs, sysfs, amd-smi, rocm-smi, file:PATH, simulated:N' -r -f -a "auto\t''
nvml\t''
nvidia-smi\t''
procfs\t''
sysfs\t''
amd-smi\t''
rocm-smi\t''
file:\t''
simulated:\t''"
complete -c gpu-coord -n "__fish_gpu_coord_using_amount" -l vendor -d 'Which GPUs auto uses on a host that has both: nvidia or amd' -r -f -a "nvidia\t''
amd\t''"
complete -c gpu-coord -n "__fish_gpu_coord_using_amount" -l driver-root -d 'Use the NVML library and nvidia-smi below this directory, the root of a driver container' -r -f -a "(__fish_complete_directories)"
complete -c gpu-coord -n "__fish_gpu_coord_using_amount" -l deadline -d 'Time limit for the whole run, in seconds' -r -f
complete -c gpu-coord -n "__fish_gpu_coord_using_amount" -l config -d 'Shared devices, quotas and defaults of options [default: /etc/gpu-coord/config.yaml, if it exists]' -r -F
complete -c gpu-coord -n "__fish_gpu_coord_using_amount" -l config-key -d 'Which entry of a ConfigMap with several configurations' -r
complete -c gpu-coord -n "__fish_gpu_coord_using_amount" -l log -d 'Where to write the history: auto (journal or syslog), none, or the path of a file' -r
complete -c gpu-coord -n "__fish_gpu_coord_using_amount" -l root -d 'Read /proc, /sys and /dev below this directory' -r -f -a "(__fish_complete_directories)"
complete -c gpu-coord -n "__fish_gpu_coord_using_amount" -l enable-coordination-mode -d 'Record the assignment in the coordination file (default for `allocate`)'
complete -c gpu-coord -n "__fish_gpu_coord_using_amount" -l no-coordination -d 'Print the first units and record nothing (default for the bare form)'
complete -c gpu-coord -n "__fish_gpu_coord_using_amount" -l check-dead -d 'Take over the units of dead owners (the bare form always does)'
complete -c gpu-coord -n "__fish_gpu_coord_using_amount" -l ignore-visible-devices -d 'Ignore CUDA_, NVIDIA_, ROCR_ and HIP_VISIBLE_DEVICES'
complete -c gpu-coord -n "__fish_gpu_coord_using_amount" -l include-unhealthy -d 'Grant sick devices too, after the sound ones'
complete -c gpu-coord -n "__fish_gpu_coord_using_amount" -l skip-busy -d 'Never grant a device on which others compute (by default it is granted last)'
complete -c gpu-coord -n "__fish_gpu_coord_using_amount" -l more -d 'Inside `gpu-coord exec`: ask for units in addition to those of exec'
complete -c gpu-coord -n "__fish_gpu_coord_using_amount" -l strict -d 'Treat every warning as an error: print no answer and assign nothing'
complete -c gpu-coord -n "__fish_gpu_coord_using_amount" -s v -l verbose -d 'Explain on stderr how the answer was found'
complete -c gpu-coord -n "__fish_gpu_coord_using_amount" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand allocate" -l print -d 'What to print: index (as the owner\'s CUDA counts), host-index, uuid, pci, env, json or spark' -r -f -a "index\t''
host-index\t''
uuid\t''
pci\t''
env\t''
json\t''
spark\t''"
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand allocate" -l owner -d 'The process that holds the units, instead of the calling one' -r -f
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand allocate" -l resource -d 'Kind of units: nvidia.com/gpu, nvidia.com/gpu.shared, nvidia.com/mig-1g.10gb, ...' -r -f
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand allocate" -l policy -d 'How to choose shares of shared devices: spread over many devices, or pack few' -r -f -a "spread\t''
pack\t''"
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand allocate" -l namespace -d 'Count the units against this namespace\'s quota, instead of the owner\'s user' -r -f
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand allocate" -l devices -d 'Only these devices: indexes, ranges (2-5), UUIDs or prefixes, PCI addresses, ids' -r -f
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand allocate" -l exclude -d 'All devices but these' -r -f
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand allocate" -l cgroup -d 'Let the owner open only what it is granted: v1, v2, either (no value), or best-effort' -r -f -a "v1\t''
v2\t''
best-effort\t''"
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand allocate" -l coordination-file -d 'The file that records who holds what' -r -F
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand allocate" -l source -d 'Where devices are read: auto, nvml, nvidia-smi, procfs, sysfs, amd-smi, rocm-smi, file:PATH, simulated:N' -r -f -a "auto\t''
nvml\t''
nvidia-smi\t''
procfs\t''
sysfs\t''
amd-smi\t''
rocm-smi\t''
file:\t''
simulated:\t''"
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand allocate" -l vendor -d 'Which GPUs auto uses on a host that has both: nvidia or amd' -r -f -a "nvidia\t''
amd\t''"
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand allocate" -l driver-root -d 'Use the NVML library and nvidia-smi below this directory, the root of a driver container' -r -f -a "(__fish_complete_directories)"
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand allocate" -l deadline -d 'Time limit for the whole run, in seconds' -r -f
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand allocate" -l config -d 'Shared devices, quotas and defaults of options [default: /etc/gpu-coord/config.yaml, if it exists]' -r -F
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand allocate" -l config-key -d 'Which entry of a ConfigMap with several configurations' -r
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand allocate" -l log -d 'Where to write the history: auto (journal or syslog), none, or the path of a file' -r
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand allocate" -l root -d 'Read /proc, /sys and /dev below this directory' -r -f -a "(__fish_complete_directories)"
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand allocate" -l enable-coordination-mode -d 'Record the assignment in the coordination file (default for `allocate`)'
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand allocate" -l no-coordination -d 'Print the first units and record nothing (default for the bare form)'
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand allocate" -l check-dead -d 'Take over the units of dead owners (the bare form always does)'
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand allocate" -l ignore-visible-devices -d 'Ignore CUDA_, NVIDIA_, ROCR_ and HIP_VISIBLE_DEVICES'
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand allocate" -l include-unhealthy -d 'Grant sick devices too, after the sound ones'
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand allocate" -l skip-busy -d 'Never grant a device on which others compute (by default it is granted last)'
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand allocate" -l more -d 'Inside `gpu-coord exec`: ask for units in addition to those of exec'
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand allocate" -l strict -d 'Treat every warning as an error: print no answer and assign nothing'
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand allocate" -s v -l verbose -d 'Explain on stderr how the answer was found'
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand allocate" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand exec" -l user -d 'Run COMMAND as this user, with no more privileges than that user has' -r -f -a "(__fish_complete_users)"
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand exec" -l wait -d 'Queue until the units are free, for at most SECONDS or without limit (no value)' -r
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand exec" -l resource -d 'Kind of units: nvidia.com/gpu, nvidia.com/gpu.shared, nvidia.com/mig-1g.10gb, ...' -r -f
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand exec" -l policy -d 'How to choose shares of shared devices: spread over many devices, or pack few' -r -f -a "spread\t''
pack\t''"
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand exec" -l namespace -d 'Count the units against this namespace\'s quota, instead of the owner\'s user' -r -f
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand exec" -l devices -d 'Only these devices: indexes, ranges (2-5), UUIDs or prefixes, PCI addresses, ids' -r -f
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand exec" -l exclude -d 'All devices but these' -r -f
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand exec" -l cgroup -d 'Let the owner open only what it is granted: v1, v2, either (no value), or best-effort' -r -f -a "v1\t''
v2\t''
best-effort\t''"
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand exec" -l coordination-file -d 'The file that records who holds what' -r -F
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand exec" -l source -d 'Where devices are read: auto, nvml, nvidia-smi, procfs, sysfs, amd-smi, rocm-smi, file:PATH, simulated:N' -r -f -a "auto\t''
nvml\t''
nvidia-smi\t''
procfs\t''
sysfs\t''
amd-smi\t''
rocm-smi\t''
file:\t''
simulated:\t''"
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand exec" -l vendor -d 'Which GPUs auto uses on a host that has both: nvidia or amd' -r -f -a "nvidia\t''
amd\t''"
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand exec" -l driver-root -d 'Use the NVML library and nvidia-smi below this directory, the root of a driver container' -r -f -a "(__fish_complete_directories)"
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand exec" -l deadline -d 'Time limit for the whole run, in seconds' -r -f
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand exec" -l config -d 'Shared devices, quotas and defaults of options [default: /etc/gpu-coord/config.yaml, if it exists]' -r -F
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand exec" -l config-key -d 'Which entry of a ConfigMap with several configurations' -r
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand exec" -l log -d 'Where to write the history: auto (journal or syslog), none, or the path of a file' -r
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand exec" -l root -d 'Read /proc, /sys and /dev below this directory' -r -f -a "(__fish_complete_directories)"
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand exec" -l ignore-visible-devices -d 'Ignore CUDA_, NVIDIA_, ROCR_ and HIP_VISIBLE_DEVICES'
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand exec" -l include-unhealthy -d 'Grant sick devices too, after the sound ones'
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand exec" -l skip-busy -d 'Never grant a device on which others compute (by default it is granted last)'
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand exec" -l more -d 'Inside `gpu-coord exec`: ask for units in addition to those of exec'
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand exec" -l strict -d 'Treat every warning as an error: print no answer and assign nothing'
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand exec" -s v -l verbose -d 'Explain on stderr how the answer was found'
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand exec" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand deallocateAll" -l coordination-file -d 'The file that records who holds what' -r -F
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand deallocateAll" -l owner -d 'The process that holds the units, instead of the calling one' -r -f
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand deallocateAll" -l deadline -d 'Time limit for the whole run, in seconds' -r -f
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand deallocateAll" -l config -d 'Shared devices, quotas and defaults of options [default: /etc/gpu-coord/config.yaml, if it exists]' -r -F
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand deallocateAll" -l config-key -d 'Which entry of a ConfigMap with several configurations' -r
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand deallocateAll" -l log -d 'Where to write the history: auto (journal or syslog), none, or the path of a file' -r
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand deallocateAll" -l root -d 'Read /proc, /sys and /dev below this directory' -r -f -a "(__fish_complete_directories)"
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand deallocateAll" -l strict -d 'Treat every warning as an error: print no answer and assign nothing'
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand deallocateAll" -s v -l verbose -d 'Explain on stderr how the answer was found'
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand deallocateAll" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand deallocate-all" -l coordination-file -d 'The file that records who holds what' -r -F
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand deallocate-all" -l owner -d 'The process that holds the units, instead of the calling one' -r -f
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand deallocate-all" -l deadline -d 'Time limit for the whole run, in seconds' -r -f
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand deallocate-all" -l config -d 'Shared devices, quotas and defaults of options [default: /etc/gpu-coord/config.yaml, if it exists]' -r -F
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand deallocate-all" -l config-key -d 'Which entry of a ConfigMap with several configurations' -r
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand deallocate-all" -l log -d 'Where to write the history: auto (journal or syslog), none, or the path of a file' -r
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand deallocate-all" -l root -d 'Read /proc, /sys and /dev below this directory' -r -f -a "(__fish_complete_directories)"
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand deallocate-all" -l strict -d 'Treat every warning as an error: print no answer and assign nothing'
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand deallocate-all" -s v -l verbose -d 'Explain on stderr how the answer was found'
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand deallocate-all" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand reclaim" -l coordination-file -d 'The file that records who holds what' -r -F
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand reclaim" -l source -d 'Where devices are read: auto, nvml, nvidia-smi, procfs, sysfs, amd-smi, rocm-smi, file:PATH, simulated:N' -r -f -a "auto\t''
nvml\t''
nvidia-smi\t''
procfs\t''
sysfs\t''
amd-smi\t''
rocm-smi\t''
file:\t''
simulated:\t''"
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand reclaim" -l vendor -d 'Which GPUs auto uses on a host that has both: nvidia or amd' -r -f -a "nvidia\t''
amd\t''"
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand reclaim" -l driver-root -d 'Use the NVML library and nvidia-smi below this directory, the root of a driver container' -r -f -a "(__fish_complete_directories)"
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand reclaim" -l deadline -d 'Time limit for the whole run, in seconds' -r -f
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand reclaim" -l config -d 'Shared devices, quotas and defaults of options [default: /etc/gpu-coord/config.yaml, if it exists]' -r -F
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand reclaim" -l config-key -d 'Which entry of a ConfigMap with several configurations' -r
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand reclaim" -l log -d 'Where to write the history: auto (journal or syslog), none, or the path of a file' -r
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand reclaim" -l root -d 'Read /proc, /sys and /dev below this directory' -r -f -a "(__fish_complete_directories)"
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand reclaim" -l dry-run -d 'Print what would be released, and release nothing'
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand reclaim" -l force -d 'Also release what processes that outlived their owner may still use; they are named, not killed'
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand reclaim" -l strict -d 'Treat every warning as an error: print no answer and assign nothing'
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand reclaim" -s v -l verbose -d 'Explain on stderr how the answer was found'
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand reclaim" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand release" -l coordination-file -d 'The file that records who holds what' -r -F
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand release" -l source -d 'Where devices are read: auto, nvml, nvidia-smi, procfs, sysfs, amd-smi, rocm-smi, file:PATH, simulated:N' -r -f -a "auto\t''
nvml\t''
nvidia-smi\t''
procfs\t''
sysfs\t''
amd-smi\t''
rocm-smi\t''
file:\t''
simulated:\t''"
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand release" -l vendor -d 'Which GPUs auto uses on a host that has both: nvidia or amd' -r -f -a "nvidia\t''
amd\t''"
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand release" -l driver-root -d 'Use the NVML library and nvidia-smi below this directory, the root of a driver container' -r -f -a "(__fish_complete_directories)"
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand release" -l deadline -d 'Time limit for the whole run, in seconds' -r -f
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand release" -l config -d 'Shared devices, quotas and defaults of options [default: /etc/gpu-coord/config.yaml, if it exists]' -r -F
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand release" -l config-key -d 'Which entry of a ConfigMap with several configurations' -r
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand release" -l log -d 'Where to write the history: auto (journal or syslog), none, or the path of a file' -r
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand release" -l root -d 'Read /proc, /sys and /dev below this directory' -r -f -a "(__fish_complete_directories)"
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand release" -l force -d 'Confirm that no process uses the unit'
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand release" -l strict -d 'Treat every warning as an error: print no answer and assign nothing'
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand release" -s v -l verbose -d 'Explain on stderr how the answer was found'
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand release" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand drain" -l reason -d 'The reason, which `status` shows' -r
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand drain" -l coordination-file -d 'The file that records who holds what' -r -F
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand drain" -l source -d 'Where devices are read: auto, nvml, nvidia-smi, procfs, sysfs, amd-smi, rocm-smi, file:PATH, simulated:N' -r -f -a "auto\t''
nvml\t''
nvidia-smi\t''
procfs\t''
sysfs\t''
amd-smi\t''
rocm-smi\t''
file:\t''
simulated:\t''"
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand drain" -l vendor -d 'Which GPUs auto uses on a host that has both: nvidia or amd' -r -f -a "nvidia\t''
amd\t''"
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand drain" -l driver-root -d 'Use the NVML library and nvidia-smi below this directory, the root of a driver container' -r -f -a "(__fish_complete_directories)"
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand drain" -l deadline -d 'Time limit for the whole run, in seconds' -r -f
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand drain" -l config -d 'Shared devices, quotas and defaults of options [default: /etc/gpu-coord/config.yaml, if it exists]' -r -F
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand drain" -l config-key -d 'Which entry of a ConfigMap with several configurations' -r
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand drain" -l log -d 'Where to write the history: auto (journal or syslog), none, or the path of a file' -r
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand drain" -l root -d 'Read /proc, /sys and /dev below this directory' -r -f -a "(__fish_complete_directories)"
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand drain" -l strict -d 'Treat every warning as an error: print no answer and assign nothing'
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand drain" -s v -l verbose -d 'Explain on stderr how the answer was found'
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand drain" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand undrain" -l coordination-file -d 'The file that records who holds what' -r -F
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand undrain" -l source -d 'Where devices are read: auto, nvml, nvidia-smi, procfs, sysfs, amd-smi, rocm-smi, file:PATH, simulated:N' -r -f -a "auto\t''
nvml\t''
nvidia-smi\t''
procfs\t''
sysfs\t''
amd-smi\t''
rocm-smi\t''
file:\t''
simulated:\t''"
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand undrain" -l vendor -d 'Which GPUs auto uses on a host that has both: nvidia or amd' -r -f -a "nvidia\t''
amd\t''"
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand undrain" -l driver-root -d 'Use the NVML library and nvidia-smi below this directory, the root of a driver container' -r -f -a "(__fish_complete_directories)"
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand undrain" -l deadline -d 'Time limit for the whole run, in seconds' -r -f
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand undrain" -l config -d 'Shared devices, quotas and defaults of options [default: /etc/gpu-coord/config.yaml, if it exists]' -r -F
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand undrain" -l config-key -d 'Which entry of a ConfigMap with several configurations' -r
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand undrain" -l log -d 'Where to write the history: auto (journal or syslog), none, or the path of a file' -r
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand undrain" -l root -d 'Read /proc, /sys and /dev below this directory' -r -f -a "(__fish_complete_directories)"
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand undrain" -l strict -d 'Treat every warning as an error: print no answer and assign nothing'
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand undrain" -s v -l verbose -d 'Explain on stderr how the answer was found'
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand undrain" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand status" -l coordination-file -d 'The file that records who holds what' -r -F
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand status" -l devices -d 'Only these devices: indexes, ranges (2-5), UUIDs or prefixes, PCI addresses, ids' -r -f
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand status" -l exclude -d 'All devices but these' -r -f
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand status" -l source -d 'Where devices are read: auto, nvml, nvidia-smi, procfs, sysfs, amd-smi, rocm-smi, file:PATH, simulated:N' -r -f -a "auto\t''
nvml\t''
nvidia-smi\t''
procfs\t''
sysfs\t''
amd-smi\t''
rocm-smi\t''
file:\t''
simulated:\t''"
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand status" -l vendor -d 'Which GPUs auto uses on a host that has both: nvidia or amd' -r -f -a "nvidia\t''
amd\t''"
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand status" -l driver-root -d 'Use the NVML library and nvidia-smi below this directory, the root of a driver container' -r -f -a "(__fish_complete_directories)"
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand status" -l deadline -d 'Time limit for the whole run, in seconds' -r -f
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand status" -l config -d 'Shared devices, quotas and defaults of options [default: /etc/gpu-coord/config.yaml, if it exists]' -r -F
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand status" -l config-key -d 'Which entry of a ConfigMap with several configurations' -r
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand status" -l log -d 'Where to write the history: auto (journal or syslog), none, or the path of a file' -r
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand status" -l root -d 'Read /proc, /sys and /dev below this directory' -r -f -a "(__fish_complete_directories)"
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand status" -l json -d 'Print JSON (version 1)'
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand status" -l prometheus -d 'Print metrics for node_exporter\'s textfile collector'
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand status" -l watch -d 'Show the table again after every change'
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand status" -l strict -d 'Treat every warning as an error: print no answer and assign nothing'
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand status" -s v -l verbose -d 'Explain on stderr how the answer was found'
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand status" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand doctor" -l flink-conf -d 'Flink\'s configuration file [default: the one below $FLINK_HOME]' -r -F
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand doctor" -l coordination-file -d 'The file that records who holds what' -r -F
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand doctor" -l source -d 'Where devices are read: auto, nvml, nvidia-smi, procfs, sysfs, amd-smi, rocm-smi, file:PATH, simulated:N' -r -f -a "auto\t''
nvml\t''
nvidia-smi\t''
procfs\t''
sysfs\t''
amd-smi\t''
rocm-smi\t''
file:\t''
simulated:\t''"
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand doctor" -l vendor -d 'Which GPUs auto uses on a host that has both: nvidia or amd' -r -f -a "nvidia\t''
amd\t''"
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand doctor" -l driver-root -d 'Use the NVML library and nvidia-smi below this directory, the root of a driver container' -r -f -a "(__fish_complete_directories)"
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand doctor" -l deadline -d 'Time limit for the whole run, in seconds' -r -f
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand doctor" -l config -d 'Shared devices, quotas and defaults of options [default: /etc/gpu-coord/config.yaml, if it exists]' -r -F
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand doctor" -l config-key -d 'Which entry of a ConfigMap with several configurations' -r
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand doctor" -l log -d 'Where to write the history: auto (journal or syslog), none, or the path of a file' -r
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand doctor" -l root -d 'Read /proc, /sys and /dev below this directory' -r -f -a "(__fish_complete_directories)"
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand doctor" -l json -d 'Print JSON (version 1)'
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand doctor" -l strict -d 'Treat every warning as an error: print no answer and assign nothing'
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand doctor" -s v -l verbose -d 'Explain on stderr how the answer was found'
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand doctor" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand devices" -l devices -d 'Only these devices: indexes, ranges (2-5), UUIDs or prefixes, PCI addresses, ids' -r -f
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand devices" -l exclude -d 'All devices but these' -r -f
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand devices" -l source -d 'Where devices are read: auto, nvml, nvidia-smi, procfs, sysfs, amd-smi, rocm-smi, file:PATH, simulated:N' -r -f -a "auto\t''
nvml\t''
nvidia-smi\t''
procfs\t''
sysfs\t''
amd-smi\t''
rocm-smi\t''
file:\t''
simulated:\t''"
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand devices" -l vendor -d 'Which GPUs auto uses on a host that has both: nvidia or amd' -r -f -a "nvidia\t''
amd\t''"
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand devices" -l driver-root -d 'Use the NVML library and nvidia-smi below this directory, the root of a driver container' -r -f -a "(__fish_complete_directories)"
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand devices" -l deadline -d 'Time limit for the whole run, in seconds' -r -f
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand devices" -l config -d 'Shared devices, quotas and defaults of options [default: /etc/gpu-coord/config.yaml, if it exists]' -r -F
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand devices" -l config-key -d 'Which entry of a ConfigMap with several configurations' -r
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand devices" -l log -d 'Where to write the history: auto (journal or syslog), none, or the path of a file' -r
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand devices" -l root -d 'Read /proc, /sys and /dev below this directory' -r -f -a "(__fish_complete_directories)"
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand devices" -l json -d 'Print JSON (version 1)'
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand devices" -l strict -d 'Treat every warning as an error: print no answer and assign nothing'
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand devices" -s v -l verbose -d 'Explain on stderr how the answer was found'
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand devices" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand check" -l source -d 'Where devices are read: auto, nvml, nvidia-smi, procfs, sysfs, amd-smi, rocm-smi, file:PATH, simulated:N' -r -f -a "auto\t''
nvml\t''
nvidia-smi\t''
procfs\t''
sysfs\t''
amd-smi\t''
rocm-smi\t''
file:\t''
simulated:\t''"
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand check" -l vendor -d 'Which GPUs auto uses on a host that has both: nvidia or amd' -r -f -a "nvidia\t''
amd\t''"
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand check" -l driver-root -d 'Use the NVML library and nvidia-smi below this directory, the root of a driver container' -r -f -a "(__fish_complete_directories)"
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand check" -l deadline -d 'Time limit for the whole run, in seconds' -r -f
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand check" -l config -d 'Shared devices, quotas and defaults of options [default: /etc/gpu-coord/config.yaml, if it exists]' -r -F
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand check" -l config-key -d 'Which entry of a ConfigMap with several configurations' -r
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand check" -l log -d 'Where to write the history: auto (journal or syslog), none, or the path of a file' -r
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand check" -l root -d 'Read /proc, /sys and /dev below this directory' -r -f -a "(__fish_complete_directories)"
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand check" -l host -d 'Also check against this host: that the script exists and that there are enough units'
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand check" -l strict -d 'Treat every warning as an error: print no answer and assign nothing'
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand check" -s v -l verbose -d 'Explain on stderr how the answer was found'
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand check" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand help; and not __fish_seen_subcommand_from allocate exec deallocateAll reclaim release drain undrain status doctor devices check" -f -a "allocate"
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand help; and not __fish_seen_subcommand_from allocate exec deallocateAll reclaim release drain undrain status doctor devices check" -f -a "exec"
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand help; and not __fish_seen_subcommand_from allocate exec deallocateAll reclaim release drain undrain status doctor devices check" -f -a "deallocateAll"
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand help; and not __fish_seen_subcommand_from allocate exec deallocateAll reclaim release drain undrain status doctor devices check" -f -a "reclaim"
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand help; and not __fish_seen_subcommand_from allocate exec deallocateAll reclaim release drain undrain status doctor devices check" -f -a "release"
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand help; and not __fish_seen_subcommand_from allocate exec deallocateAll reclaim release drain undrain status doctor devices check" -f -a "drain"
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand help; and not __fish_seen_subcommand_from allocate exec deallocateAll reclaim release drain undrain status doctor devices check" -f -a "undrain"
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand help; and not __fish_seen_subcommand_from allocate exec deallocateAll reclaim release drain undrain status doctor devices check" -f -a "status"
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand help; and not __fish_seen_subcommand_from allocate exec deallocateAll reclaim release drain undrain status doctor devices check" -f -a "doctor"
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand help; and not __fish_seen_subcommand_from allocate exec deallocateAll reclaim release drain undrain status doctor devices check" -f -a "devices"
complete -c gpu-coord -n "__fish_gpu_coord_using_subcommand help; and not __fish_seen_subcommand_from allocate exec deallocateAll reclaim release drain undrain status doctor devices check" -f -a "check"
