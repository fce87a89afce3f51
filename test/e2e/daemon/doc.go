// Package daemon holds the end-to-end tests of the real tailcam binary: they
// build it once, run `tailcam run` with a socket and directories of their own,
// provoke latencies on this machine, and hold what the daemon did against what
// was provoked. All need root; they skip and say so without.
//
// Every test has a user id of its own, under which its injectors run and which
// its rules name, so that whatever else happens on the machine is not its outlier.
package daemon
