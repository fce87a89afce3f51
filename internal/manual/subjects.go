package manual

import "github.com/spf13/cobra"

// overview is what tailcam(1) says beyond the help text.
const overview = `A rule names what to track (wake-ups, sleeps, system calls, block requests, interrupts, or a pair of
hooks of your own) and the delay from which it is an outlier. Work that has not ended is reported as
well, at a timeout. Each outlier is told with its stacks and with who ran instead; a snapshot keeps
the recorded history before it, an explanation of where the time went, and the output of your own
scripts.

The daemon, "tailcam run", usually runs as the service tailcam. The other commands ask it through a
socket, or read the snapshots that it has left on disk.

"tailcam demo" shows all of it on this machine within a minute, without a daemon or configuration.`

// environment lists the variables that matter to a command.
func environment(cmd *cobra.Command) [][2]string {
	daemon := !cmd.HasParent() || cmd.Name() == "run"
	has := func(flag string) bool { return !daemon && cmd.Flags().Lookup(flag) != nil }
	var list [][2]string
	add := func(name, what string) { list = append(list, [2]string{name, what}) }
	if daemon {
		add("TAILCAM_CONFIG", "configuration file of the daemon")
		add("TAILCAM_KEY", "any key of the configuration of the daemon, such as TAILCAM_SNAPSHOTS_MIN_FREE for "+
			"snapshots.min_free; other commands read TAILCAM_SOCKET_PATH and TAILCAM_SNAPSHOTS_DIR")
		add("GOMEMLIMIT", "limit of the daemon's heap, instead of its own")
	}
	if has("socket-path") {
		add("TAILCAM_SOCKET_PATH", "the daemon's socket, unless --socket-path is given")
	}
	if has("config") && has("snapshots-dir") {
		add("TAILCAM_SNAPSHOTS_DIR", "snapshot directory, unless --snapshots-dir is given")
	}
	if has("config") {
		add("TAILCAM_CONFIG", "configuration file, unless --config is given")
	}
	add("PAGER", "program for text that is longer than the terminal; empty or cat: none (default: less, if there is one)")
	add("NO_COLOR", "if it is not empty, no color, unless --color says otherwise")
	return list
}

// files lists the files that a command reads or writes, as its flags tell.
func files(cmd *cobra.Command) [][2]string {
	all := !cmd.HasParent() || cmd.Name() == "run"
	has := func(flag string) bool { return all || cmd.Flags().Lookup(flag) != nil }
	var list [][2]string
	add := func(path, what string) { list = append(list, [2]string{path, what}) }
	if has("config") {
		add("/etc/tailcam/tailcam.yaml, /etc/tailcam/conf.d", "configuration of the daemon, and files that override its keys")
	}
	if all || cmd.Name() == "check" {
		add("/usr/lib/tailcam/rules.d", "the shipped rules")
		add("/etc/tailcam/rules.d", "yours, which replace, extend or disable them")
	}
	if all {
		add("/usr/lib/tailcam/actions", "executables that rules can run")
	}
	if has("socket-path") {
		add("/run/tailcam/tailcam.sock", "the daemon's socket; members of the group tailcam may use it")
	}
	if has("config") && has("snapshots-dir") {
		add("/var/lib/tailcam/snapshots", "one directory for each snapshot")
	}
	return list
}
