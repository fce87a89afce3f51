package main

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// target is one line of the matrix.
type target struct {
	name     string // also what tests find in TAILCAM_GUEST_KERNEL; those of real-time kernels end with -rt
	arch     *arch
	archive  *archive       // of the packages; nil: that of this machine
	packages *regexp.Regexp // Debian packages that hold such a kernel; the newest is taken
	run      string         // pattern of the only tests that it runs; empty: all
	cpu      string         // of QEMU; empty: that of the architecture
	cpus     int            // 0: two
	qemu     []string       // more arguments of QEMU
	turn     int            // of turns, when it runs if -turn is given; or everyTurn, noTurn
	share    *share         // of the tests, which are what it runs in its turn; nil: all
}

// A part of the matrix is split in turns, each with a kernel of both versions,
// one of them real-time.
const (
	turns     = 2
	everyTurn = -1
	noTurn    = -2 // in the whole matrix only
)

// targets is the matrix. The cloud flavour is the small one; it has all that
// tests need. Real-time kernels come in one flavour only.
var targets = []target{
	{name: "6.1", arch: x86, turn: 0, packages: regexp.MustCompile(`^linux-image-6\.1\.0-\d+-cloud-amd64$`)},
	{name: "6.1-rt", arch: x86, turn: 1, packages: regexp.MustCompile(`^linux-image-6\.1\.0-\d+-rt-amd64$`)},
	{name: "6.12", arch: x86, turn: 1, packages: regexp.MustCompile(`^linux-image-6\.12\.\d+\+(deb\d+|bpo)-cloud-amd64$`)},
	{name: "6.12-rt", arch: x86, turn: 0, packages: regexp.MustCompile(`^linux-image-6\.12\.\d+\+(deb\d+|bpo)-rt-amd64$`)},
	// The clock counts instructions, and jumps to the next timer while the guest
	// idles: minutes pass in seconds, and a busy host delays nothing in the guest. One CPU: of
	// several, QEMU runs one until the next timer is due, while the clock of the others goes on.
	{
		name: "6.12-idle", arch: x86, turn: everyTurn, packages: regexp.MustCompile(`^linux-image-6\.12\.\d+\+(deb\d+|bpo)-cloud-amd64$`),
		run: "^Test(Idle|CallCost)$", cpus: 1, qemu: []string{"-icount", "shift=2,sleep=off"},
	},
	{name: "sid", arch: x86, turn: noTurn, archive: sid, packages: regexp.MustCompile(`^linux-image-\d+\.\d+[^-]*-cloud-amd64$`)},
	{name: "sid-rt", arch: x86, turn: noTurn, archive: sid, packages: regexp.MustCompile(`^linux-image-\d+\.\d+[^-]*-rt-amd64$`)},
	{name: "arm64-6.1", arch: arm, turn: noTurn, archive: bookwormARM, packages: regexp.MustCompile(`^linux-image-6\.1\.0-\d+-cloud-arm64$`)},
	{name: "arm64-6.1-rt", arch: arm, turn: noTurn, archive: bookwormARM, packages: regexp.MustCompile(`^linux-image-6\.1\.0-\d+-rt-arm64$`)},
	{name: "arm64-6.12", arch: arm, turn: noTurn, archive: bookwormARM, packages: regexp.MustCompile(`^linux-image-6\.12\.\d+\+deb\d+-cloud-arm64$`)},
	{name: "arm64-6.12-rt", arch: arm, turn: noTurn, archive: bookwormARM, packages: regexp.MustCompile(`^linux-image-6\.12\.\d+\+deb\d+-rt-arm64$`)},
	// Pages of 16 KiB want a processor that has them; computing its signatures of pointers takes long.
	{
		name: "arm64-6.12-16k", arch: arm, turn: noTurn, archive: bookwormARM, packages: regexp.MustCompile(`^linux-image-6\.12\.\d+\+deb\d+-arm64-16k$`),
		cpu: "max,pauth-impdef=on",
	},
}

// share is what one kernel of a turn runs: every second test, of which the other kernel has the
// others, and a long one or none.
type share struct {
	odd  bool
	long string
}

