// Package guest holds the tests that run inside the virtual machines of the
// kernel matrix (go run ./test/vm), as root, on an otherwise idle machine with
// two CPUs. Elsewhere they skip. A new _test.go file here runs on every kernel.
//
// A guest offers: proc, sys, cgroup2, bpf and tracefs mounted; /tmp and /run
// in memory; the modules loop and fuse; /dev/nullb0, a disk that takes 20 ms
// for each request; the injectors, which inject.Build finds. There is no shell.
// The CPUs are emulated on one thread: everything is slow, so wait generously.
package guest
