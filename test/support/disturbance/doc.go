// Package disturbance tells how much of the machine was taken away while
// something ran on it, and which failed test may be run again for that.
//
// The witness reads the kernel's accounts and a clock of its own. It knows
// nothing of tailcam, so that no defect of tailcam can excuse itself. It sees
//
//   - time that the hypervisor stole: /proc/stat. It is taken for what it says;
//   - how late a sleeping thread of its own wakes, for theft that the account
//     does not have. The thread has the highest real-time priority, so that
//     what tests do to load the machine delays it by no more than the 50 ms a
//     second that the kernel withholds from real-time tasks. Without the right
//     to that priority, lateness is not counted: a full machine has it, too;
//   - CPU time of processes that do not descend from this one. Those of tests
//     do, and kernel threads, which may work for tests, are not counted;
//   - idle time. CPUs that had none were full;
//   - when it is asked, switches between tasks that the kernel counts, and tells
//     no tracer of. Some kernels keep those of some threads (on one virtual
//     machine all of pid 1's, whose threads also pass on its network): who is
//     woken by these, or runs after them, comes out of nowhere.
//
// An interval is judged by its worst second, or as a whole if it is shorter:
// one stall at the wrong moment fails a test of a minute. It was disturbed when
// 5 % of a CPU were taken, or others used 25 % of one. It was full when less
// than 10 % of all CPUs were idle. Samples are 200 ms apart; those at the ends
// of an interval count as a whole. What others used is known by the second.
package disturbance