// longTests take as long as a share of the others. Each turn has one of them, on one kernel.
var longTests = []string{"TestDemo", "TestShippedLoad", "", ""}

// shareOf returns what the i-th kernel runs in a turn: after 16 turns each has run each test.
func shareOf(turn, i int) *share {
	turn /= turns
	return &share{odd: (turn+i)%2 != 0, long: longTests[(turn/2+2*i)%len(longTests)]}
}

// of returns a pattern of the tests that are in the share.
func (s *share) of(tests []string) string {
	var mine []string
	odd := false
	for _, test := range tests {
		if slices.Contains(longTests, test) {
			continue
		}
		if odd == s.odd {
			mine = append(mine, test)
		}
		odd = !odd
	}
	if slices.Contains(tests, s.long) {
		mine = append(mine, s.long)
	}
	return exactly(mine)
}

// exactly is a pattern of some tests alone.
func exactly(tests []string) string { return "^(" + strings.Join(tests, "|") + ")$" }

// modules are what guests load, dependencies apart. A null_blk device answers
// each request after 20 ms.
var modules = []module{
	{name: "null_blk", params: "nr_devices=1 gb=1 irqmode=2 completion_nsec=20000000"},
	{name: "loop"},
	{name: "fuse"},
	{name: "nbd", byTest: true},
	{name: "dm_mod", byTest: true},
	{name: "dm_crypt", byTest: true},
	{name: "dm_delay", byTest: true},
	{name: "dm_raid", byTest: true},
	{name: "raid1", byTest: true},
	{name: "raid456", byTest: true},
	{name: "crc32c_generic", byTest: true}, // of libcrc32c, which md needs
	{name: "xts", byTest: true},
	{name: "ecb", byTest: true},
	{name: "aes_generic", byTest: true},
	{name: "kvm", arch: x86},                   // its tracepoints are there when a daemon starts
	{name: "kvm_amd", byTest: true, arch: x86}, // the emulator has what it needs, but for real-time kernels
}

type module struct {
	name, params string
	byTest       bool  // a test loads it: that may fail
	arch         *arch // nil: of every architecture
}

// arches are the architectures of targets, each once.
func arches(ts []target) []*arch {
	var all []*arch
	for _, t := range ts {
		if !slices.Contains(all, t.arch) {
			all = append(all, t.arch)
		}
	}
	return all
}

func names(ts []target) []string {
	var s []string
	for _, t := range ts {
		s = append(s, t.name)
	}
	return s
}

// pick returns the targets of a comma-separated list; of an empty one, all that
// run the tests of a pattern and whose turn it is, with their shares of the tests.
func pick(list, run string, turn int) ([]target, error) {
	if list == "" {
		picked := slices.DeleteFunc(slices.Clone(targets), func(t target) bool {
			return run != "" && t.run != "" || turn != everyTurn && t.turn != everyTurn && t.turn != turn%turns
		})
		for i := range picked {
			if turn != everyTurn && run == "" && picked[i].run == "" {
				picked[i].share = shareOf(turn, i)
			}
		}
		return picked, nil
	}
	var picked []target
	for _, name := range strings.Split(list, ",") {
		i := slices.IndexFunc(targets, func(t target) bool { return t.name == name })
		if i < 0 {
			return nil, fmt.Errorf("unknown kernel %q: known are %s", name, strings.Join(names(targets), ", "))
		}
		picked = append(picked, targets[i])
	}
	return picked, nil
}

// newestFirst returns the packages that hold a kernel of the target.
func (t target) newestFirst(packages []string) []string {
	var found []string
	for _, p := range packages {
		if t.packages.MatchString(p) {
			found = append(found, p)
		}
	}
	slices.SortFunc(found, func(a, b string) int { return slices.Compare(version(b), version(a)) })
	return slices.Compact(found)
}

var digits = regexp.MustCompile(`\d+`)

// version returns the numbers in a package's name, in order.
func version(name string) []int {
	var v []int
	for _, s := range digits.FindAllString(name, -1) {
		n, err := strconv.Atoi(s)
		if err != nil {
			n = -1 // absurdly long: last
		}
		v = append(v, n)
	}
	return v
}
