package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// machine is what the numbers are of.
type machine struct {
	Time    time.Time `json:"time"`
	Kernel  string    `json:"kernel"`
	Arch    string    `json:"arch"`
	CPUs    int       `json:"cpus"`
	Busy    float64   `json:"busy"`         // share of all processor time in the second before
	Foreign int       `json:"bpf_programs"` // loaded before, by others
}

func describe() machine {
	m := machine{Time: time.Now().UTC(), Arch: runtime.GOARCH, CPUs: runtime.NumCPU(), Foreign: tracingPrograms()}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	before, err := cpuTimes()
	time.Sleep(time.Second)
	after, err2 := cpuTimes()
	if errors.Join(err, err2) == nil {
		m.Busy = after.busy(before)
	}
	return m
}

// tracingPrograms counts the BPF programs on this machine that trace.
func tracingPrograms() int {
	n := 0
	for id, err := ebpf.ProgramGetNextID(0); err == nil; id, err = ebpf.ProgramGetNextID(id) {
		p, err := ebpf.NewProgramFromID(id)
		if err != nil {
			continue // unloaded since
		}
		switch p.Type() {
		case ebpf.Kprobe, ebpf.TracePoint, ebpf.PerfEvent, ebpf.RawTracepoint, ebpf.RawTracepointWritable, ebpf.Tracing, ebpf.LSM:
			n++
		}
		_ = p.Close()
	}
	return n
}

// cpu is the first line of /proc/stat, in ticks: user, nice, system, idle,
// iowait, irq, softirq, steal.
type cpu [8]float64

func cpuTimes() (cpu, error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return cpu{}, err
	}
	return parseCPU(b)
}

func parseCPU(stat []byte) (c cpu, err error) {
	line, _, _ := bytes.Cut(stat, []byte("\n"))
	f := bytes.Fields(line)
	if len(f) < 1+len(c) || string(f[0]) != "cpu" {
		return c, fmt.Errorf("/proc/stat begins with %q", line)
	}
	for i := range c {
		if c[i], err = strconv.ParseFloat(string(f[1+i]), 64); err != nil {
			return c, err
		}
	}
	return c, nil
}

// total is all time since a moment before.
func (c cpu) total(before cpu) float64 {
	sum := 0.0
	for i := range c {
		sum += c[i] - before[i]
	}
	return max(sum, 1)
}

func (c cpu) steal(before cpu) float64 { return (c[7] - before[7]) / c.total(before) }

func (c cpu) busy(before cpu) float64 {
	return 1 - (c[3]+c[4]-before[3]-before[4])/c.total(before)
}
